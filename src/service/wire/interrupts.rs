//! The table question to AG-UI interrupt, and the way back.
//!
//! | question | interrupt | answer |
//! |---|---|---|
//! | of a USER_INTERACTION node | `input_required`, its schema or choices | `payload`; `cancelled` cancels the run |
//! | consent to a tool call | `tool_call`, `{approved, editedArgs?, reason?}` | allow or refuse; `cancelled` refuses |

use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use crate::{Interaction, ToolConsent};

/// An interrupt's id: the question's, and the sequence of the last event that was told before the stream ended.
pub(in super::super) struct InterruptId<'a> {
    pub(in super::super) interaction: &'a str,
    pub(in super::super) after: u64,
}

impl<'a> InterruptId<'a> {
    pub(in super::super) fn read(id: &'a str) -> Option<Self> {
        let (interaction, after) = id.rsplit_once('@')?;
        let after = after.parse().ok()?;
        Some(Self { interaction, after })
    }
}

/// A question as an interrupt.
pub(super) fn interrupt(asked: &Interaction, after: u64) -> Value {
    let mut interrupt = json!({
        "id": format!("{}@{after}", asked.id),
        "message": asked.question,
        "metadata": {"pirn": {
            "interactionId": asked.id, "nodeId": asked.node_id, "threadId": asked.thread_id,
            "assignee": asked.assignee, "choices": asked.choices, "timeoutMs": asked.timeout_ms,
        }},
    });
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

fn approval(tool: &ToolConsent) -> Value {
    json!({
        "type": "object",
        "required": ["approved"],
        "properties": {"approved": {"type": "boolean"}, "editedArgs": tool.schema, "reason": {"type": "string"}},
    })
}

/// The end of an interrupt, as the next input says it.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Resume {
    /// The interrupt.
    pub(in super::super) interrupt_id: String,
    status: ResumeStatus,
    /// The person's answer.
    #[serde(default)]
    #[schema(value_type = Object)]
    payload: Value,
}

#[derive(Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum ResumeStatus {
    /// The person has answered.
    Resolved,
    /// The person gave up.
    Cancelled,
}

impl Resume {
    /// The answer to a question; none: the person gives up, and there is no answer that says so.
    pub(in super::super) fn answer(&self, about_tool: bool) -> Option<Value> {
        match (self.status, about_tool) {
            (ResumeStatus::Resolved, true) => Some(consent(&self.payload)),
            (ResumeStatus::Resolved, false) => Some(self.payload.clone()),
            (ResumeStatus::Cancelled, true) => Some(json!("refuse")),
            (ResumeStatus::Cancelled, false) => None,
        }
    }
}

/// `{approved, editedArgs?, reason?}` as an answer about a tool call; what is not that is left as it is.
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
