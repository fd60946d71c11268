//! Selection of messages: one set of options for every feature that selects messages.

use std::sync::Arc;

use pirn_definition::definition::{ConversationHistoryOptions, HistorySelection, SelectionFault, json_from_value};
use pirn_definition::message::{Message, Role};
use serde_json::Value;

use super::{Conversation, ConversationError, CountedMessage};

/// Returns the selected messages in order. If fewer messages exist than are requested, all are selected. The selection is exact:
/// incomplete tool blocks are repaired when a request is built.
///
/// # Errors
/// Returns [`ConversationError::InvalidHistoryOptions`] if [`ConversationHistoryOptions::check`] does.
pub fn select(
    conversation: &Conversation,
    options: &ConversationHistoryOptions,
) -> Result<Vec<Arc<Message>>, ConversationError> {
    let counted = select_counted(conversation, options)?;
    Ok(counted.into_iter().map(|counted| counted.message).collect())
}

/// Selects like [`select`], and returns the messages with their tokens.
///
/// # Errors
/// Returns the errors of [`select`].
pub fn select_counted(
    conversation: &Conversation,
    options: &ConversationHistoryOptions,
) -> Result<Vec<CountedMessage>, ConversationError> {
    let view = conversation.visible();
    let positions = select_positions(conversation, options)?;
    // Clones only the selected messages, and of those only pointers.
    let chosen = positions.into_iter().filter_map(|position| view.get(position));
    Ok(chosen.cloned().collect())
}

/// Selects all visible messages for `true`, none for `false`, or by options.
///
/// # Errors
/// Returns [`ConversationError::InvalidHistoryOptions`] for invalid options.
pub fn select_from(
    conversation: &Conversation,
    selection: &HistorySelection,
) -> Result<Option<Vec<Arc<Message>>>, ConversationError> {
    match selection {
        HistorySelection::All(true) => Ok(Some(conversation.visible().messages())),
        HistorySelection::All(false) => Ok(None),
        HistorySelection::Some(options) => select(conversation, options).map(Some),
    }
}

/// Returns the positions of the selected messages among the visible ones, in ascending order.
///
/// # Errors
/// Returns [`ConversationError::InvalidHistoryOptions`] for invalid options.
pub fn select_positions(
    conversation: &Conversation,
    options: &ConversationHistoryOptions,
) -> Result<Vec<usize>, ConversationError> {
    // First, so that the branches below need not handle zeros and empty ranges.
    options.check()?;
    let view = conversation.visible();
    let of_role = |role: Role| -> Vec<usize> {
        view.iter()
            .enumerate()
            .filter(|(_, counted)| counted.message.role == role)
            .map(|(position, _)| position)
            .collect()
    };
    // The order of `ConversationHistoryOptions::check`: the first option that is given wins.
    Ok(if let Some(count) = options.last_n {
        (view.len().saturating_sub(bounded(count))..view.len()).collect()
    } else if let Some(last) = options.last_n_by_role {
        let mut positions = of_role(last.role);
        // A count above the number of messages selects all.
        positions.drain(..positions.len().saturating_sub(bounded(last.count)));
        positions
    } else if let Some(role) = options.by_role {
        of_role(role)
    } else if let Some(range) = options.range {
        let range = bounded(range.start)..bounded(range.end);
        // Ranges refer to the complete history, positions to the visible messages.
        let mut before = 0;
        let mut positions = Vec::new();
        for stretch in view.stretches() {
            // `from` is above `to` for a stretch outside of the range: the list is empty then.
            let from = stretch.start.max(range.start);
            let to = stretch.end.min(range.end);
            positions.extend((from..to).map(|index| before + index - stretch.start));
            before += stretch.len();
        }
        positions
    } else if let Some(range) = options.range_by_role {
        let positions = of_role(range.role);
        // Cut to the length, because the slice below would panic.
        let from = bounded(range.start).min(positions.len());
        let to = bounded(range.end).min(positions.len());
        positions[from..to].to_vec()
    } else {
        Vec::new()
    })
}

/// Reads a selection from JSON: `true`, `false`, or options, checked.
///
/// # Errors
/// [`ConversationError::InvalidHistoryOptions`] for anything else: negative or broken numbers, unknown roles or fields.
pub fn parse_selection(value: &Value) -> Result<HistorySelection, ConversationError> {
    match value {
        Value::Bool(all) => Ok(HistorySelection::All(*all)),
        Value::Object(_) => {
            let options: ConversationHistoryOptions =
                json_from_value(value.clone()).map_err(|error| ConversationError::InvalidHistoryOptions {
                    pointer: error.pointer().unwrap_or_default().to_owned(),
                    message: error.message().to_owned(),
                })?;
            options.check()?;
            Ok(HistorySelection::Some(options))
        }
        Value::Null | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Err(ConversationError::InvalidHistoryOptions {
                pointer: String::new(),
                message: "options are true, false, or an object".to_owned(),
            })
        }
    }
}

impl From<SelectionFault> for ConversationError {
    fn from(fault: SelectionFault) -> Self {
        Self::InvalidHistoryOptions {
            pointer: fault.pointer.to_owned(),
            message: fault.message.to_owned(),
        }
    }
}

fn bounded(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
