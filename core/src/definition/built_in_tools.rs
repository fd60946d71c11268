//! Tools that a run answers itself, from its own state: nothing outside is called, and nothing of the answer is journaled.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::WorkflowConfig;

/// A tool that a run answers itself. Its name is reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum BuiltInTool {
    /// `read_artifact {id, range? | grep?, from?}`: a part of a large result.
    ReadArtifact,
    /// `recall {query, from?}`: archived messages that have words of the query.
    Recall,
}

impl BuiltInTool {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::ReadArtifact, Self::Recall];

    /// The name that models and `tools` use.
    pub fn name(self) -> &'static str {
        match self {
            Self::ReadArtifact => "read_artifact",
            Self::Recall => "recall",
        }
    }

    /// The tool of this name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tool| tool.name() == name)
    }

    /// The setting in a workflow's `config` that offers it.
    pub fn setting(self) -> &'static str {
        match self {
            Self::ReadArtifact => "artifactTokens",
            Self::Recall => "recall",
        }
    }

    /// True where the workflow offers it.
    pub fn is_offered(self, config: &WorkflowConfig) -> bool {
        match self {
            Self::ReadArtifact => config.artifact_tokens.is_some(),
            Self::Recall => config.recall == Some(true),
        }
    }

    /// Its description, for the model.
    pub fn description(self) -> &'static str {
        match self {
            Self::ReadArtifact => {
                "Reads a part of a tool result of which only a preview is shown. `id` is the artifact's id in the preview. \
                 `range` gives characters from `start` up to `end`, `grep` the lines that contain a text (letter case is \
                 ignored, it is no pattern); without either it begins at the start. A long answer is a page, which says how \
                 to go on."
            }
            Self::Recall => {
                "Searches the earlier messages of this conversation that were compressed away, and gives those that contain \
                 most words of `query`. A long answer is a page, which says how to go on."
            }
        }
    }

    /// JSON Schema of its arguments.
    pub fn parameters(self) -> Value {
        let from = json!({"type": "integer", "minimum": 0, "description": "Matches to pass over: a page says it"});
        match self {
            Self::ReadArtifact => json!({
                "type": "object",
                "properties": {
                    "id": {"type": "string"},
                    "range": {
                        "type": "object",
                        "properties": {
                            "start": {"type": "integer", "minimum": 0},
                            "end": {"type": "integer", "minimum": 0},
                        },
                        "required": ["start"],
                        "additionalProperties": false,
                    },
                    "grep": {"type": "string", "minLength": 1},
                    "from": from,
                },
                "required": ["id"],
                "additionalProperties": false,
            }),
            Self::Recall => json!({
                "type": "object",
                "properties": {"query": {"type": "string", "minLength": 1}, "from": from},
                "required": ["query"],
                "additionalProperties": false,
            }),
        }
    }
}
