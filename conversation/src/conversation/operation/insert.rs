//! `insert`: adds messages before a message, or at the end.

use pirn_definition::message::{Message, Role};

use super::super::{Conversation, ConversationError, CountedMessage, split_block};

pub(super) enum Inserted {
    /// Messages to append; the others do not move.
    AtEnd(Vec<CountedMessage>),
    /// The complete list of visible messages after the insertion.
    Within(Vec<CountedMessage>),
}

/// Returns the insertion. A position inside a tool block is moved to the block's start, one before a leading system message after
/// it.
pub(super) fn inserted(
    conversation: &Conversation,
    messages: Vec<CountedMessage>,
    position: i64,
) -> Result<Inserted, ConversationError> {
    // The common case, and the only one that needs no new batch.
    if position == -1 {
        return Ok(Inserted::AtEnd(messages));
    }
    let visible = conversation.visible();
    let length = visible.len();
    let at = resolve(position, length).ok_or(ConversationError::PositionOutOfRange {
        position,
        visible: length as u64,
    })?;
    // The length is the end too, so that it is an append as well.
    if at == length {
        return Ok(Inserted::AtEnd(messages));
    }
    let mut shown: Vec<CountedMessage> = visible.iter().cloned().collect();
    // Leading system messages stay first, as after every operation.
    let leading_system = shown
        .iter()
        .take_while(|counted| counted.message.role == Role::System)
        .count();
    let message_at = |index: usize| -> Option<&Message> { shown.get(index).map(AsRef::as_ref) };
    // The start of a block is behind the leading system messages, so that `max` never moves into a block.
    let at = split_block(at, message_at).unwrap_or(at).max(leading_system);
    shown.splice(at..at, messages);
    Ok(Inserted::Within(shown))
}

/// Converts a position: `-1` is the end, `-2` before the last message, and so on.
fn resolve(position: i64, length: usize) -> Option<usize> {
    if let Ok(at) = usize::try_from(position) {
        return (at <= length).then_some(at);
    }
    // Checked: the smallest integer has no negation.
    let back = usize::try_from(position.checked_add(1)?.checked_neg()?).ok()?;
    // `None` in front of the first message.
    length.checked_sub(back)
}
