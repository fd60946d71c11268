//! `checklist`: typed statements of a conversation, quoted verbatim. No model is needed.
//!
//! The statements are recorded in the metadata of the summary message. The next compression reads that record and adds the statements
//! of newer messages; it never extracts statements from the text of a summary. A statement therefore does not change in any number
//! of compressions.
//!
//! | rule | reason |
//! |---|---|
//! | A newer statement with the same subject replaces the older one, which keeps its section. | `subject.rs` compares words and never meanings. |
//! | Rules, constraints and preferences are taken from the user only. | A tool result must not set rules. |
//! | Clear rules and constraints (`is_binding`) are never dropped. | The budget limits all other statements. |
//! | Labelled statements precede others, the newest first. One that a newer one restates in other words comes last. | A paraphrase replaces nothing, but it probably has the current value. |
//! | Each section has a floor. | A section with many statements must not displace the others. |
//!
//! A summary by a model is quoted after the statements (`quote.rs`). No rule depends on the model.
//!
//! Not here: selection of the messages that are replaced (`summary.rs` of the folder above).

mod budget;
mod collect;
mod lines;
mod quote;
mod statements;
mod subject;
mod words;

use std::collections::{BTreeMap, BTreeSet};

use pirn_definition::definition::CompressionParameter;
use pirn_definition::message::{Message, Role};
use serde::{Deserialize, Serialize};

use super::facts::FactKind;

pub(super) use budget::{Budget, Limits, Size, rendered};
pub(super) use collect::{Collected, collected};
pub(super) use quote::instructions;

/// Metadata key of the record.
pub(super) const CHECKLIST: &str = "checklist";

/// Kind of a statement, in the order of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Section {
    /// Prohibitions and general rules.
    Rules,
    /// Limits, deadlines and requirements.
    Constraints,
    /// Corrections of statements that the record does not contain.
    Corrections,
    /// Goals, tasks and next steps.
    Goals,
    /// Preferences of the user.
    Preferences,
    /// Decisions.
    Decisions,
    /// Open questions.
    Questions,
    /// Files, addresses and other artifacts.
    Artifacts,
    /// Statements with numbers, dates, ids and names.
    Facts,
}

impl Section {
    /// All sections in the order of the text.
    pub const ALL: [Self; 9] = [
        Self::Rules,
        Self::Constraints,
        Self::Corrections,
        Self::Goals,
        Self::Preferences,
        Self::Decisions,
        Self::Questions,
        Self::Artifacts,
        Self::Facts,
    ];

    /// Returns the name in JSON.
    pub fn as_str(self) -> &'static str {
        CompressionParameter::SECTIONS[self as usize]
    }

    pub(super) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|section| section.as_str() == name)
    }

    fn bit(self) -> u16 {
        1 << self as u16
    }

    /// Returns true if the user alone can make statements of this section.
    fn is_of_the_user(self) -> bool {
        matches!(self, Self::Rules | Self::Constraints | Self::Preferences)
    }
}

/// Sentence or line of a message, verbatim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Statement {
    /// Kind of the statement.
    pub section: Section,
    /// Text of the statement.
    pub text: String,
    /// Ids of the first and of the last message that contain it. A message without an id has `batch:position`.
    pub ids: Vec<String>,
    /// Role of the message.
    pub from: Role,
    /// True for a clear rule or constraint, which is never dropped.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_binding: bool,
    /// Weight by which statements of a section are selected, the highest first.
    #[serde(default)]
    pub weight: u8,
}

/// Record of the statements that a summary quotes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Checklist {
    /// Maximum number of tokens of the quoted text. Binding statements may exceed it.
    pub budget: u64,
    /// Statements, the oldest first.
    pub statements: Vec<Statement>,
    /// Number of statements that did not fit, in all compressions.
    #[serde(default)]
    pub dropped: u64,
    /// Summary by a model, which is quoted after the statements.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// Facts of the replaced messages of all compressions, with `keepFacts`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub facts: BTreeMap<FactKind, BTreeSet<String>>,
}

/// Statement of original messages, with the result for a summary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JudgedStatement {
    /// The statement.
    pub statement: Statement,
    /// True if the summary quotes it.
    pub kept: bool,
}

/// Returns the statements of `originals` that no later one replaces, and whether `summary` quotes them.
pub fn judge_statements<M: AsRef<Message>>(originals: &[M], summary: &str) -> Vec<JudgedStatement> {
    let all = originals.iter().map(|message| Collected {
        message: message.as_ref(),
        id: message.as_ref().id.clone().unwrap_or_default(),
        is_summary: false,
    });
    let judged = collected(all).statements.into_iter().map(|statement| JudgedStatement {
        // Evaluated before `statement` is moved.
        kept: summary.contains(budget::quoted_part(&statement)),
        statement,
    });
    judged.collect()
}

impl Checklist {
    /// Returns the record in a summary message.
    pub fn of(message: &Message) -> Option<Self> {
        let record = message.metadata.as_ref()?.get(CHECKLIST)?;
        // A record that another program wrote in a different form is ignored, like any unknown metadata.
        Self::deserialize(record).ok()
    }
}
