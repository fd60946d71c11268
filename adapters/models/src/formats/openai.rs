//! The messages of OpenAI's chat completions.

use std::sync::Arc;

use pirn_definition::message::{Message, Part, Role, ToolCall};
use serde_json::{Map, Value, json};

use super::reasoning::Recalled;
use super::{FormatError, arguments, data_of, is_web, media_type_of, messages_of, pieces, text_at};

/// Returns whether the message can only be of this format.
pub(super) fn is_its(message: &Value) -> bool {
    const FIELDS: [&str; 5] = ["tool_calls", "tool_call_id", "function_call", "refusal", "audio"];
    let is_part = |part: &Value| {
        let kind = part.get("type").and_then(Value::as_str);
        matches!(kind, Some("image_url" | "input_audio" | "refusal")) || part.get("file").is_some()
    };
    matches!(
        message.get("role").and_then(Value::as_str),
        Some("developer" | "function")
    ) || FIELDS.iter().any(|name| message.get(*name).is_some())
        || message
            .get("content")
            .and_then(Value::as_array)
            .is_some_and(|parts| parts.iter().any(is_part))
}

/// Writes messages. `recall` returns the reasoning of an assistant message that is sent back to its model.
///
/// # Errors
/// Fails for a file given by URL, which this format cannot express.
pub fn write<'a>(
    messages: &'a [Arc<Message>],
    recall: impl Fn(&'a Message) -> Recalled,
) -> Result<Vec<Value>, FormatError> {
    let mut written = Vec::with_capacity(messages.len());
    // Tool results contain text only, so their images follow after the whole block.
    let mut media: Vec<Value> = Vec::new();
    for (place, message) in messages.iter().enumerate() {
        if message.role != Role::Tool {
            flush(&mut media, &mut written);
        }
        match message.role {
            Role::System => written.push(named(message, json!({"role": "system", "content": message.content}))),
            Role::User => {
                let content = content(message).map_err(|error| error.below(&format!("/{place}/content")))?;
                written.push(named(message, json!({"role": "user", "content": content})));
            }
            Role::Assistant => written.extend(assistant(message, recall(message))),
            Role::Tool => {
                let id = message.tool_call_id.as_deref().unwrap_or_default();
                written.push(json!({"role": "tool", "tool_call_id": id, "content": message.content}));
                let parts = message.parts.iter().filter(|part| part.as_text().is_none());
                for part in parts {
                    media.push(of_part(part).map_err(|error| error.below(&format!("/{place}/content")))?);
                }
            }
        }
    }
    flush(&mut media, &mut written);
    Ok(written)
}

/// Heading of the media from tool results, which are sent in a user message.
pub(super) const FROM_TOOLS: &str = "From the tools' results:";

fn flush(media: &mut Vec<Value>, written: &mut Vec<Value>) {
    if !media.is_empty() {
        let mut content = vec![json!({"type": "text", "text": FROM_TOOLS})];
        content.append(media);
        written.push(json!({"role": "user", "content": content}));
    }
}

/// Returns an assistant's message, or `None` if it has neither text nor calls: providers reject such messages.
fn assistant(message: &Message, mut recalled: Recalled) -> Option<Value> {
    let text = (!message.content.trim().is_empty()).then_some(&message.content);
    if text.is_none() && message.tool_calls.is_empty() {
        return None;
    }
    let mut written = json!({"role": "assistant", "content": text});
    if !message.tool_calls.is_empty() {
        let calls = message.tool_calls.iter();
        written["tool_calls"] = calls.map(|one| call(one, recalled.signature_of(&one.id))).collect();
    }
    let (text, details) = recalled.beside();
    if let Some(text) = text {
        written["reasoning_content"] = json!(text);
    }
    if !details.is_empty() {
        written["reasoning_details"] = json!(details);
    }
    Some(named(message, written))
}

fn call(call: &ToolCall, signature: Option<String>) -> Value {
    let arguments = arguments(&call.arguments).to_string();
    let mut written =
        json!({"type": "function", "id": call.id, "function": {"name": call.name, "arguments": arguments}});
    if let Some(signature) = signature {
        written["extra_content"] = json!({"google": {"thought_signature": signature}});
    }
    written
}

fn named(message: &Message, mut written: Value) -> Value {
    let name = message.metadata.as_ref().and_then(|metadata| metadata.get("name"));
    if let Some(name) = name.filter(|name| name.is_string()) {
        written["name"] = name.clone();
    }
    written
}

fn content(message: &Message) -> Result<Value, FormatError> {
    if message.parts.is_empty() {
        return Ok(json!(message.content));
    }
    pieces(message).iter().map(of_part).collect()
}

fn of_part(part: &Part) -> Result<Value, FormatError> {
    Ok(match part {
        Part::Text { text } => json!({"type": "text", "text": text}),
        Part::Image { url, detail, .. } => {
            let mut image = json!({ "url": url });
            if let Some(detail) = detail {
                image["detail"] = json!(detail);
            }
            json!({"type": "image_url", "image_url": image})
        }
        Part::File { url, name, .. } if data_of(url).is_some() => {
            let name = name.as_deref().unwrap_or("file");
            json!({"type": "file", "file": {"filename": name, "file_data": url}})
        }
        Part::File { url, .. } if is_web(url) => {
            let message = format!("a chat completion accepts no file by its URL ({url}); use a `data:` URL");
            return Err(FormatError::new("", message));
        }
        Part::File { url, .. } => json!({"type": "file", "file": {"file_id": url}}),
    })
}

/// Reads a list of messages, or `{messages}`.
///
/// # Errors
/// The first fault, with its location.
pub fn read(value: &Value) -> Result<Vec<Message>, FormatError> {
    let list = messages_of(value).ok_or_else(|| FormatError::new("", "no list of messages"))?;
    let place = if value.is_array() { "" } else { "/messages" };
    let mut read = Vec::with_capacity(list.len());
    for (at, message) in list.iter().enumerate() {
        read.push(message_of(message).map_err(|error| error.below(&format!("{place}/{at}")))?);
    }
    Ok(read)
}

fn message_of(written: &Value) -> Result<Message, FormatError> {
    let role = match text_at(written, "role", "")? {
        "system" | "developer" => Role::System,
        "user" => Role::User,
        "assistant" => Role::Assistant,
        "tool" | "function" => Role::Tool,
        other => return Err(FormatError::new("/role", format!("unknown role `{other}`"))),
    };
    let refusal = written.get("refusal").and_then(Value::as_str);
    let mut message = match written.get("content") {
        Some(Value::String(text)) => Message::new(role, text.as_str()),
        Some(Value::Array(parts)) => {
            let parts = parts.iter().enumerate();
            let parts: Result<Vec<Part>, FormatError> = parts
                .map(|(at, part)| part_of(part).map_err(|error| error.below(&format!("/content/{at}"))))
                .collect();
            Message::of_parts(role, parts?)
        }
        None | Some(Value::Null) => Message::new(role, refusal.unwrap_or_default()),
        Some(_) => {
            return Err(FormatError::new(
                "/content",
                "`content` must be a text or a list of parts",
            ));
        }
    };
    for (at, call) in written
        .get("tool_calls")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .enumerate()
    {
        let place = format!("/tool_calls/{at}");
        let function = call.get("function").unwrap_or(&Value::Null);
        message.tool_calls.push(ToolCall {
            id: text_at(call, "id", &place)?.to_owned(),
            name: text_at(function, "name", &format!("{place}/function"))?.to_owned(),
            arguments: parsed(function.get("arguments").unwrap_or(&Value::Null)),
        });
    }
    if role == Role::Tool {
        message.tool_call_id = Some(text_at(written, "tool_call_id", "")?.to_owned());
    }
    if let Some(name) = written.get("name").filter(|name| name.is_string()) {
        message
            .metadata
            .get_or_insert_default()
            .insert("name".to_owned(), name.clone());
    }
    let reasoning = written.get("reasoning_content").and_then(Value::as_str);
    let details = written.get("reasoning_details").and_then(Value::as_array);
    super::reasoning::note(
        &mut message,
        "openai",
        Recalled::of_parts(reasoning, details.into_iter().flatten()),
    );
    Ok(message)
}

/// Parses arguments, which are JSON in a string. A string that is not JSON is returned unchanged; an empty one means no arguments.
pub(crate) fn parsed(written: &Value) -> Value {
    match written {
        Value::String(text) if text.trim().is_empty() => Value::Object(Map::new()),
        Value::String(text) => serde_json::from_str(text).unwrap_or_else(|_| written.clone()),
        Value::Null => Value::Object(Map::new()),
        other => other.clone(),
    }
}

fn part_of(part: &Value) -> Result<Part, FormatError> {
    Ok(match text_at(part, "type", "")? {
        "text" => Part::text(text_at(part, "text", "")?),
        "refusal" => Part::text(text_at(part, "refusal", "")?),
        "image_url" => {
            let image = part.get("image_url").unwrap_or(&Value::Null);
            let mut read = Part::image(match image {
                Value::String(url) => url.as_str(),
                other => text_at(other, "url", "/image_url")?,
            });
            if let Part::Image { detail, .. } = &mut read {
                *detail = image.get("detail").and_then(Value::as_str).map(str::to_owned);
            }
            read
        }
        "file" => {
            let file = part.get("file").unwrap_or(&Value::Null);
            let url = ["file_data", "file_id"]
                .into_iter()
                .find_map(|name| file.get(name)?.as_str());
            let url = url.ok_or_else(|| FormatError::new("/file", "needs `file_data` or `file_id`"))?;
            Part::File {
                url: url.into(),
                media_type: None,
                name: file.get("filename").and_then(Value::as_str).map(str::to_owned),
            }
        }
        other => {
            return Err(FormatError::new(
                "/type",
                format!("a part of type `{other}` is not taken"),
            ));
        }
    })
}

/// Returns the media type to send with an image or a file.
pub(super) fn media_type<'a>(given: Option<&'a str>, url: &'a str) -> Option<&'a str> {
    given
        .or_else(|| data_of(url).map(|(kind, _)| kind))
        .or_else(|| media_type_of(url))
}
