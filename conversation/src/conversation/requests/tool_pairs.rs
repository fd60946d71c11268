//! Pairing of tool calls and results: in a request every call is followed by its result, and every result follows its call.
//! Histories may violate this; requests are repaired. The history itself is never changed.

use std::collections::VecDeque;

use pirn_definition::message::{Message, Role};

use crate::conversation::Repairs;

/// The result of a call that has none.
pub const UNANSWERED: &str = "No result: this tool call was interrupted before it returned.";

/// Returns the messages with paired calls and results. Results retain their order; missing ones are stated at the end of the block,
/// in call order. `state` creates a stated result.
pub fn repair_tool_pairs<M: AsRef<Message>>(
    messages: impl IntoIterator<Item = M>,
    state: impl Fn(Message) -> M,
) -> (Vec<M>, Repairs) {
    let (mut closed_calls, mut dropped_results) = (Vec::new(), Vec::new());
    let mut sound = Vec::new();
    // In the order of the calls. Results usually arrive in it, and are then removed at the front.
    let mut open: VecDeque<String> = VecDeque::new();
    let mut close = |open: &mut VecDeque<String>, sound: &mut Vec<M>| {
        for call in open.drain(..) {
            sound.push(state(Message::tool_result(call.clone(), UNANSWERED)));
            closed_calls.push(call);
        }
    };
    for item in messages {
        let message = item.as_ref();
        if message.role == Role::Tool {
            let id = message.tool_call_id.as_ref();
            match id.and_then(|id| open.iter().position(|call| call == id)) {
                Some(answered) => {
                    open.remove(answered);
                    sound.push(item);
                }
                // Providers reject a result without a call directly before its block.
                None => dropped_results.push(id.cloned().unwrap_or_default()),
            }
            continue;
        }
        // Any other message ends the block: a later result of these calls is an orphan.
        close(&mut open, &mut sound);
        if message.asks_for_tools() {
            open = message.tool_calls.iter().map(|call| call.id.clone()).collect();
        }
        sound.push(item);
    }
    // Calls at the end of the history: the run was interrupted, or the results are still awaited.
    close(&mut open, &mut sound);
    let repairs = Repairs {
        closed_calls,
        dropped_results,
        ..Repairs::default()
    };
    (sound, repairs)
}
