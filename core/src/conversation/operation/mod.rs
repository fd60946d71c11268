//! CONTEXT_PROCESSOR's changes of the conversation.
//!
//! All but an insert at the end start a new batch: what was visible is archived. Leading system messages that stay, stay
//! first; no tool block is split: it is kept, or goes, as a whole.

mod filter;
mod insert;
mod replace;
mod truncate;

use super::{Conversation, ConversationError, Counted};
use crate::definition::{ConversationHistoryOptions, FilterContext, TruncateContext};

/// A CONTEXT_PROCESSOR operation with its templates rendered and its new messages counted. `compress` and `pin` change
/// nothing here: see [`super::compression`] and [`crate::definition::Pinned`].
#[derive(Clone, Debug, PartialEq)]
pub enum ResolvedContext {
    /// Adds messages.
    Insert {
        /// The messages.
        messages: Vec<Counted>,
        /// Index among the visible messages; negative counts from the end, -1 is the end.
        position: i64,
    },
    /// Puts messages in the place of others.
    Replace {
        /// The messages that go; absent: every visible message but system ones.
        target: Option<ConversationHistoryOptions>,
        /// The messages that come, in the place of the first that goes.
        messages: Vec<Counted>,
    },
    /// Keeps or removes from an end.
    Truncate(TruncateContext),
    /// Removes all.
    Clear {
        /// But not system messages.
        keep_system: bool,
    },
    /// Keeps what matches.
    Filter(FilterContext),
}

/// Changes the conversation in one step, or not at all.
///
/// # Errors
/// A selection that makes no sense or selects nothing, a position out of range, a truncate that names none or several
/// of its ways.
pub fn apply(conversation: &mut Conversation, operation: ResolvedContext) -> Result<(), ConversationError> {
    let shown = match operation {
        ResolvedContext::Insert { messages, position } => match insert::inserted(conversation, messages, position)? {
            insert::Inserted::AtEnd(messages) => {
                conversation.extend(messages);
                return Ok(());
            }
            insert::Inserted::Within(shown) => shown,
        },
        ResolvedContext::Replace { target, messages } => replace::replaced(conversation, target.as_ref(), messages)?,
        ResolvedContext::Truncate(truncate) => truncate::truncated(conversation, &truncate)?,
        ResolvedContext::Clear { keep_system } => cleared(conversation, keep_system),
        ResolvedContext::Filter(filter) => filter::filtered(conversation, &filter),
    };
    conversation.show_in_new_batch(shown);
    Ok(())
}

fn cleared(conversation: &Conversation, keep_system: bool) -> Vec<Counted> {
    let visible = conversation.visible();
    let system = visible
        .iter()
        .filter(|counted| counted.message.role == crate::message::Role::System);
    if keep_system {
        system.cloned().collect()
    } else {
        Vec::new()
    }
}

/// The messages whose flag is set.
fn keep(visible: Vec<Counted>, kept: &[bool]) -> Vec<Counted> {
    visible
        .into_iter()
        .zip(kept)
        .filter(|(_, kept)| **kept)
        .map(|(counted, _)| counted)
        .collect()
}
