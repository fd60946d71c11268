//! The pair rule: in a request every tool call is followed by its result, and every result follows its call. Histories come
//! in broken; requests go out repaired. The history itself is never changed.

use std::collections::VecDeque;

use super::Repairs;
use crate::message::{Message, Role};

/// The result of a call that has none.
pub const UNANSWERED: &str = "No result: this tool call was interrupted before it returned.";

/// The same messages with the pair rule enforced: results in the order they came, missing ones stated at the block's
/// end in the order of the calls. `state` makes an item of a stated result.
pub fn repair_tool_pairs<M: AsRef<Message>>(
    messages: impl IntoIterator<Item = M>,
    state: impl Fn(Message) -> M,
) -> (Vec<M>, Repairs) {
    let (mut closed_calls, mut dropped_results) = (Vec::new(), Vec::new());
    let mut sound = Vec::new();
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
                None => dropped_results.push(id.cloned().unwrap_or_default()),
            }
            continue;
        }
        close(&mut open, &mut sound);
        if message.asks_for_tools() {
            open = message.tool_calls.iter().map(|call| call.id.clone()).collect();
        }
        sound.push(item);
    }
    close(&mut open, &mut sound);
    let repairs = Repairs {
        closed_calls,
        dropped_results,
        ..Repairs::default()
    };
    (sound, repairs)
}
