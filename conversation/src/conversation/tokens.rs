//! Token counts of messages. A message is counted once, before it is appended.

use std::sync::Arc;

use pirn_definition::message::{Message, Part};
use serde::{Deserialize, Serialize};

use super::MediaRule;

/// Tokens of a message in addition to its text (case H04).
pub const MESSAGE_OVERHEAD: u64 = 4;

/// Counts the tokens of a text. Must be deterministic.
pub trait Tokenizer: Send + Sync {
    /// Returns the name of the tokenizer, as in profiles.
    fn name(&self) -> &str;
    /// Returns the tokens of `text`.
    fn count(&self, text: &str) -> u64;
    /// Returns the tokens of an image or a file.
    fn count_media(&self, part: &Part) -> u64 {
        MediaRule::most(part)
    }
}

/// A message with its token count, as stored in a conversation. Cloning copies a pointer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CountedMessage {
    /// The message.
    pub message: Arc<Message>,
    /// Tokens of the message, including [`MESSAGE_OVERHEAD`].
    pub tokens: u64,
}

impl CountedMessage {
    /// Counts `message` with `tokenizer`.
    pub fn new(message: impl Into<Arc<Message>>, tokenizer: &dyn Tokenizer) -> Self {
        let message = message.into();
        let tokens = message_cost(&message, tokenizer);
        Self { message, tokens }
    }
}

impl AsRef<Message> for CountedMessage {
    fn as_ref(&self) -> &Message {
        &self.message
    }
}

/// Returns the tokens of a message: overhead, text, images and files, and the names and arguments of its tool calls.
pub fn message_cost(message: &Message, tokenizer: &dyn Tokenizer) -> u64 {
    // Providers send calls as JSON text, so that the arguments are counted in that form.
    let calls = message.tool_calls.iter().map(|call| {
        tokenizer
            .count(&call.name)
            .saturating_add(tokenizer.count(&call.arguments.to_string()))
    });
    // Text parts are in `content` and counted with it.
    let media = message.parts.iter().filter(|part| part.as_text().is_none());
    let media = media.map(|part| tokenizer.count_media(part));
    calls.chain(media).fold(
        MESSAGE_OVERHEAD.saturating_add(tokenizer.count(&message.content)),
        u64::saturating_add,
    )
}

/// A tokenizer for models with an unknown vocabulary. One pass without tables; rarely far below the real count.
///
/// Latin letters, digits and spaces count 1/4 each, ASCII punctuation 1/2, Chinese, Japanese and Korean characters 1, other scripts
/// 1/2, symbols and emoji 2. The common rule "characters / 4" is too low by a factor of three for Chinese.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Estimator;

impl Estimator {
    /// Name in profiles.
    pub const NAME: &'static str = "estimate";
}

impl Tokenizer for Estimator {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn count(&self, text: &str) -> u64 {
        // In quarters, so that the sum is exact and rounded once.
        text.chars().map(quarter_tokens).sum::<u64>().div_ceil(4)
    }
}

/// The [`Estimator`] with a provider's rule for images and files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EstimatorOf(pub MediaRule);

impl Tokenizer for EstimatorOf {
    fn name(&self) -> &str {
        Estimator::NAME
    }

    fn count(&self, text: &str) -> u64 {
        Estimator.count(text)
    }

    fn count_media(&self, part: &Part) -> u64 {
        self.0.cost(part)
    }
}

fn quarter_tokens(character: char) -> u64 {
    match u32::from(character) {
        0..=0x7f if character.is_ascii_punctuation() || character == '\n' => 2,
        0..=0x7f => 1,
        0x1100..=0x11ff | 0x2e80..=0x9fff | 0xac00..=0xd7af | 0xf900..=0xfaff | 0xff00..=0xffef => 4,
        0x2190..=0x2bff | 0x1_f000..=0x1_faff | 0x2_0000..=0x3_ffff => 8,
        _ => 2,
    }
}
