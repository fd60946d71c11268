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
