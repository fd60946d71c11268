//! `keep_recent` and `keep_system_recent`: retain the last messages, the current turn, pinned messages and whole tool blocks.

use std::sync::Arc;

use super::super::widen;
use super::turn::current_turn_start;
use crate::message::{Message, Role};

/// Selects the last `count` messages of any role.
pub(super) fn recent(visible: &[Arc<Message>], count: usize) -> Vec<bool> {
    let from = visible.len().saturating_sub(count).min(current_turn_start(visible));
    let mut kept: Vec<bool> = (visible.iter().enumerate())
        .map(|(at, message)| at >= from || message.pin)
        .collect();
    widen(visible, &mut kept);
    kept
}

/// Selects every system message, and the last `count` of the others.
pub(super) fn system_and_recent(visible: &[Arc<Message>], count: usize) -> Vec<bool> {
    let turn = current_turn_start(visible);
    let others = visible.iter().filter(|message| message.role != Role::System).count();
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
            seen > skipped || at >= turn || message.pin
        })
        .collect();
    widen(visible, &mut kept);
    kept
}
