//! Summarizes by selecting sentences, without a language model.
//!
//! Sentences that share words with many others are central to a text (TextRank). The summary consists of the most central ones
//! within a budget, in their original order. It is deterministic.
//!
//! Not here: the model `extractive`, which is in the crate `pirn-models`.

mod abbreviations;
mod rank;
mod sentences;
#[cfg(test)]
mod tests;

use serde_json::{Map, Value};

pub(super) use self::abbreviations::goes_on;
use self::rank::ranked;
use self::sentences::{Sentence, sentences};
pub(super) use self::sentences::{each_sentence, is_data, sentence_end};
use super::{Estimator, Tokenizer};

/// Maximum length of a summary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Budget {
    /// Maximum number of sentences; `None`: a third of them, at least 1 and at most 8.
    pub sentences: Option<u64>,
    /// Maximum number of estimated tokens; `None`: 256.
    pub tokens: Option<u64>,
}

impl Budget {
    /// Reads `maxSentences` and `maxTokens`.
    ///
    /// # Errors
    /// The name of a parameter that is not a positive integer.
    pub fn read(parameters: Option<&Map<String, Value>>) -> Result<Self, &'static str> {
        let whole = |name: &'static str| match parameters.and_then(|all| all.get(name)) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => match value.as_u64() {
                Some(number) if number > 0 => Ok(Some(number)),
                Some(_) | None => Err(name),
            },
        };
        Ok(Self {
            sentences: whole("maxSentences")?,
            tokens: whole("maxTokens")?,
        })
    }

    /// Returns the maximum number of estimated tokens.
    pub fn most_tokens(self) -> u64 {
        self.tokens.unwrap_or(256)
    }

    /// Returns the message about a parameter that [`Budget::read`] rejected.
    pub fn wrong(name: &str) -> String {
        format!("`{name}` must be a whole number above zero")
    }
}

/// Returns the most central sentences of `texts`, in their order. Sentences of one text share a line, and each text starts a new
/// one. The result is not empty if there is a sentence: one that exceeds the budget is truncated.
pub fn summary<'t>(texts: impl IntoIterator<Item = &'t str>, budget: Budget) -> String {
    let all = sentences(texts);
    let ranked = ranked(&all);
    let chosen = within(&all, &ranked, budget);
    match ranked.first() {
        // No sentence fits: an empty summary would change nothing.
        Some(best) if chosen.is_empty() => cut(all[*best].text, budget.most_tokens()),
        Some(_) | None => joined(chosen.into_iter().map(|place| &all[place])),
    }
}

/// Returns the best sentences within the budget, in their original order.
fn within(all: &[Sentence<'_>], ranked: &[usize], budget: Budget) -> Vec<usize> {
    // Rounded up, so that one sentence has a summary.
    let third = u64::try_from(all.len().div_ceil(3)).unwrap_or(8);
    let most = budget.sentences.unwrap_or_else(|| third.clamp(1, 8));
    let mut tokens_left = budget.most_tokens();
    let mut chosen = Vec::new();
    for &place in ranked {
        if chosen.len() as u64 >= most {
            break;
        }
        // Include the separator in the cost.
        let cost = Estimator.count(all[place].text).saturating_add(1);
        // A long sentence is skipped, because a shorter one of lower rank may still fit.
        if cost <= tokens_left {
            tokens_left -= cost;
            chosen.push(place);
        }
    }
    // Positions are unique, so that the sort need not be stable.
    chosen.sort_unstable();
    chosen
}

fn joined<'s, 't: 's>(chosen: impl Iterator<Item = &'s Sentence<'t>>) -> String {
    let mut summary = String::new();
    let mut before: Option<&Sentence<'_>> = None;
    for sentence in chosen {
        match before {
            Some(last) if last.of != sentence.of => summary.push('\n'),
            // Scripts without spaces between words have none between sentences either.
            Some(last) if !last.text.ends_with(is_unspaced) => summary.push(' '),
            Some(_) | None => {}
        }
        summary.push_str(sentence.text);
        before = Some(sentence);
    }
    summary
}

/// Returns whether `c` belongs to a script without spaces between words, or to its punctuation.
pub fn is_unspaced(c: char) -> bool {
    matches!(u32::from(c), 0x2e80..=0x9fff | 0xf900..=0xfaff | 0xff00..=0xffef | 0x2_0000..=0x3_ffff)
}

/// Returns the beginning of `text` in whole characters, followed by dots.
fn cut(text: &str, tokens: u64) -> String {
    // A character costs at least a quarter of a token, so more than four per token cannot fit.
    let most = usize::try_from(tokens.saturating_mul(4)).unwrap_or(usize::MAX);
    let ends: Vec<usize> = text
        .char_indices()
        .take(most)
        .map(|(at, c)| at + c.len_utf8())
        .collect();
    // By bisection: the count grows with the prefix.
    let fitting = ends.partition_point(|end| Estimator.count(&text[..*end]) < tokens);
    let end = fitting.checked_sub(1).map_or(0, |last| ends[last]);
    format!("{}…", text[..end].trim_end())
}
