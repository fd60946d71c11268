//! Records of a thread and its nodes that reports contain.

use pirn_conversation::model_call::FinishReason;
use pirn_definition::graph::NodeIx;
use serde::{Deserialize, Serialize};

/// Kind of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ThreadKind {
    /// The main thread of the run.
    Main,
    /// A path of a FORK.
    Branch,
    /// Started by a SUBGRAPH node.
    Subgraph,
    /// Started by a trigger.
    Triggered,
}

impl ThreadKind {
    /// Returns the lower-case name in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Main => "main",
            Self::Branch => "branch",
            Self::Subgraph => "subgraph",
            Self::Triggered => "triggered",
        }
    }
}

/// An entered node, as shown in the JSON of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRecord {
    /// Index of the node.
    pub node: NodeIx,
    /// Status of the node.
    pub status: NodeStatus,
    /// Number of attempts.
    pub attempts: u32,
    /// Reason that the last reply of an LLM node's model ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finish_reason: Option<FinishReason>,
}

/// The status of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum NodeStatus {
    /// Entered, not ended.
    Running,
    /// Completed.
    Completed,
    /// Every attempt failed.
    Failed,
    /// The thread was cancelled in this node.
    Cancelled,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_thread_kind_equals_its_json_form() {
        for kind in [
            ThreadKind::Main,
            ThreadKind::Branch,
            ThreadKind::Subgraph,
            ThreadKind::Triggered,
        ] {
            assert_eq!(serde_json::json!(kind), kind.as_str());
        }
    }
}
