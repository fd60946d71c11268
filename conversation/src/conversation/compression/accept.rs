//! Validation of compression results from outside. A result may remove neither the current turn nor a pinned message.

use std::collections::{HashMap, HashSet};
use std::hash::{Hash, Hasher};

use foldhash::fast::FixedState;
use pirn_definition::message::{Message, Role};

use super::super::{Basis, Conversation, ConversationError, CountedMessage, Tokenizer, tool_blocks, widen};
use super::context::CompressionResult;
use super::turn::current_turn_start;

/// Decision about a result.
#[derive(Clone, Debug, PartialEq)]
pub enum Accepted {
    /// Show these messages with [`Conversation::replace_visible`].
    Replace(Vec<CountedMessage>),
    /// The result is not smaller than the visible messages: it is not applied, and the compression ends.
    NotSmaller,
}

/// Validates a compression's result for a conversation as it was at `basis`.
///
/// # Errors
/// Returns [`ConversationError::InvalidMarkMap`] for an invalid mark map, [`ConversationError::Changed`] if the conversation was
/// reshaped since.
pub fn accept_result(
    conversation: &Conversation,
    basis: Basis,
    result: &CompressionResult,
    tokenizer: &dyn Tokenizer,
) -> Result<Accepted, ConversationError> {
    // The result comes from a sub-workflow, so that its marks are checked like any input.
    result.mark_map.check(result.messages.len())?;
    // The messages that the compression has seen. Later appends are added by `replace_visible`.
    let before = visible_at(conversation, basis)?;
    let stretches = result.mark_map.visible(result.messages.len());
    let shown = stretches.into_iter().flatten().filter_map(|at| result.messages.get(at));
    // Counted again: a strategy or a script may have returned messages that no tokenizer has seen.
    let shown: Vec<CountedMessage> = shown
        .map(|message| CountedMessage::new(message.clone(), tokenizer))
        .collect();
    // In this order: a pinned message of the current turn is at its place in the turn then.
    let shown = with_pinned(&before, with_current_turn(&before, shown));
    let cost = |messages: &[CountedMessage]| messages.iter().map(|one| one.tokens).fold(0, u64::saturating_add);
    // Compared after both additions, which may make up for everything that the result saved.
    if cost(&shown) >= cost(&before) {
        return Ok(Accepted::NotSmaller);
    }
    Ok(Accepted::Replace(shown))
}

/// Returns the messages that are visible after a triggered sub-workflow `returned` messages (`mode: replace`): system messages
/// first (the conversation's if none were returned), then the others, then the current turn as of `basis`.
///
/// # Errors
/// Returns [`ConversationError::Changed`] if the conversation was reshaped since.
pub fn replacement(
    conversation: &Conversation,
    basis: Basis,
    returned: Vec<CountedMessage>,
) -> Result<Vec<CountedMessage>, ConversationError> {
    let before = visible_at(conversation, basis)?;
    let is_system = |counted: &CountedMessage| counted.message.role == Role::System;
    let (mut shown, others): (Vec<CountedMessage>, Vec<CountedMessage>) =
        with_current_turn(&before, returned).into_iter().partition(is_system);
    // A sub-workflow that returns no system message must not remove the instructions of the model.
    if shown.is_empty() {
        shown.extend(before.iter().filter(|counted| is_system(counted)).cloned());
    }
    shown.extend(others);
    Ok(with_pinned(&before, shown))
}

fn visible_at(conversation: &Conversation, basis: Basis) -> Result<Vec<CountedMessage>, ConversationError> {
    // Checked before the result is built: `replace_visible` would reject it anyway.
    if !conversation.only_appended_since(basis) {
        return Err(ConversationError::Changed);
    }
    let visible = conversation.visible();
    // Indices ascend, so that the first later message ends the list.
    let then = visible.indexed().take_while(|(index, _)| *index < basis.length);
    Ok(then.map(|(_, counted)| counted.clone()).collect())
}

/// Adds to `shown` the pinned messages of `before` that it lacks, each with its whole tool block, after the system messages.
fn with_pinned(before: &[CountedMessage], mut shown: Vec<CountedMessage>) -> Vec<CountedMessage> {
    let mut lost: Vec<bool> = before.iter().map(|counted| counted.message.pin).collect();
    // The common case: nothing is pinned, and no hash set is built.
    if !lost.contains(&true) {
        return shown;
    }
    // A pinned result needs its call, and a pinned call its results.
    widen(before, &mut lost);
    let known = contents(&shown);
    for (lost, counted) in lost.iter_mut().zip(before) {
        *lost = *lost && !known.contains(&Content(&counted.message));
    }
    drop(known);
    // Results that are not pinned may be replaced, for example by notes: their calls are still answered.
    let mut answered: HashMap<Content<'_>, HashSet<&str, FixedState>, FixedState> = HashMap::default();
    let originals = contents(before);
    for block in tool_blocks(&shown) {
        let ids = shown[block.clone()].iter();
        let ids = ids.filter(|counted| !originals.contains(&Content(&counted.message)));
        let ids = ids.filter_map(|counted| counted.message.tool_call_id.as_deref());
        answered
            .entry(Content(&shown[block.start].message))
            .or_default()
            .extend(ids);
    }
    for block in tool_blocks(before) {
        let Some(ids) = answered.get(&Content(&before[block.start].message)) else {
            continue;
        };
        for (lost, counted) in lost[block.clone()].iter_mut().zip(&before[block]) {
            let id = counted.message.tool_call_id.as_deref();
            *lost = *lost && (counted.message.pin || !id.is_some_and(|id| ids.contains(id)));
        }
    }
    // The map borrows `shown`, which changes below.
    drop(answered);
    widen(before, &mut lost);
    let lost = before.iter().zip(lost).filter(|(_, lost)| *lost);
    let lost: Vec<CountedMessage> = lost.map(|(counted, _)| counted.clone()).collect();
    let known = contents(&lost);
    // The parts of the blocks that the result has: each block is inserted as a whole instead.
    let mut leaves: Vec<bool> = (shown.iter())
        .map(|counted| known.contains(&Content(&counted.message)))
        .collect();
    for block in tool_blocks(&shown) {
        // Results that replace others leave with their calls. A pinned result of other calls stays.
        let calls_leave = leaves[block.start];
        for (leaves, counted) in leaves[block.clone()].iter_mut().zip(&shown[block]) {
            *leaves = *leaves || calls_leave && !counted.message.pin;
        }
    }
    // The set borrows `lost`, which moves into `shown`.
    drop(known);
    let mut leaves = leaves.into_iter();
    shown.retain(|_| !leaves.next().unwrap_or(false));
    let system = shown.iter().take_while(|counted| counted.message.role == Role::System);
    let at = system.count();
    // Before all others, because the positions of the messages around them are lost.
    shown.splice(at..at, lost);
    shown
}

/// Moves the whole current turn of `before` to the end of `shown`. Messages of the turn that `shown` contains are not duplicated.
fn with_current_turn(before: &[CountedMessage], mut shown: Vec<CountedMessage>) -> Vec<CountedMessage> {
    let turn = &before[current_turn_start(before)..];
    // The order of the map is never read, so that a fast hasher with a fixed seed is enough.
    let mut places: HashMap<Content<'_>, Vec<usize>, FixedState> = HashMap::default();
    for (place, counted) in shown.iter().enumerate() {
        places.entry(Content(&counted.message)).or_default().push(place);
    }
    let mut is_kept = vec![true; shown.len()];
    for counted in turn {
        // Among equal messages, the last ones belong to the turn.
        if let Some(place) = places.get_mut(&Content(&counted.message)).and_then(Vec::pop) {
            // Marked only: removing messages one at a time would be quadratic.
            is_kept[place] = false;
        }
    }
    drop(places);
    let mut is_kept = is_kept.into_iter();
    // `retain` visits the messages in order, once each.
    shown.retain(|_| is_kept.next().unwrap_or(true));
    // From `before`, because the result may have only a part of the turn.
    shown.extend(turn.iter().cloned());
    shown
}

/// Hash set of messages: comparing each message of a long turn with all others would be quadratic.
fn contents(messages: &[CountedMessage]) -> HashSet<Content<'_>, FixedState> {
    messages.iter().map(|counted| Content(&counted.message)).collect()
}

/// A message as key, compared by content.
struct Content<'m>(&'m Message);

impl PartialEq for Content<'_> {
    fn eq(&self, other: &Self) -> bool {
        #[cfg(test)]
        COMPARED.with(|compared| compared.set(compared.get() + 1));
        self.0 == other.0
    }
}

impl Eq for Content<'_> {}

impl Hash for Content<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // These fields differ in almost all messages. Equality compares the rest.
        self.0.role.hash(state);
        self.0.content.hash(state);
        self.0.tool_call_id.hash(state);
        self.0.tool_calls.iter().for_each(|call| call.id.hash(state));
    }
}

#[cfg(test)]
thread_local! {
    static COMPARED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::Estimator;

    #[test]
    fn accepting_a_result_needs_a_linear_number_of_comparisons() {
        for count in [1_000, 5_000] {
            let message = |no: usize| {
                let mut message = Message::new(Role::Tool, "done");
                message.tool_call_id = Some(no.to_string());
                message.pin = no.is_multiple_of(2);
                CountedMessage::new(message, &Estimator)
            };
            let question = CountedMessage::new(Message::new(Role::User, "go"), &Estimator);
            let before: Vec<CountedMessage> = std::iter::once(question).chain((0..count).map(message)).collect();
            COMPARED.with(|compared| compared.set(0));
            let shown = with_pinned(&before, with_current_turn(&before, before.clone()));
            assert!(shown == before);
            let compared = COMPARED.with(std::cell::Cell::get);
            assert!(compared < 8 * count, "{compared} of {count}");
        }
    }
}
