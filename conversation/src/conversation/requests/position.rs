//! Position of the pinned context. Found from the end, so that the cost does not grow with the history.

use pirn_definition::message::Message;
use serde::{Deserialize, Serialize};

use crate::conversation::blocks::{block_before, split_block};

/// The placement of the pinned context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PinStrategy {
    /// Before the last N messages; at the end of a shorter history.
    FromEnd(usize),
    /// Directly after the system message or a sub-agent's first prompt.
    AfterFirst,
    /// After the last message.
    AtEnd,
}

impl PinStrategy {
    /// Default of N.
    pub const DEFAULT_FROM_END: usize = 5;
}

impl Default for PinStrategy {
    fn default() -> Self {
        Self::FromEnd(Self::DEFAULT_FROM_END)
    }
}

/// Returns the index before which the pinned context is inserted in a history of `length` messages. The first message (system, or a
/// sub-agent's first prompt) is not counted. The user message that is being sent must not be part of the history.
///
/// An index inside a tool block is moved to the block's start. The context is never placed after a trailing call without a result.
/// Reads only the tail from the position on, and the block around it.
pub fn pin_position<'a>(
    strategy: PinStrategy,
    length: usize,
    message_at: impl Fn(usize) -> Option<&'a Message>,
) -> usize {
    // Saturates for an empty history.
    let counted = length.saturating_sub(1);
    let target = match strategy {
        PinStrategy::FromEnd(from_end) if counted >= from_end => length - from_end,
        PinStrategy::FromEnd(_) | PinStrategy::AtEnd => length,
        // 0 for an empty history, which has no first message.
        PinStrategy::AfterFirst => length.min(1),
    };
    // Inside of the history only a block around the position matters.
    if target < length {
        return split_block(target, message_at).unwrap_or(target);
    }
    match block_before(length, &message_at) {
        // Providers require the results directly after the call.
        Some(start) if waits_for_result(start, length, &message_at) => start,
        Some(_) | None => length,
    }
}

/// Returns true if a call of the block `start..end` has no result yet.
fn waits_for_result<'a>(start: usize, end: usize, message_at: &impl Fn(usize) -> Option<&'a Message>) -> bool {
    let Some(asking) = message_at(start) else {
        return false;
    };
    // A list: a message has few calls, and an id may occur twice.
    let mut open: Vec<&str> = asking.tool_calls.iter().map(|call| call.id.as_str()).collect();
    for result in (start + 1..end).filter_map(message_at) {
        let answered = result
            .tool_call_id
            .as_deref()
            .and_then(|id| open.iter().position(|call| *call == id));
        if let Some(call) = answered {
            // Removed, because each result answers one call. The order does not matter here.
            open.swap_remove(call);
        }
    }
    !open.is_empty()
}
