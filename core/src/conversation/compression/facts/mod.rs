//! The facts of texts, and which of them a summary kept. Found by rules alone: the same texts have the same facts.
//!
//! | kind | a word that |
//! |---|---|
//! | number | is digits, with points or commas between: `1,200`, `48.30` |
//! | date | is three groups of digits, alike parted by `-`, `/` or `.`, a date with a time behind `T`, or digits parted by `:` |
//! | id | has letters and digits, or `_` or `@` within: `AX-7741`, `order_id`, `ada@example.org` |
//! | name | begins with a capital letter and does not begin a sentence, or is all capitals |
//! | negation | follows `not`, `no`, `never`, `without` and the like: "not *refundable*" |
//!
//! A fact is kept where the summary has the same word; a negation where the summary negates the same word.

mod word;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::message::Message;
use word::{Word, words};

/// The kind of a fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FactKind {
    /// An amount, a count.
    Number,
    /// A date or a time.
    Date,
    /// A word made of letters and digits.
    Id,
    /// A word with a capital.
    Name,
    /// A word that is said not to hold.
    Negation,
}

impl FactKind {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Number, Self::Date, Self::Id, Self::Name, Self::Negation];

    /// The lower-case word used in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Number => "number",
            Self::Date => "date",
            Self::Id => "id",
            Self::Name => "name",
            Self::Negation => "negation",
        }
    }
}

/// A fact, in the form by which it is compared: small letters, numbers without what parts their thousands.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Fact {
    /// Its kind.
    pub kind: FactKind,
    /// Its word.
    pub text: String,
}

/// A fact of the originals, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JudgedFact {
    /// The fact.
    #[serde(flatten)]
    pub fact: Fact,
    /// The summary has it.
    pub kept: bool,
    /// The originals that have it, by their places.
    pub messages: Vec<usize>,
}

/// The facts of `originals`, each once, in the order of their kinds and words, and which of them `summary` kept.
pub fn judge<M: AsRef<Message>>(originals: &[M], summary: &str) -> Vec<JudgedFact> {
    let said = Said::of(summary);
    let mut facts: BTreeMap<Fact, Vec<usize>> = BTreeMap::new();
    for (place, message) in originals.iter().enumerate() {
        for fact in facts_of(&text_of(message.as_ref())) {
            facts.entry(fact).or_default().push(place);
        }
    }
    let judged = facts.into_iter().map(|(fact, messages)| JudgedFact {
        kept: said.has(&fact),
        fact,
        messages,
    });
    judged.collect()
}

/// Everything that a message says: its text and the arguments of its calls.
fn text_of(message: &Message) -> String {
    let mut text = message.content.clone();
    for call in &message.tool_calls {
        text.push('\n');
        text.push_str(&call.arguments.to_string());
    }
    text
}

/// The facts of a text.
pub fn facts_of(text: &str) -> BTreeSet<Fact> {
    let words = words(text);
    let plain = words.iter().filter_map(|word| {
        let kind = word.kind()?;
        Some(Fact {
            kind,
            text: word.compared(),
        })
    });
    plain.chain(negated(&words)).collect()
}

/// The words that a text has, for the facts of others to be looked for.
struct Said {
    words: BTreeSet<String>,
    negated: BTreeSet<Fact>,
}

impl Said {
    fn of(text: &str) -> Self {
        let words = words(text);
        Self {
            negated: negated(&words).collect(),
            words: words.iter().map(Word::compared).collect(),
        }
    }

    fn has(&self, fact: &Fact) -> bool {
        match fact.kind {
            FactKind::Number | FactKind::Date | FactKind::Id | FactKind::Name => self.words.contains(&fact.text),
            FactKind::Negation => self.negated.contains(fact),
        }
    }
}

/// For every negation the word that it is about: the next one of its sentence that says something.
fn negated(words: &[Word<'_>]) -> impl Iterator<Item = Fact> {
    let after = words
        .iter()
        .enumerate()
        .filter(|(_, word)| word.negates())
        .map(|(at, _)| &words[at + 1..]);
    after.filter_map(|after| {
        let sentence = after.iter().take_while(|word| !word.begins_sentence);
        let word = sentence.into_iter().find(|word| !word.is_small())?;
        Some(Fact {
            kind: FactKind::Negation,
            text: word.compared(),
        })
    })
}
