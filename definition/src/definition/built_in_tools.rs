//! Built-in tools: a run answers them from its own state, without an external call, and does not journal the answer.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::WorkflowConfig;

/// A built-in tool. Its name is reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum BuiltInTool {
    /// `read_artifact {id, range? | grep?, from?}`: returns a part of a large result.
    ReadArtifact,
    /// `recall {query, from?}`: searches archived messages for words of the query.
    Recall,
}

impl BuiltInTool {
    /// All built-in tools.
    pub const ALL: [Self; 2] = [Self::ReadArtifact, Self::Recall];

    /// Returns the name in model requests and in `tools`.
    pub fn name(self) -> &'static str {
        match self {
            Self::ReadArtifact => "read_artifact",
            Self::Recall => "recall",
        }
    }

    /// Returns the tool with this name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tool| tool.name() == name)
    }

    /// Returns the setting in a workflow's `config` that enables the tool.
    pub fn setting(self) -> &'static str {
        match self {
            Self::ReadArtifact => "artifactTokens",
            Self::Recall => "recall",
        }
    }

    /// True if the workflow enables the tool.
    pub fn is_offered(self, config: &WorkflowConfig) -> bool {
        match self {
            Self::ReadArtifact => config.artifact_tokens.is_some(),
            Self::Recall => config.recall == Some(true),
        }
    }

    /// Returns the description for the model.
    pub fn description(self) -> &'static str {
        match self {
            Self::ReadArtifact => {
                "Reads part of a tool result that is shown only as a preview. `id` is the artifact's id in the preview. `range` \
                 returns the characters from `start` up to `end`; `grep` returns the lines that contain a string (not a \
                 pattern; letter case is ignored). Without either, the text is read from its start. A long answer is split \
                 into pages; each page states the arguments of the next one."
            }
            Self::Recall => {
                "Searches earlier messages of this conversation that were removed by compression, and returns those that contain \
                 the most words of `query`. A long answer is split into pages; each page states the `from` of the next one."
            }
        }
    }

    /// Returns the JSON Schema of the arguments.
    pub fn parameters(self) -> Value {
        let from = json!({"type": "integer", "minimum": 0, "description": "Number of matches to skip, as stated by the previous page"});
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
