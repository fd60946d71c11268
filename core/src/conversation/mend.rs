//! The pair rule: in what a model gets, every tool call is followed by its result, and every result follows its call
//!. Histories come in broken; requests go out mended. The history itself is never changed.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::message::{Message, Role};

/// What is said where a call has no result.
pub const UNANSWERED: &str = "No result: this tool call was interrupted before it returned.";

/// What was done to a request. Part of REQUEST_MENDED.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Mended {
    /// Ids of calls that were closed with a stated result.
    pub closed_calls: Vec<String>,
    /// Results without a call before them, left out: the call ids they name, empty where they name none.
    pub dropped_results: Vec<String>,
}

impl Mended {
    /// Whether the history was whole.
    pub fn is_empty(&self) -> bool {
        self.closed_calls.is_empty() && self.dropped_results.is_empty()
    }

    /// Adds what was done to a later part.
    pub fn absorb(&mut self, later: Mended) {
        self.closed_calls.extend(later.closed_calls);
        self.dropped_results.extend(later.dropped_results);
    }
}

/// The same messages with the pair rule enforced: results in the order they came, missing ones stated at the block's
/// end in the order of the calls. `state` makes an item of a stated result.
pub fn mend<M: AsRef<Message>>(
    messages: impl IntoIterator<Item = M>,
    state: impl Fn(Message) -> M,
) -> (Vec<M>, Mended) {
    let Mended {
        mut closed_calls,
        mut dropped_results,
    } = Mended::default();
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
    let mended = Mended {
        closed_calls,
        dropped_results,
    };
    (sound, mended)
}
