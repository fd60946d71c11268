//! The current turn: what came after the last assistant message without tool calls.

use super::super::Conversation;
use crate::message::{Message, Role};

/// Start of the current turn; the length where it is empty. System messages begin none. With no such assistant message
/// everything after the leading system messages is the current turn.
pub fn current_turn_start<M: AsRef<Message>>(messages: &[M]) -> usize {
    let answered = |message: &M| message.as_ref().role == Role::Assistant && !message.as_ref().asks_for_tools();
    let from = messages.iter().rposition(answered).map_or(0, |answer| answer + 1);
    let system = messages[from..]
        .iter()
        .take_while(|message| message.as_ref().role == Role::System);
    from + system.count()
}

/// Tokens of the current turn alone: above the budget no compression helps (TOKEN_BUDGET_EXCEEDED).
pub fn current_turn_tokens(conversation: &Conversation) -> u64 {
    let visible: Vec<_> = conversation.visible().iter().collect();
    let turn = &visible[current_turn_start(&visible)..];
    turn.iter().map(|counted| counted.tokens).fold(0, u64::saturating_add)
}
