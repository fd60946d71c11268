//! Changes of the conversation by CONTEXT_PROCESSOR.
//!
//! Every change except an insert at the end starts a new batch: the messages visible before are archived. Remaining leading system
//! messages stay first. Tool blocks are retained or removed as a whole.
//!
//! Not here: the evaluation of templates (`pirn_core::thread`), and the strategies of compression ([`super::compression`]).

mod filter;
mod insert;
mod replace;
mod truncate;

use pirn_definition::definition::{ConversationHistoryOptions, FilterContext, TruncateContext};

use super::{Conversation, ConversationError, CountedMessage};

/// A CONTEXT_PROCESSOR operation with rendered templates and counted messages. `compress` and `pin` are not included: see
/// [`super::compression`] and [`pirn_definition::definition::Pinned`].
#[derive(Clone, Debug, PartialEq)]
pub enum ResolvedContext {
    /// Adds messages.
    Insert {
        /// New messages.
        messages: Vec<CountedMessage>,
        /// Index among the visible messages. Negative values count from the end; -1 is the end.
        position: i64,
    },
    /// Replaces messages.
    Replace {
        /// Messages to remove; absent: all visible messages except system ones.
        target: Option<ConversationHistoryOptions>,
        /// Replacement, inserted at the position of the first removed message.
        messages: Vec<CountedMessage>,
    },
    /// Retains or removes messages at one end.
    Truncate(TruncateContext),
    /// Removes all messages.
    Clear {
        /// True to retain system messages.
        keep_system: bool,
    },
    /// Retains the messages that match.
    Filter(FilterContext),
}

/// Applies an operation atomically.
///
/// # Errors
/// Returns an error for an invalid or empty selection, a position out of range, or a truncate with none or several of its
/// alternative fields.
pub fn apply(conversation: &mut Conversation, operation: ResolvedContext) -> Result<(), ConversationError> {
    let shown = match operation {
        ResolvedContext::Insert { messages, position } => match insert::inserted(conversation, messages, position)? {
            insert::Inserted::AtEnd(messages) => {
                // An append keeps the provider's cache and prepared replacements valid, which a new batch would not.
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
    // The only change, after all errors: an operation is applied completely or not at all.
    conversation.show_in_new_batch(shown);
    Ok(())
}

fn cleared(conversation: &Conversation, keep_system: bool) -> Vec<CountedMessage> {
    let visible = conversation.visible();
    let system = visible
        .iter()
        .filter(|counted| counted.message.role == pirn_definition::message::Role::System);
    if keep_system {
        system.cloned().collect()
    } else {
        Vec::new()
    }
}

/// Returns the messages with a set flag.
fn keep(visible: Vec<CountedMessage>, kept: &[bool]) -> Vec<CountedMessage> {
    visible
        .into_iter()
        .zip(kept)
        .filter(|(_, kept)| **kept)
        .map(|(counted, _)| counted)
        .collect()
}
