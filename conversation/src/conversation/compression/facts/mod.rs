//! Facts in texts, and which of them a summary contains. Found by fixed rules, so that equal texts have equal facts.
//!
//! | kind | a word that |
//! |---|---|
//! | number | is digits, with points or commas between: `1,200`, `48.30` |
//! | date | is three groups of digits, alike parted by `-`, `/` or `.`, a date with a time behind `T`, or digits parted by `:` |
//! | id | has letters and digits, or `_` or `@` within: `AX-7741`, `order_id`, `ada@example.org` |
//! | name | begins with a capital letter and does not begin a sentence, or is all capitals |
//! | negation | follows `not`, `no`, `never`, `without` and the like: "not *refundable*" |
//!
//! A summary keeps a fact if it contains the word; a negation if it negates the word.
//!
//! Not here: the decision whether a summary is accepted (`accept.rs` of the folder above).

mod word;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use pirn_definition::message::Message;
use serde::{Deserialize, Serialize};

pub(super) use word::{Word, lower, words};

/// Kind of a fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FactKind {
    /// An amount or a count.
    Number,
    /// A date or a time.
    Date,
    /// A word of letters and digits.
    Id,
    /// A capitalized word.
    Name,
    /// A negated word.
    Negation,
}

impl FactKind {
    /// All kinds.
    pub const ALL: [Self; 5] = [Self::Number, Self::Date, Self::Id, Self::Name, Self::Negation];

    /// Returns the lower-case name in JSON.
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

/// A fact in normalized form: lower case, numbers without thousands separators.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Fact {
    /// Kind of the fact.
    pub kind: FactKind,
    /// Normalized word.
    pub text: String,
}

/// A fact of the original messages, with the result for the summary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JudgedFact {
    /// The fact.
    #[serde(flatten)]
    pub fact: Fact,
    /// True if the summary contains it.
    pub kept: bool,
    /// Indices of the original messages that contain it.
    pub messages: Vec<usize>,
}

/// Returns the facts of `originals`, each once, sorted by kind and word, and whether `summary` contains them.
pub fn judge<M: AsRef<Message>>(originals: &[M], summary: &str) -> Vec<JudgedFact> {
    let placed = originals.iter().map(AsRef::as_ref).enumerate();
    judge_with(placed, &KnownFacts::new(), summary)
}

/// Facts of messages that earlier compressions have replaced, by kind.
pub(super) type KnownFacts = BTreeMap<FactKind, BTreeSet<String>>;

/// Judges the facts of messages, with their positions, and the known facts of earlier messages.
pub(super) fn judge_with<'m>(
    originals: impl Iterator<Item = (usize, &'m Message)>,
    known: &KnownFacts,
    summary: &str,
) -> Vec<JudgedFact> {
    let said = TextWords::of(summary);
    // Ordered, because the facts are part of a result that must be equal in a replay.
    let mut facts: BTreeMap<Fact, Vec<usize>> = BTreeMap::new();
    for (kind, texts) in known {
        for text in texts {
            let fact = Fact {
                kind: *kind,
                text: text.clone(),
            };
            facts.insert(fact, Vec::new());
        }
    }
    for (place, message) in originals {
        // `facts_of` returns a set, so that a message is listed once for each of its facts.
        for fact in facts_of(&text_of(message)) {
            facts.entry(fact).or_default().push(place);
        }
    }
    let judged = facts.into_iter().map(|(fact, messages)| JudgedFact {
        // Evaluated before `fact` is moved.
        kept: said.has(&fact),
        fact,
        messages,
    });
    judged.collect()
}

/// Returns the text of a message, with the arguments of its calls.
fn text_of(message: &Message) -> Cow<'_, str> {
    let mut text = Cow::Borrowed(message.content.as_str());
    for call in &message.tool_calls {
        let text = text.to_mut();
        text.push('\n');
        // Amounts and ids often occur only in the arguments of a call.
        text.push_str(&call.arguments.to_string());
    }
    text
}

/// Returns the facts of a text.
pub fn facts_of(text: &str) -> BTreeSet<Fact> {
    let words = words(text);
    let plain = words.iter().filter_map(|word| {
        let kind = word.kind()?;
        Some(Fact {
            kind,
            text: word.compared(),
        })
    });
    // A word may be two facts: `Refund` in `no Refund` is a name and a negation.
    plain.chain(negated(&words)).collect()
}

/// Words of a text, in which facts are looked up.
struct TextWords {
    words: BTreeSet<String>,
    negated: BTreeSet<Fact>,
}

impl TextWords {
    fn of(text: &str) -> Self {
        let words = words(text);
        Self {
            negated: negated(&words).collect(),
            words: words.iter().map(Word::compared).collect(),
        }
    }

    fn has(&self, fact: &Fact) -> bool {
        match fact.kind {
            // By the word alone: a summary may capitalize it in another way and so change its kind.
            FactKind::Number | FactKind::Date | FactKind::Id | FactKind::Name => self.words.contains(&fact.text),
            FactKind::Negation => self.negated.contains(fact),
        }
    }
}

/// Returns the word to which each negation refers: the next content word of the sentence.
fn negated(words: &[Word<'_>]) -> impl Iterator<Item = Fact> {
    let after = words
        .iter()
        .enumerate()
        .filter(|(_, word)| word.negates())
        .map(|(at, _)| &words[at + 1..]);
    after.filter_map(|after| {
        // A negation at the end of a sentence does not negate the next sentence.
        let sentence = after.iter().take_while(|word| !word.begins_sentence);
        let word = sentence.into_iter().find(|word| !word.is_small())?;
        Some(Fact {
            kind: FactKind::Negation,
            text: word.compared(),
        })
    })
}
