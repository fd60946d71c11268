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
/// Latin letters, digits and spaces count 1/4 each, ASCII punctuation 1/2, Chinese, Japanese and Korean characters 1, as do Greek,
/// Hebrew, Arabic, Devanagari and Thai ones. Characters of other Indic scripts count 3/2, those of further scripts of Asia and Africa 2,
/// of other scripts 1/2, symbols and emoji 2. Twenty or more letters and digits in random order, as in base64 and
/// hexadecimal numbers, count 3/4. The common rule "characters / 4" is too low by a factor of three for Chinese.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Estimator;

impl Estimator {
    /// Name in profiles.
    pub const NAME: &'static str = "estimate";

    /// Counts as version 0.2.0 did, so that a run of it is replayed with the counts that it had: 1/2 for each Greek, Hebrew, Arabic and
    /// Indic character, and 1/4 for each letter and digit.
    pub fn count_of_0_2_0(text: &str) -> u64 {
        let quarters = text.chars().map(|character| match u32::from(character) {
            0x0370..=0x10ff | 0x1200..=0x1cff => 2,
            _ => quarter_tokens(character),
        });
        quarters.sum::<u64>().div_ceil(4)
    }
}

impl Tokenizer for Estimator {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn count(&self, text: &str) -> u64 {
        // In quarters, so that the sum is exact and rounded once.
        let (mut quarters, mut run) = (0, 0);
        for (end, character) in text.char_indices() {
            quarters += quarter_tokens(character);
            if character.is_ascii_alphanumeric() {
                run += 1;
            } else {
                quarters += surcharge(&text.as_bytes()[end - run..end]);
                run = 0;
            }
        }
        quarters += surcharge(&text.as_bytes()[text.len() - run..]);
        quarters.div_ceil(4)
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
        0x0980..=0x0aff | 0x0b80..=0x0d7f => 6,
        0x0370..=0x03ff
        | 0x0590..=0x06ff
        | 0x0900..=0x097f
        | 0x0e00..=0x0e7f
        | 0x1100..=0x11ff
        | 0x2e80..=0x9fff
        | 0xac00..=0xd7af
        | 0xf900..=0xfaff
        | 0xff00..=0xffef => 4,
        // Vocabularies have few words of these scripts, so that a character is encoded as two or three pieces of its bytes.
        0x0530..=0x058f | 0x0700..=0x1cff | 0x2190..=0x2bff | 0x1_f000..=0x1_faff | 0x2_0000..=0x3_ffff => 8,
        _ => 2,
    }
}

/// Minimum length of letters and digits that are examined for a random order. Ids of large results have 16; a surcharge for them would
/// change the counts in stored runs.
const LEAST_RANDOM: usize = 20;

/// Returns the quarters of a token that a run of ASCII letters and digits costs in addition to one for each: a vocabulary has no pieces
/// for random characters.
fn surcharge(run: &[u8]) -> u64 {
    if run.len() < LEAST_RANDOM {
        return 0;
    }
    let class = |byte: u8| (byte.is_ascii_uppercase(), byte.is_ascii_lowercase());
    // Words start with a capital letter, so that a lower-case letter after it is no change.
    let is_change = |pair: &&[u8]| class(pair[0]) != class(pair[1]) && !(class(pair[0]).0 && class(pair[1]).1);
    let changes = run.windows(2).filter(is_change).count();
    // Words and names in camel case change less often.
    if changes * 4 >= run.len() {
        run.len() as u64 * 2
    } else {
        0
    }
}
