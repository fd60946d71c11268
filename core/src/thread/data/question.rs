//! Questions to people and to the client of a run, and their answers.

use std::sync::{Arc, LazyLock};

use pirn_definition::Millis;
use pirn_definition::value::{SchemaMismatch, TooDeep};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::effect::{EffectId, ToolResult};

/// An open question to a person.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Interaction {
    /// Unique id, for all runs: the thread's id and the number of the effect that awaits the answer.
    pub id: String,
    /// Id of the node.
    pub node_id: Arc<str>,
    /// Id of the thread.
    pub thread_id: Arc<str>,
    /// Question text.
    pub question: Arc<str>,
    /// Addressee.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub assignee: Option<Arc<str>>,
    /// JSON Schema of the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema: Option<Arc<Map<String, Value>>>,
    /// Possible answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub choices: Option<Arc<Vec<Value>>>,
    /// Time limit from the question on, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<Millis>,
    /// Tool call to approve. The answer is then a [`ConsentAnswer`](crate::thread::ConsentAnswer). `None` for the question of a
    /// USER_INTERACTION node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<Arc<ToolConsent>>,
    /// Tool call that the run's client executes. The answer is then its result: see [`ClientCall::read`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_tool: Option<Arc<ClientCall>>,
}

impl Interaction {
    /// Checks that the answer is one of `choices`, if there are any. The caller validates it against `schema`.
    ///
    /// # Errors
    /// [`InvalidAnswer::NotAChoice`].
    pub fn check_choice(&self, answer: &Value) -> Result<(), InvalidAnswer> {
        match &self.choices {
            Some(choices) if !choices.contains(answer) => {
                let choices: Vec<String> = choices.iter().map(Value::to_string).collect();
                let choices = choices.join(", ");
                Err(InvalidAnswer::NotAChoice { choices })
            }
            Some(_) | None => Ok(()),
        }
    }
}

/// Reason that an answer does not fit its question.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidAnswer {
    /// The answer is none of the question's choices.
    #[error("expected one of {choices}")]
    NotAChoice {
        /// The choices as JSON, separated by commas.
        choices: String,
    },
    /// The answer to the call of a client's tool is not the result of a tool.
    #[error("expected the result of the tool: {{\"output\": VALUE}} or {{\"error\": TEXT}}")]
    NotAResult,
    /// The answer to an approval request is no decision.
    #[error(
        "expected \"allow\", \"refuse\", {{\"decision\": \"allow\", \"arguments\"?: {{...}}}} or {{\"decision\": \"refuse\", \
         \"reason\"?: TEXT}}"
    )]
    NotADecision,
    /// The answer is nested too deeply to be recorded.
    #[error(transparent)]
    TooDeep(#[from] TooDeep),
    /// The answer does not fit the schema of the question, or changed arguments that of the tool.
    #[error(transparent)]
    Schema(#[from] SchemaMismatch),
}

/// Tool call to approve.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolConsent {
    /// Name of the tool.
    pub name: String,
    /// Arguments of the call.
    pub arguments: Value,
    /// Id that the model gave the call.
    pub tool_call_id: String,
    /// Reason that approval is needed.
    pub reason: String,
    /// JSON Schema of the arguments.
    pub schema: Value,
}

/// Tool call that the run's client executes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClientCall {
    /// Name of the tool.
    pub name: String,
    /// Arguments of the call.
    pub arguments: Value,
    /// Id that the model gave the call.
    pub tool_call_id: String,
}

/// JSON form of a client's answer.
#[derive(Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
enum WrittenResult {
    Output(Value),
    Error(String),
}

impl ClientCall {
    /// Parses the client's answer to a call: `{"output": VALUE}` or `{"error": TEXT}`. The model receives text as it is, and any other
    /// value as JSON.
    ///
    /// # Errors
    /// [`InvalidAnswer::NotAResult`].
    pub fn read(answer: &Value) -> Result<ToolResult, InvalidAnswer> {
        match WrittenResult::deserialize(answer) {
            Ok(WrittenResult::Output(Value::String(content))) => Ok(ToolResult {
                content,
                ..ToolResult::default()
            }),
            Ok(WrittenResult::Output(value)) => Ok(ToolResult {
                content: value.to_string(),
                ..ToolResult::default()
            }),
            Ok(WrittenResult::Error(text)) => Ok(ToolResult::failed(text)),
            Err(_) => Err(InvalidAnswer::NotAResult),
        }
    }

    /// Returns the JSON Schema of the input of [`Self::read`].
    pub fn schema() -> Arc<Map<String, Value>> {
        // Built once: `interactions` returns it for each open call at each query.
        static SCHEMA: LazyLock<Arc<Map<String, Value>>> = LazyLock::new(|| {
            let written = |field: &str, schema: Value| json!({"type": "object", "required": [field], "additionalProperties": false, "properties": {field: schema}});
            let any_of = json!([
                written("output", json!({})),
                written("error", json!({"type": "string"}))
            ]);
            Arc::new(Map::from_iter([("anyOf".to_owned(), any_of)]))
        });
        Arc::clone(&SCHEMA)
    }
}

/// Answer of a person to an approval request.
#[derive(Clone, Debug, PartialEq)]
pub enum ConsentAnswer {
    /// Approved, with changed arguments if there are any.
    Allow(Option<Value>),
    /// Refused, with a reason.
    Refuse(String),
}

/// JSON form of an answer that needs more than one word.
#[derive(Deserialize)]
#[serde(tag = "decision", rename_all = "lowercase", deny_unknown_fields)]
enum Written {
    Allow { arguments: Option<Value> },
    Refuse { reason: Option<String> },
}

impl ConsentAnswer {
    /// Parses an answer: `"allow"`, `"refuse"`, `{"decision": "allow", "arguments"?}` or `{"decision": "refuse", "reason"?}`.
    ///
    /// # Errors
    /// [`InvalidAnswer::NotADecision`].
    pub fn read(answer: &Value) -> Result<Self, InvalidAnswer> {
        // The model receives the reason, so that a refusal always has one.
        let unsaid = || "a person refused it".to_owned();
        match answer.as_str() {
            Some("allow") => return Ok(Self::Allow(None)),
            Some("refuse") => return Ok(Self::Refuse(unsaid())),
            // Other strings fall through to the error with all accepted forms.
            Some(_) | None => {}
        }
        match Written::deserialize(answer) {
            Ok(Written::Allow { arguments }) => Ok(Self::Allow(arguments)),
            Ok(Written::Refuse { reason }) => Ok(Self::Refuse(reason.unwrap_or_else(unsaid))),
            Err(_) => Err(InvalidAnswer::NotADecision),
        }
    }

    /// Returns the JSON Schema of the input of [`Self::read`].
    pub fn schema() -> Arc<Map<String, Value>> {
        // Built once: `interactions` returns it for each open approval at each query.
        static SCHEMA: LazyLock<Arc<Map<String, Value>>> = LazyLock::new(|| {
            let written = |decision: &str, field: &str, kind: &str| {
                json!({
                    "type": "object", "required": ["decision"], "additionalProperties": false,
                    "properties": {"decision": {"enum": [decision]}, field: {"type": kind}},
                })
            };
            let any_of = json!([
                {"enum": ["allow", "refuse"]},
                written("allow", "arguments", "object"),
                written("refuse", "reason", "string"),
            ]);
            Arc::new(Map::from_iter([("anyOf".to_owned(), any_of)]))
        });
        Arc::clone(&SCHEMA)
    }
}

/// Effects of an open question.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(in crate::thread) struct OpenQuestion {
    /// Effect that awaits the answer.
    pub(in crate::thread) id: EffectId,
    /// Timer of the time limit.
    pub(in crate::thread) timer: Option<EffectId>,
}

impl OpenQuestion {
    /// Returns true if the question waits for this effect.
    pub(in crate::thread) fn awaits(self, effect: EffectId) -> bool {
        self.id == effect || self.timer == Some(effect)
    }
}

/// State of a call that needs approval.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::thread) enum Consent {
    /// The question is open.
    Asked {
        question: OpenQuestion,
        tool: Arc<ToolConsent>,
        timeout_ms: Option<Millis>,
    },
    /// The call executes, with changed arguments if a person changed them.
    Allowed { id: EffectId, edited: Option<Value> },
    /// The run's client executes the call.
    Client {
        question: OpenQuestion,
        call: Arc<ClientCall>,
    },
}

impl Consent {
    /// Returns true if the call waits for this effect.
    pub(in crate::thread) fn awaits(&self, effect: EffectId) -> bool {
        match self {
            Self::Asked { question, .. } | Self::Client { question, .. } => question.awaits(effect),
            Self::Allowed { id, .. } => *id == effect,
        }
    }
}
