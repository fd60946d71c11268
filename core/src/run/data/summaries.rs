//! Rules for the summaries of a run, which are part of its start, and warnings of summaries.

use std::sync::Arc;

use pirn_events::event::RaisedEvent;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Rules for the summaries of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SummaryRules {
    /// True if summaries have a checklist. A run of an earlier version has none, and its replay must yield equal summaries.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_checklist: bool,
    /// Profile of the model request that exceeded the token limit, if that started this run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile_id: Option<Arc<str>>,
}

impl SummaryRules {
    /// Returns the rules of a new run.
    #[must_use]
    pub fn new(profile_id: Option<Arc<str>>) -> Self {
        Self {
            has_checklist: true,
            profile_id,
        }
    }

    pub(in crate::run) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// The rules in a machine. One pointer, because every run has them and few differ from those of a new run.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::run) struct RunSummaryRules(Option<Box<SummaryRules>>);

impl RunSummaryRules {
    pub(in crate::run) fn has_checklist(&self) -> bool {
        self.0.as_ref().is_none_or(|rules| rules.has_checklist)
    }

    pub(in crate::run) fn profile_id(&self) -> Option<&Arc<str>> {
        self.0.as_ref()?.profile_id.as_ref()
    }
}

impl From<SummaryRules> for RunSummaryRules {
    fn from(rules: SummaryRules) -> Self {
        Self((rules != SummaryRules::new(None)).then(|| Box::new(rules)))
    }
}

/// Maximum number of warnings that a conversation retains for its report.
pub(in crate::run) const MAX_WARNINGS: usize = 64;

/// Warning of a compression.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum SummaryWarning {
    /// A sentence of the summary is worded as an instruction.
    Instruction(String),
    /// The reply of the model reached its maximum length, so that it was not used.
    Truncated,
}

impl SummaryWarning {
    /// Returns the warning as events and reports contain it.
    pub(in crate::run) fn to_json(&self) -> Value {
        match self {
            Self::Instruction(text) => json!({
                "code": "SUMMARY_INSTRUCTION",
                "message": "a sentence of the summary is worded as an instruction; it is quoted as data",
                "text": text,
            }),
            Self::Truncated => json!({
                "code": "SUMMARY_TRUNCATED",
                "message": "the summary reached the maximum length of a reply and was rejected; the checklist replaces it",
            }),
        }
    }
}

/// Adds the warnings of summaries to COMPRESSION_COMPLETED.
pub(in crate::run) fn add_warnings(event: &mut RaisedEvent, warnings: &[SummaryWarning]) {
    if !warnings.is_empty() {
        let warnings = warnings.iter().map(SummaryWarning::to_json).collect();
        event.fields.set("warnings", Value::Array(warnings));
    }
}
