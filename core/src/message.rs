//! One message of a conversation.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::value::{Output, levels};

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Instructions that stand first.
    System,
    /// The person, or the workflow speaking for them.
    User,
    /// The model.
    Assistant,
    /// The result of a tool call.
    Tool,
}

impl Role {
    /// The lower-case word used in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::System => "system",
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::Tool => "tool",
        }
    }
}

/// One tool call asked for by the model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ToolCall {
    /// Ties the call to its result.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// Arguments, as the tool's schema has them.
    #[serde(default)]
    pub arguments: Value,
}

/// One message. Histories share messages; nothing changes one after it was appended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Message {
    /// Optional id, carried through unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Who speaks.
    pub role: Role,
    /// The text. `null` is read as empty (providers send it beside tool calls).
    #[serde(default, deserialize_with = "null_is_empty")]
    pub content: String,
    /// Calls an assistant message asks for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    /// The call a tool message answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// Left out of a main agent's requests.
    #[serde(default, skip_serializing_if = "is_false")]
    pub sub_agent_internal: bool,
    /// Anything the user attaches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Map<String, Value>>,
}

impl Message {
    /// A message of `role` with nothing but text: `Message::new(Role::User, "hi")`.
    pub fn new(role: Role, content: impl Into<String>) -> Self {
        Self {
            id: None,
            role,
            content: content.into(),
            tool_calls: Vec::new(),
            tool_call_id: None,
            sub_agent_internal: false,
            metadata: None,
        }
    }

    /// The result of the tool call `call_id`.
    pub fn tool_result(call_id: impl Into<String>, content: impl Into<String>) -> Self {
        Self {
            tool_call_id: Some(call_id.into()),
            ..Self::new(Role::Tool, content)
        }
    }

    /// As JSON, made when somebody looks.
    pub fn shown_later(self: &Arc<Self>) -> Output {
        let arguments = self.tool_calls.iter().map(|call| 3 + levels(&call.arguments));
        let metadata = self
            .metadata
            .iter()
            .flat_map(Map::values)
            .map(|value| 2 + levels(value));
        let levels = arguments.chain(metadata).max().unwrap_or(2);
        let message = Arc::clone(self);
        Output::later(levels, move || json!(*message))
    }

    /// Whether this is an assistant message that asks for tools.
    pub fn asks_for_tools(&self) -> bool {
        self.role == Role::Assistant && !self.tool_calls.is_empty()
    }
}

impl AsRef<Message> for Message {
    fn as_ref(&self) -> &Message {
        self
    }
}

fn null_is_empty<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Ok(Option::<String>::deserialize(deserializer)?.unwrap_or_default())
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde's signature
fn is_false(flag: &bool) -> bool {
    !flag
}
