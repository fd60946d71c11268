//! Conversion of questions to AG-UI interrupts, and of their answers back.
//!
//! | question | interrupt | answer |
//! |---|---|---|
//! | of a USER_INTERACTION node | `input_required`, its schema or choices | `payload`; `cancelled` cancels the run |
//! | consent to a tool call | `tool_call`, `{approved, editedArgs?, reason?}` | allow or refuse; `cancelled` refuses |
//!
//! `expiresAt` is the end of a question's time limit.

use std::fmt;

use chrono::{DateTime, SecondsFormat};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use crate::runs::events::position::Position;
use pirn::{Interaction, ToolConsent};

/// Id of an interrupt: the question's id, and the position of the last event that was sent before the stream ended.
pub(in super::super) struct InterruptId<'a> {
    pub(in super::super) interaction: &'a str,
    pub(in super::super) after: Position,
}

impl<'a> InterruptId<'a> {
    pub(in super::super) fn read(id: &'a str) -> Option<Self> {
        let (interaction, after) = id.rsplit_once('@')?;
        let after = after.parse().ok()?;
        Some(Self { interaction, after })
    }
}

impl fmt::Display for InterruptId<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.interaction, self.after)
    }
}

/// Converts a question to an interrupt; `put_at` is the question's time in milliseconds since the Unix epoch.
pub(super) fn interrupt(asked: &Interaction, after: Position, put_at: Option<u64>) -> Value {
    let id = InterruptId {
        interaction: &asked.id,
        after,
    };
    let mut interrupt = json!({
        "id": id.to_string(),
        "message": asked.question,
        "metadata": {"pirn": {
            "interactionId": asked.id, "nodeId": asked.node_id, "threadId": asked.thread_id,
            "assignee": asked.assignee, "choices": asked.choices, "timeoutMs": asked.timeout_ms,
        }},
    });
    if let Some(at) = put_at.and_then(|put_at| expiry(put_at, asked.timeout_ms?)) {
        interrupt["expiresAt"] = json!(at);
    }
    if let Some(tool) = &asked.tool {
        interrupt["reason"] = json!("tool_call");
        interrupt["toolCallId"] = json!(tool.tool_call_id);
        interrupt["responseSchema"] = approval(tool);
    } else {
        interrupt["reason"] = json!("input_required");
        let choices = asked.choices.as_ref().map(|choices| json!({"enum": choices}));
        let schema = choices.or_else(|| Some(json!(asked.schema.as_ref()?)));
        if let Some(schema) = schema {
            interrupt["responseSchema"] = schema;
        }
    }
    interrupt
}

/// Returns the end of a time limit in ISO 8601.
fn expiry(put_at: u64, timeout_ms: u64) -> Option<String> {
    let at = i64::try_from(put_at.checked_add(timeout_ms)?).ok()?;
    let at = DateTime::from_timestamp_millis(at)?;
    Some(at.to_rfc3339_opts(SecondsFormat::Millis, true))
}

fn approval(tool: &ToolConsent) -> Value {
    json!({
        "type": "object",
        "required": ["approved"],
        "properties": {"approved": {"type": "boolean"}, "editedArgs": tool.schema, "reason": {"type": "string"}},
    })
}

/// The client's answer to an interrupt, part of the next input.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Resume {
    /// The interrupt.
    pub(in super::super) interrupt_id: String,
    status: ResumeStatus,
    /// The person's answer.
    #[serde(default)]
    payload: Value,
}

#[derive(Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum ResumeStatus {
    /// The person has answered.
    Resolved,
    /// The person declined to answer.
    Cancelled,
}

impl Resume {
    /// Returns the answer to a question; `None` if the person declined and the question has no answer for that.
    pub(in super::super) fn answer(&self, about_tool: bool) -> Option<Value> {
        match (self.status, about_tool) {
            (ResumeStatus::Resolved, true) => Some(consent(&self.payload)),
            (ResumeStatus::Resolved, false) => Some(self.payload.clone()),
            (ResumeStatus::Cancelled, true) => Some(json!("refuse")),
            (ResumeStatus::Cancelled, false) => None,
        }
    }
}

/// Converts `{approved, editedArgs?, reason?}` to an answer about a tool call; any other value is returned unchanged.
fn consent(payload: &Value) -> Value {
    let Some(is_approved) = payload["approved"].as_bool() else {
        return payload.clone();
    };
    let (decision, from, to) = if is_approved {
        ("allow", "editedArgs", "arguments")
    } else {
        ("refuse", "reason", "reason")
    };
    let mut answer = json!({"decision": decision});
    if let Some(value) = payload.get(from) {
        answer[to] = value.clone();
    }
    answer
}
