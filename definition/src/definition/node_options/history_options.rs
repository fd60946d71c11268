//! Selections of messages.

use serde::{Deserialize, Serialize};

use crate::message::Role;

/// A selection of messages. Several options: the first in field order wins.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ConversationHistoryOptions {
    /// The last N visible messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_n: Option<u64>,
    /// The last `count` visible messages of a role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_n_by_role: Option<RoleCount>,
    /// Every visible message of a role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_role: Option<Role>,
    /// Half-open indices into the complete history; archived messages are dropped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<HistoryRange>,
    /// Half-open indices among the visible messages of a role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range_by_role: Option<RoleRange>,
}

/// Warning about redundant options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectionWarning {
    /// Option that is used.
    pub used: &'static str,
    /// Ignored options, in order.
    pub ignored: Vec<&'static str>,
}

/// Reason why options are invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SelectionFault {
    /// JSON pointer to the field, inside the options.
    pub pointer: &'static str,
    /// Description of the fault.
    pub message: &'static str,
}

impl ConversationHistoryOptions {
    /// Checks options: at least one given, counts positive, ranges not empty. Several are a warning: the first
    /// in the order `lastN`, `lastNByRole`, `byRole`, `range`, `rangeByRole` wins.
    ///
    /// # Errors
    /// The first fault, with a pointer to the field.
    pub fn check(&self) -> Result<Option<SelectionWarning>, SelectionFault> {
        let invalid = |pointer, message| Err(SelectionFault { pointer, message });
        if self.last_n == Some(0) {
            return invalid("/lastN", "lastN must be a positive integer");
        }
        if self.last_n_by_role.is_some_and(|last| last.count == 0) {
            return invalid("/lastNByRole/count", "count must be a positive integer");
        }
        // Ignored options are checked too: a mistake in them should not appear when another is removed.
        if self.range.is_some_and(|range| range.start >= range.end) {
            return invalid("/range", "start must be below end");
        }
        if self.range_by_role.is_some_and(|range| range.start >= range.end) {
            return invalid("/rangeByRole", "start must be below end");
        }
        let given = [
            ("lastN", self.last_n.is_some()),
            ("lastNByRole", self.last_n_by_role.is_some()),
            ("byRole", self.by_role.is_some()),
            ("range", self.range.is_some()),
            ("rangeByRole", self.range_by_role.is_some()),
        ];
        let mut given = given
            .into_iter()
            .filter(|(_, is_given)| *is_given)
            .map(|(name, _)| name);
        let Some(used) = given.next() else {
            return invalid(
                "",
                "at least one of lastN, lastNByRole, byRole, range, rangeByRole is needed",
            );
        };
        // The rest of the iterator, after the first was taken.
        let ignored: Vec<&'static str> = given.collect();
        Ok((!ignored.is_empty()).then_some(SelectionWarning { used, ignored }))
    }
}

/// `true`, `false`, or a selection.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum HistorySelection {
    /// `true`: all visible messages; `false`: none, the key is not passed.
    All(bool),
    /// A selection.
    Some(ConversationHistoryOptions),
}

/// A role and a number of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RoleCount {
    /// The role.
    pub role: Role,
    /// The number of messages; positive.
    pub count: u64,
}

/// A half-open range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct HistoryRange {
    /// First index.
    pub start: u64,
    /// Index after the last message; greater than `start`.
    pub end: u64,
}

/// A half-open range among one role's messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RoleRange {
    /// The role.
    pub role: Role,
    /// First index.
    pub start: u64,
    /// Index after the last message; greater than `start`.
    pub end: u64,
}
