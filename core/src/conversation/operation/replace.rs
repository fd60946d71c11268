//! `replace`: messages in the place of a selection.

use super::super::{Conversation, ConversationError, Counted, select_positions, widen};
use crate::definition::ConversationHistoryOptions;
use crate::message::Role;

/// Without a target everything but system messages goes, and those stay first.
pub(super) fn replaced(
    conversation: &Conversation,
    target: Option<&ConversationHistoryOptions>,
    messages: Vec<Counted>,
) -> Result<Vec<Counted>, ConversationError> {
    let visible: Vec<Counted> = conversation.visible().iter().cloned().collect();
    let Some(options) = target else {
        let system = visible
            .into_iter()
            .filter(|counted| counted.message.role == Role::System);
        return Ok(system.chain(messages).collect());
    };
    let mut goes = vec![false; visible.len()];
    for position in select_positions(conversation, options)? {
        goes[position] = true;
    }
    widen(&visible, &mut goes);
    let first = goes
        .iter()
        .position(|goes| *goes)
        .ok_or(ConversationError::NothingSelected)?;
    // Nothing before the first that goes is removed, so its place is the same afterwards.
    let kept: Vec<bool> = goes.into_iter().map(|goes| !goes).collect();
    let mut shown = super::keep(visible, &kept);
    shown.splice(first..first, messages);
    Ok(shown)
}
