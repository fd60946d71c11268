//! `recall`: a word search in the messages that compressions archived.

use std::collections::BTreeSet;

use pirn_definition::message::{Message, Role};
use serde::Deserialize;
use serde_json::Value;

use super::super::compression::is_summary;
use super::super::{Conversation, Tokenizer};
use super::excerpt;
use super::page::{paged, read_arguments};

/// A message takes at most this fraction of a page, around its first matching word.
const SHARE: u64 = 3;
/// Fraction of that for the text before the word.
const BEFORE: u64 = 4;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    query: String,
    from: Option<usize>,
}

/// Returns the reply to `recall`, of at most `limit` tokens: archived messages that contain words of the query, those with most
/// words first, then later ones. Case is ignored, and parts of words match. Each text occurs once.
///
/// Omitted are texts that are still visible, messages hidden from a main agent, and summaries: what they summarize is archived too.
///
/// # Errors
/// Returns a sentence for the model if the arguments are invalid.
pub fn recall(
    arguments: &Value,
    conversation: &Conversation,
    limit: u64,
    tokenizer: &dyn Tokenizer,
) -> Result<String, String> {
    let Arguments { query, from } = read_arguments(arguments)?;
    let folded = excerpt::folded(&query);
    // A set: a word that the query repeats counts once.
    let words: BTreeSet<&str> = folded
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .collect();
    if words.is_empty() {
        return Err("`query` has no words.".to_owned());
    }
    let archived = no_longer_shown(conversation);
    let mut found: Vec<Found> = archived
        .iter()
        .filter_map(|(index, message)| Found::of(*index, message, &words))
        .collect();
    // Both reversed: most words first, and of equals the latest message.
    found.sort_by_key(|found| (std::cmp::Reverse(found.words), std::cmp::Reverse(found.index)));
    let (from, total) = (from.unwrap_or(0), found.len());
    let mut cost = 0_u64;
    let shown = found
        .iter()
        .skip(from)
        .map(|found| found.shown(limit / SHARE, tokenizer));
    let shown: Vec<String> = shown
        // Matches are rendered lazily: those that cannot be on the page are neither cut nor counted.
        .take_while(|shown| {
            let is_room = cost <= limit;
            cost = cost.saturating_add(tokenizer.count(shown));
            is_room
        })
        .collect();
    let head = |count: usize| {
        // `from` comes from the model and may be behind the last match.
        let last = from.min(total) + count;
        let next = if last < total {
            format!("; continue with from {last}")
        } else {
            String::new()
        };
        let of = archived.len();
        format!("[{total} of {of} archived messages contain words of the query; showing {count} from {from}{next}]")
    };
    paged(&shown, from < total, head, (limit, tokenizer))
}

/// Returns the messages that compressions hid, with their indices in the complete history: none that is still visible, each text
/// once, without summaries and messages hidden from a main agent.
pub fn no_longer_shown(conversation: &Conversation) -> Vec<(usize, &Message)> {
    let visible = conversation.visible();
    // Starts with the visible messages, so that texts which the model sees anyway are omitted.
    let mut seen: BTreeSet<_> = visible.iter().map(|counted| same_as(&counted.message)).collect();
    let older = conversation
        .archived()
        .map(|(index, counted)| (index, &*counted.message));
    // Before the set: an omitted message must not hide an equal one.
    let others = older.filter(|(_, message)| !message.sub_agent_internal && !is_summary(message));
    // Retain the first of equal messages.
    others.filter(|(_, message)| seen.insert(same_as(message))).collect()
}

/// Returns a key that is equal for messages with equal content.
fn same_as(message: &Message) -> (Role, &str, Vec<&str>) {
    let calls = message.tool_calls.iter().map(|call| &*call.id);
    let ids = calls.chain(message.tool_call_id.as_deref()).collect();
    (message.role, &message.content, ids)
}

struct Found {
    index: usize,
    role: Role,
    text: String,
    /// Number of query words in the message, and the offset of the first one.
    words: usize,
    at: usize,
}

impl Found {
    fn of(index: usize, message: &Message, words: &BTreeSet<&str>) -> Option<Self> {
        use std::fmt::Write;
        let mut text = message.content.clone();
        for call in &message.tool_calls {
            // Cannot fail: writing to a `String` is infallible.
            let _ = write!(text, "\ncalls {} {}", call.name, call.arguments);
        }
        let folded = excerpt::folded(&text);
        // Substrings match, so that a query need not have the form of the word in the text.
        let places: Vec<usize> = words.iter().filter_map(|word| folded.find(word)).collect();
        // Without any word the message is not found.
        let at = places.iter().copied().min()?;
        let role = message.role;
        let words = places.len();
        Some(Self {
            index,
            role,
            text,
            words,
            at,
        })
    }

    fn shown(&self, budget: u64, tokenizer: &dyn Tokenizer) -> String {
        let (index, role) = (self.index, self.role.as_str());
        let is_long = tokenizer.count(&self.text) > budget;
        // A short message is shown whole. Of a long one, the first match must be visible.
        let start = if is_long {
            excerpt::end(&self.text[..self.at], budget / BEFORE, tokenizer)
        } else {
            0
        };
        let length = excerpt::beginning(&self.text[start..], budget, tokenizer);
        let mark = |is_cut: bool| if is_cut { "…" } else { "" };
        let (before, after) = (mark(start > 0), mark(start + length < self.text.len()));
        format!(
            "message {index}, {role}: {before}{}{after}",
            &self.text[start..start + length]
        )
    }
}
