//! The current turn: the messages after the last assistant message without tool calls.

use pirn_definition::message::{Message, Role};

use super::super::Conversation;

/// Returns the start of the current turn, or the length if it is empty. System messages at its start do not belong to it. Without
/// such an assistant message, the turn starts after the leading system messages.
pub fn current_turn_start<M: AsRef<Message>>(messages: &[M]) -> usize {
    // A reply with tool calls is in the middle of a turn: its results follow.
    let answered = |message: &M| message.as_ref().role == Role::Assistant && !message.as_ref().asks_for_tools();
    let from = messages.iter().rposition(answered).map_or(0, |answer| answer + 1);
    // `accept.rs` moves the turn to the end of a result: leading system messages must not move with it.
    let system = messages[from..]
        .iter()
        .take_while(|message| message.as_ref().role == Role::System);
    from + system.count()
}

/// Returns the tokens of the current turn. Above the token budget no compression helps (TOKEN_BUDGET_EXCEEDED).
pub fn current_turn_tokens(conversation: &Conversation) -> u64 {
    let visible: Vec<_> = conversation.visible().iter().collect();
    let turn = &visible[current_turn_start(&visible)..];
    turn.iter().map(|counted| counted.tokens).fold(0, u64::saturating_add)
}
