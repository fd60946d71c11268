//! Selections, context operations, pinned context, compression settings: the data; what they do is in
//! [`crate::conversation`].

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum HistorySelection {
    /// `true`: all visible messages; `false`: none, the key is not passed.
    All(bool),
    /// A selection.
    Some(ConversationHistoryOptions),
}

/// A role and how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RoleCount {
    /// The role.
    pub role: Role,
    /// How many; positive.
    pub count: u64,
}

/// A half-open range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct HistoryRange {
    /// First index.
    pub start: u64,
    /// One past the last; above `start`.
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
    /// One past the last; above `start`.
    pub end: u64,
}

/// A template's text.
pub type Text = String;

/// A message whose content is a template.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct TextMessage {
    /// The speaker.
    pub role: Role,
    /// Template.
    pub content: Text,
}

/// The operation of a CONTEXT_PROCESSOR. In JSON: `{operation: "insert", ...its fields}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "operation", rename_all = "lowercase")]
pub enum ContextOperation {
    /// Adds messages.
    Insert(InsertContext),
    /// Puts messages in the place of others.
    Replace(ReplaceContext),
    /// Keeps or removes from an end.
    Truncate(TruncateContext),
    /// Removes all.
    Clear(ClearContext),
    /// Keeps what matches.
    Filter(FilterContext),
    /// Compresses by a built-in strategy.
    Compress(CompressionConfig),
    /// Sets a section of the pinned context.
    Pin(PinContext),
}

/// `clear {keepSystem? = true}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClearContext {
    /// Whether system messages stay.
    #[serde(default = "yes")]
    pub keep_system: bool,
}

fn yes() -> bool {
    true
}

/// `insert {messages[], position? = -1}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InsertContext {
    /// The messages to add.
    pub messages: Vec<TextMessage>,
    /// Index among the visible messages; negative counts from the end, -1 is the end.
    #[serde(default = "at_end")]
    pub position: i64,
}

fn at_end() -> i64 {
    -1
}

/// `replace {target, replacement, role? = "user"}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReplaceContext {
    /// The messages to replace.
    pub target: Target,
    /// The messages put in their place.
    pub replacement: Replacement,
    /// Role of a replacement that is text.
    #[serde(default = "user")]
    pub role: Role,
}

fn user() -> Role {
    Role::User
}

/// `"all"` or a selection.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum Target {
    /// The word `all`: every visible message but the system ones.
    Word(AllWord),
    /// A selection.
    Selection(ConversationHistoryOptions),
}

/// The word `all`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum AllWord {
    /// All.
    All,
}

/// Text, or messages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum Replacement {
    /// One message's template.
    Text(Text),
    /// Messages.
    Messages(Vec<TextMessage>),
}

/// `truncate {keepFirst|keepLast|removeFirst|removeLast|range, role?}`: exactly one of the first five; with `role`
/// it counts, and keeps, only that role's messages.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TruncateContext {
    /// Keep the first n.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_first: Option<u64>,
    /// Keep the last n.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_last: Option<u64>,
    /// Remove the first n.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remove_first: Option<u64>,
    /// Remove the last n.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remove_last: Option<u64>,
    /// Keep these, half-open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<HistoryRange>,
    /// Only this role's messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
}

/// `filter {roles?, contentContains?, contentExcludes?}`: what meets all that is given stays.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FilterContext {
    /// One of these roles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub roles: Option<Vec<Role>>,
    /// Contains one of these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_contains: Option<Vec<String>>,
    /// Contains none of these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_excludes: Option<Vec<String>>,
}

/// A compression strategy and its parameters. No strategy: no-op.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CompressionConfig {
    /// `keep_recent`, `keep_system_recent`, `sliding_window`, `summarize`; anything else is a no-op.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<String>,
    /// The strategy's parameters.
    #[serde(default)]
    pub parameters: Map<String, Value>,
}

/// `pin {section, value}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PinContext {
    /// The section.
    pub section: PinSection,
    /// Its new value: text (a template) or the section's structured form; `null` removes it.
    pub value: Value,
}

/// The sections of the pinned context, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum PinSection {
    /// Role definition.
    Role,
    /// TODO list.
    Todo,
    /// Useful information.
    UsefulInfo,
    /// Folder notes.
    FolderNotes,
}

/// Pinned context: absent sections are skipped.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Pinned {
    /// Role definition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// TODO list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub todo: Option<PinnedText<Vec<TodoItem>>>,
    /// Useful information.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub useful_info: Option<PinnedText<Vec<UsefulInfo>>>,
    /// Folder notes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder_notes: Option<PinnedText<FolderNotes>>,
}

/// Text taken as it is, or a structured form.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum PinnedText<T> {
    /// Taken as it is.
    Text(String),
    /// Rendered.
    Structured(T),
}

/// A TODO.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TodoItem {
    /// The task.
    pub content: String,
    /// How far it is.
    #[serde(default)]
    pub status: TodoStatus,
}

/// How far a TODO is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum TodoStatus {
    /// Not begun.
    #[default]
    #[serde(alias = "todo", alias = "open")]
    Pending,
    /// Begun.
    #[serde(alias = "inProgress", alias = "doing")]
    InProgress,
    /// Done.
    #[serde(alias = "done")]
    Completed,
}

/// A useful fact.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UsefulInfo {
    /// Where it is from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Lines there, as `"10-20"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lines: Option<String>,
    /// The fact.
    pub text: String,
}

/// Notes by folder.
pub type FolderNotes = BTreeMap<String, Vec<String>>;
