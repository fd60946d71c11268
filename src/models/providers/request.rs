//! A [`ModelRequest`] in the provider's words.

use genai::chat::{ChatMessage, ChatRequest, ContentPart, MessageContent, Tool, ToolCall, ToolResponse};
use pirn_actors::ports::ToolSpec;
use pirn_core::conversation::ModelRequest;
use pirn_core::message::{Message, Role};
use serde_json::{Map, Value};

use super::reasoning::{self, Recalled, Speaker};

/// The request to send. Messages keep their order; results that stand together go together where the protocol has it so.
pub(super) fn chat_request(speaker: Speaker<'_>, request: &ModelRequest, tools: &[ToolSpec]) -> ChatRequest {
    let turn = reasoning::turn_start(request);
    let mut messages = Vec::with_capacity(request.messages.len());
    let mut calls: Vec<&pirn_core::message::ToolCall> = Vec::new();
    let mut results: Vec<ToolResponse> = Vec::new();
    for (place, message) in request.messages.iter().enumerate() {
        if message.role == Role::Tool {
            results.push(tool_response(message, &calls));
            if !speaker.protocol.groups_results() {
                messages.push(ChatMessage::from(std::mem::take(&mut results)));
            }
            continue;
        }
        if !results.is_empty() {
            messages.push(ChatMessage::from(std::mem::take(&mut results)));
        }
        calls.clear();
        match message.role {
            Role::System => messages.push(ChatMessage::system(message.content.as_str())),
            Role::User => messages.push(ChatMessage::user(message.content.as_str())),
            Role::Assistant => {
                calls.extend(&message.tool_calls);
                let recalled = if place < turn {
                    Recalled::default()
                } else {
                    Recalled::of(message, speaker)
                };
                messages.extend(assistant(message, recalled));
            }
            Role::Tool => {}
        }
    }
    if !results.is_empty() {
        messages.push(ChatMessage::from(results));
    }
    let request = ChatRequest::new(messages);
    if tools.is_empty() {
        request
    } else {
        request.with_tools(tools.iter().map(tool))
    }
}

fn tool(spec: &ToolSpec) -> Tool {
    Tool::new(spec.name.as_str())
        .with_description(spec.description.as_str())
        .with_schema(spec.parameters.clone())
}

/// An assistant's message that says and asks for nothing is left out: providers refuse it.
fn assistant(message: &Message, mut recalled: Recalled) -> Option<ChatMessage> {
    if message.content.is_empty() && message.tool_calls.is_empty() {
        return None;
    }
    let mut parts = std::mem::take(&mut recalled.parts);
    if !message.content.is_empty() {
        parts.push(ContentPart::Text(message.content.clone()));
    }
    parts.extend(message.tool_calls.iter().map(|call| {
        ContentPart::ToolCall(ToolCall {
            call_id: call.id.clone(),
            fn_name: call.name.clone(),
            fn_arguments: arguments(&call.arguments),
            thought_signatures: recalled.signatures_of(&call.id),
        })
    }));
    Some(ChatMessage::assistant(MessageContent::from_parts(parts)))
}

/// Arguments as every protocol has them: an object. A model that once wrote something else must not make every later
/// request of the conversation one that the provider refuses.
fn arguments(written: &Value) -> Value {
    match written {
        Value::Object(_) => written.clone(),
        Value::Null => Value::Object(Map::new()),
        Value::String(text) => match serde_json::from_str(text) {
            Ok(Value::Object(fields)) => Value::Object(fields),
            Ok(_) | Err(_) => as_written(written),
        },
        Value::Bool(_) | Value::Number(_) | Value::Array(_) => as_written(written),
    }
}

fn as_written(written: &Value) -> Value {
    Value::Object(Map::from_iter([("asWritten".to_owned(), written.clone())]))
}

fn tool_response(message: &Message, calls: &[&pirn_core::message::ToolCall]) -> ToolResponse {
    let id = message.tool_call_id.clone().unwrap_or_default();
    let called = calls.iter().find(|call| call.id == id);
    ToolResponse {
        fn_name: called.map(|call| call.name.clone()),
        call_id: id,
        content: message.content.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn arguments_are_always_an_object() {
        for (written, sent) in [
            (json!({"a": 1}), json!({"a": 1})),
            (json!(null), json!({})),
            (json!("{\"a\": 1}"), json!({"a": 1})),
            (json!("{\"a\": "), json!({"asWritten": "{\"a\": "})),
            (json!([1]), json!({"asWritten": [1]})),
        ] {
            assert_eq!(arguments(&written), sent);
        }
    }
}
