//! The `input` items of OpenAI's Responses.

use std::sync::Arc;

use pirn_definition::message::{Message, Part, Role};
use serde_json::{Value, json};

use super::openai::FROM_TOOLS;
use super::reasoning::Recalled;
use super::{arguments, data_of, is_web, pieces};

/// Writes messages as items. `recall` returns the reasoning items of an assistant message that are sent back to their model.
pub(crate) fn write<'a>(messages: &'a [Arc<Message>], recall: impl Fn(&'a Message) -> Recalled) -> Vec<Value> {
    let mut items: Vec<Value> = Vec::with_capacity(messages.len());
    let mut media: Vec<Value> = Vec::new();
    for message in messages {
        if message.role != Role::Tool && !media.is_empty() {
            items.push(user(std::mem::take(&mut media)));
        }
        match message.role {
            Role::System => items.push(json!({"role": "system", "content": message.content})),
            Role::User if message.parts.is_empty() => items.push(json!({"role": "user", "content": message.content})),
            Role::User => {
                items.push(json!({"role": "user", "content": pieces(message).iter().map(of_part).collect::<Vec<_>>()}));
            }
            Role::Assistant => {
                items.extend(recall(message).blocks());
                if !message.content.trim().is_empty() {
                    items.push(json!({"role": "assistant", "content": message.content}));
                }
                items.extend(message.tool_calls.iter().map(|call| {
                    let arguments = arguments(&call.arguments).to_string();
                    json!({"type": "function_call", "call_id": call.id, "name": call.name, "arguments": arguments})
                }));
            }
            Role::Tool => {
                let id = message.tool_call_id.as_deref().unwrap_or_default();
                items.push(json!({"type": "function_call_output", "call_id": id, "output": message.content}));
                let parts = message.parts.iter().filter(|part| part.as_text().is_none());
                media.extend(parts.map(of_part));
            }
        }
    }
    if !media.is_empty() {
        items.push(user(media));
    }
    items
}

fn user(mut media: Vec<Value>) -> Value {
    media.insert(0, json!({"type": "input_text", "text": FROM_TOOLS}));
    json!({"role": "user", "content": media})
}

fn of_part(part: &Part) -> Value {
    match part {
        Part::Text { text } => json!({"type": "input_text", "text": text}),
        Part::Image { url, detail, .. } => {
            json!({"type": "input_image", "image_url": url, "detail": detail.as_deref().unwrap_or("auto")})
        }
        Part::File { url, name, .. } if data_of(url).is_some() => {
            json!({"type": "input_file", "filename": name.as_deref().unwrap_or("file"), "file_data": url})
        }
        Part::File { url, .. } if is_web(url) => json!({"type": "input_file", "file_url": url}),
        Part::File { url, .. } => json!({"type": "input_file", "file_id": url}),
    }
}
