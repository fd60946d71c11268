//! Operations of CONTEXT_PROCESSOR; `pirn_conversation::conversation` implements them.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::definition::{ConversationHistoryOptions, HistoryRange, PinSection};
use crate::message::Role;

/// Source of a template.
pub type Text = String;

/// A message with a template as its content.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct TextMessage {
    /// Role of the speaker.
    pub role: Role,
    /// Template of the content.
    pub content: Text,
    /// True to retain the message in every compression.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pin: bool,
}

/// The operation of a CONTEXT_PROCESSOR. In JSON: `{operation: "insert", ...its fields}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "operation", rename_all = "lowercase")]
pub enum ContextOperation {
    /// Adds messages.
    Insert(InsertContext),
    /// Replaces messages by others.
    Replace(ReplaceContext),
    /// Retains or removes messages at one end.
    Truncate(TruncateContext),
    /// Removes all messages.
    Clear(ClearContext),
    /// Retains the messages that match.
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
    /// True to retain system messages.
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
    /// The replacement.
    pub replacement: Replacement,
    /// Role of a replacement that is text.
    #[serde(default = "user")]
    pub role: Role,
}

fn user() -> Role {
    Role::User
}

/// `"all"` or a selection.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum Target {
    /// The word `all`: every visible message but the system ones.
    Word(AllWord),
    /// A selection of messages.
    Selection(ConversationHistoryOptions),
}

/// The word `all`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum AllWord {
    /// The word `all`.
    All,
}

/// Text, or messages.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum Replacement {
    /// Template of a single message.
    Text(Text),
    /// List of messages.
    Messages(Vec<TextMessage>),
}

/// `truncate {keepFirst|keepLast|removeFirst|removeLast|range, role?}`: exactly one of the first five; with `role` it counts, and
/// retains, only that role's messages.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TruncateContext {
    /// Retain the first n.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_first: Option<u64>,
    /// Retain the last n.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_last: Option<u64>,
    /// Remove the first n.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remove_first: Option<u64>,
    /// Remove the last n.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remove_last: Option<u64>,
    /// Retain this half-open range.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<HistoryRange>,
    /// Restricts the operation to messages of this role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
}

/// `filter {roles?, contentContains?, contentExcludes?}`: a message is retained if it meets every given condition.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FilterContext {
    /// Roles of which a retained message has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub roles: Option<Vec<Role>>,
    /// Strings of which a retained message contains one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_contains: Option<Vec<String>>,
    /// Strings of which a retained message contains none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_excludes: Option<Vec<String>>,
}

/// `pin {section, value}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PinContext {
    /// The section.
    pub section: PinSection,
    /// New value of the section: text (a template) or the structured form; `null` removes the section.
    pub value: Value,
}

/// A compression strategy and its parameters. No strategy: no-op.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CompressionConfig {
    /// `keep_recent`, `keep_system_recent`, `sliding_window`, `summarize`, `checklist`, `clear_tool_results`; anything else is a no-op.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<String>,
    /// The strategy's parameters.
    #[serde(default)]
    pub parameters: Map<String, Value>,
    /// For `config.compression` only: the share of the token limit (above 0, below 1) at which a speculative compression starts
    /// in the background.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speculative_at: Option<f64>,
}

impl CompressionConfig {
    /// Returns the config of a node in a workflow with this `config.compression`: if the node names no strategy, the workflow's
    /// strategy and parameters, overridden by the node's parameters.
    #[must_use]
    pub fn or_default(&self, default: Option<&Self>) -> Self {
        let mut config = self.clone();
        if let (None, Some(default)) = (&config.strategy, default) {
            config.strategy.clone_from(&default.strategy);
            let own = std::mem::replace(&mut config.parameters, default.parameters.clone());
            config.parameters.extend(own);
        }
        config
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_node_without_a_strategy_uses_the_strategy_of_its_workflow() {
        let config = |config: Value| serde_json::from_value::<CompressionConfig>(config).expect("a config");
        let default = config(json!({"strategy": "keep_recent", "parameters": {"count": 5, "keepFacts": 1}}));
        for (own, expected) in [
            (
                json!({}),
                json!({"strategy": "keep_recent", "parameters": {"count": 5, "keepFacts": 1}}),
            ),
            (
                json!({"parameters": {"count": 2}}),
                json!({"strategy": "keep_recent", "parameters": {"count": 2, "keepFacts": 1}}),
            ),
            (
                json!({"strategy": "summarize"}),
                json!({"strategy": "summarize", "parameters": {}}),
            ),
        ] {
            assert_eq!(
                config(own.clone()).or_default(Some(&default)),
                config(expected),
                "{own}"
            );
        }
        assert_eq!(config(json!({})).or_default(None), config(json!({})));
    }
}
