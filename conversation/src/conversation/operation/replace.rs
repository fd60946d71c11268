//! `replace`: replaces a selection of messages.

use pirn_definition::definition::ConversationHistoryOptions;
use pirn_definition::message::Role;

use super::super::{Conversation, ConversationError, CountedMessage, select_positions, widen};

/// Returns the messages after the replacement. Without a target all are replaced except system messages, which stay first.
pub(super) fn replaced(
    conversation: &Conversation,
    target: Option<&ConversationHistoryOptions>,
    messages: Vec<CountedMessage>,
) -> Result<Vec<CountedMessage>, ConversationError> {
    // Copies pointers only.
    let visible: Vec<CountedMessage> = conversation.visible().iter().cloned().collect();
    let Some(options) = target else {
        let system = visible
            .into_iter()
            .filter(|counted| counted.message.role == Role::System);
        return Ok(system.chain(messages).collect());
    };
    let mut goes = vec![false; visible.len()];
    // Positions instead of messages: equal messages must be distinguished.
    for position in select_positions(conversation, options)? {
        goes[position] = true;
    }
    // A block that loses a message is removed as a whole. The selection itself does not do this.
    widen(&visible, &mut goes);
    let first = goes
        .iter()
        .position(|goes| *goes)
        .ok_or(ConversationError::NothingSelected)?;
    // No message before the first removed one is removed, so that its index is also the insertion index.
    let kept: Vec<bool> = goes.into_iter().map(|goes| !goes).collect();
    let mut shown = super::keep(visible, &kept);
    shown.splice(first..first, messages);
    Ok(shown)
}
