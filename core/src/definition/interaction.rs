//! USER_INTERACTION.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// USER_INTERACTION: asks a person and waits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UserInteractionConfig {
    /// Template.
    pub question: String,
    /// JSON Schema of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<Map<String, Value>>,
    /// The answers to choose from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub choices: Option<Vec<Value>>,
    /// Template: whom it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assignee: Option<String>,
    /// The thread variable that takes the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assign_to: Option<String>,
    /// Time to wait, milliseconds; 0 or absent: for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// The policy where nobody has answered by then (default `fail`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_timeout: Option<OnTimeout>,
    /// The answer that `onTimeout: "default"` stands for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<Value>,
}

/// The policy where a question was not answered in time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum OnTimeout {
    /// A word.
    Word(TimeoutWord),
    /// The thread goes on there.
    Target(TimeoutTarget),
}

/// `fail` or `default`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum TimeoutWord {
    /// The node fails with `NODE_TIMEOUT`.
    Fail,
    /// The node ends with its `default`.
    Default,
}

/// The node a thread goes to after a question that nobody answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TimeoutTarget {
    /// The node to go to.
    pub target_node_id: String,
}

impl UserInteractionConfig {
    /// The node that a timeout leads to.
    pub fn timeout_target(&self) -> Option<&str> {
        match &self.on_timeout {
            Some(OnTimeout::Target(target)) => Some(&target.target_node_id),
            Some(OnTimeout::Word(_)) | None => None,
        }
    }
}
