//! `keep_recent` and `keep_system_recent`: retain the last messages, the current turn, pinned messages and whole tool blocks.

use std::sync::Arc;

use pirn_definition::message::{Message, Role};

use super::super::widen;
use super::turn::current_turn_start;

/// Selects the last `count` messages of any role.
pub(super) fn recent(visible: &[Arc<Message>], count: usize) -> Vec<bool> {
    // The smaller index, because the current turn is retained even if it has more than `count` messages.
    let from = visible.len().saturating_sub(count).min(current_turn_start(visible));
    let mut kept: Vec<bool> = (visible.iter().enumerate())
        .map(|(at, message)| at >= from || message.pin)
        .collect();
    // Last, because the selection may start in the middle of a tool block.
    widen(visible, &mut kept);
    kept
}

/// Selects every system message, and the last `count` of the others.
pub(super) fn system_and_recent(visible: &[Arc<Message>], count: usize) -> Vec<bool> {
    let turn = current_turn_start(visible);
    let others = visible.iter().filter(|message| message.role != Role::System).count();
    // Counted from the front, so that one pass selects the last ones.
    let skipped = others.saturating_sub(count);
    let mut seen = 0;
    let mut kept: Vec<bool> = visible
        .iter()
        .enumerate()
        .map(|(at, message)| {
            if message.role == Role::System {
                return true;
            }
            seen += 1;
            // The count includes messages of the current turn, which are the last ones.
            seen > skipped || at >= turn || message.pin
        })
        .collect();
    // Last, because the selection may start in the middle of a tool block.
    widen(visible, &mut kept);
    kept
}
