//! Taking in results of others: a script's is checked, and never costs the current turn or a pinned message.

use super::super::{Basis, Conversation, ConversationError, Counted, Tokenizer, widen};
use super::context::CompressionResult;
use super::turn::current_turn_start;
use crate::message::Role;

/// The verdict on a result.
#[derive(Clone, Debug, PartialEq)]
pub enum Accepted {
    /// Show these, with [`Conversation::replace_visible`].
    Replace(Vec<Counted>),
    /// It is not smaller than what was visible: nothing is applied, and the compression stops.
    NotSmaller,
}

/// Checks a compression's result for a conversation as it was at `basis`.
///
/// # Errors
/// [`ConversationError::InvalidMarkMap`] where its mark map is broken, [`ConversationError::Changed`] where the
/// conversation was reshaped since.
pub fn accept_result(
    conversation: &Conversation,
    basis: Basis,
    result: &CompressionResult,
    tokenizer: &dyn Tokenizer,
) -> Result<Accepted, ConversationError> {
    result.mark_map.check(result.messages.len())?;
    let before = visible_at(conversation, basis)?;
    let stretches = result.mark_map.visible(result.messages.len());
    let shown = stretches.into_iter().flatten().filter_map(|at| result.messages.get(at));
    let shown: Vec<Counted> = shown.map(|message| Counted::new(message.clone(), tokenizer)).collect();
    let shown = with_pinned(&before, with_current_turn(&before, shown));
    let cost = |messages: &[Counted]| messages.iter().map(|one| one.tokens).fold(0, u64::saturating_add);
    if cost(&shown) >= cost(&before) {
        return Ok(Accepted::NotSmaller);
    }
    Ok(Accepted::Replace(shown))
}

/// The messages that a triggered sub-workflow's `returned` ones make visible (`mode: replace`): system messages
/// first (the conversation's own where none came back), then the others, then the current turn as of `basis`.
///
/// # Errors
/// [`ConversationError::Changed`] where the conversation was reshaped since.
pub fn replacement(
    conversation: &Conversation,
    basis: Basis,
    returned: Vec<Counted>,
) -> Result<Vec<Counted>, ConversationError> {
    let before = visible_at(conversation, basis)?;
    let is_system = |counted: &Counted| counted.message.role == Role::System;
    let (mut shown, others): (Vec<Counted>, Vec<Counted>) =
        with_current_turn(&before, returned).into_iter().partition(is_system);
    if shown.is_empty() {
        shown.extend(before.iter().filter(|counted| is_system(counted)).cloned());
    }
    shown.extend(others);
    Ok(with_pinned(&before, shown))
}

fn visible_at(conversation: &Conversation, basis: Basis) -> Result<Vec<Counted>, ConversationError> {
    if !conversation.only_appended_since(basis) {
        return Err(ConversationError::Changed);
    }
    let visible = conversation.visible();
    let then = visible.indexed().take_while(|(index, _)| *index < basis.length);
    Ok(then.map(|(_, counted)| counted.clone()).collect())
}

/// `shown`, with the pinned messages of `before` that it lost, or of whose tool block it lost anything: after its system messages,
/// the block whole.
fn with_pinned(before: &[Counted], mut shown: Vec<Counted>) -> Vec<Counted> {
    let is_shown = |shown: &[Counted], counted: &Counted| shown.iter().any(|known| known.message == counted.message);
    let mut lost: Vec<bool> = before.iter().map(|counted| counted.message.pin).collect();
    if !lost.contains(&true) {
        return shown;
    }
    widen(before, &mut lost);
    for (lost, counted) in lost.iter_mut().zip(before) {
        *lost = *lost && !is_shown(&shown, counted);
    }
    widen(before, &mut lost);
    let lost = before.iter().zip(lost).filter(|(_, lost)| *lost);
    let lost: Vec<Counted> = lost.map(|(counted, _)| counted.clone()).collect();
    shown.retain(|counted| !is_shown(&lost, counted));
    let system = shown.iter().take_while(|counted| counted.message.role == Role::System);
    let at = system.count();
    shown.splice(at..at, lost);
    shown
}

/// `shown`, ending with the whole current turn of `before`; what of it was there already is not said twice.
fn with_current_turn(before: &[Counted], mut shown: Vec<Counted>) -> Vec<Counted> {
    let turn = &before[current_turn_start(before)..];
    for counted in turn.iter().rev() {
        if let Some(at) = shown.iter().rposition(|known| known.message == counted.message) {
            shown.remove(at);
        }
    }
    shown.extend(turn.iter().cloned());
    shown
}
