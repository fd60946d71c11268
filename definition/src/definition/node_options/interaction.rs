//! USER_INTERACTION.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// USER_INTERACTION: asks a person a question and waits for the answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UserInteractionConfig {
    /// Template of the question.
    pub question: String,
    /// JSON Schema of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<Map<String, Value>>,
    /// The answers to choose from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub choices: Option<Vec<Value>>,
    /// Template of the question's addressee.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assignee: Option<String>,
    /// Thread variable that receives the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assign_to: Option<String>,
    /// Time limit in milliseconds; 0 or absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// Policy if the question is not answered in time (default `fail`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_timeout: Option<OnTimeout>,
    /// The answer used by `onTimeout: "default"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<Value>,
}

/// Policy for a question that was not answered in time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged, expecting = "expected `fail`, `default` or `{\"targetNodeId\": NODE}`")]
pub enum OnTimeout {
    /// A policy without a target.
    Word(TimeoutWord),
    /// The thread continues at this node.
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

/// The node where a thread continues after a question that was not answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TimeoutTarget {
    /// The node's id.
    pub target_node_id: String,
}

impl UserInteractionConfig {
    /// Returns the target node of a timeout.
    pub fn timeout_target(&self) -> Option<&str> {
        match &self.on_timeout {
            Some(OnTimeout::Target(target)) => Some(&target.target_node_id),
            Some(OnTimeout::Word(_)) | None => None,
        }
    }
}
