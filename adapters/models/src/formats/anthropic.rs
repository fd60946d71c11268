//! `{system?, messages}` of Anthropic's messages.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use pirn_definition::message::{Message, Part, Role, ToolCall};
use serde_json::{Map, Value, json};

use super::reasoning::{Recalled, Thought};
use super::{FormatError, add_turn, arguments, data_of, data_url, is_web, list_at, pieces, text_at};

/// Returns whether the message can only be of this format.
pub(super) fn is_its(message: &Value) -> bool {
    const KINDS: [&str; 5] = ["tool_use", "tool_result", "thinking", "redacted_thinking", "document"];
    let is_block = |block: &Value| {
        let kind = block.get("type").and_then(Value::as_str).unwrap_or_default();
        KINDS.contains(&kind) || block.get("source").is_some()
    };
    let blocks = message.get("content").and_then(Value::as_array);
    blocks.is_some_and(|blocks| blocks.iter().any(is_block))
}

/// Writes `system` and `messages`. Consecutive messages of one role become one turn. `recall` returns the reasoning of an assistant
/// message that is sent back to its model.
///
/// # Errors
/// Fails if a part cannot be expressed in this format.
pub fn write<'a>(
    messages: &'a [Arc<Message>],
    recall: impl Fn(&'a Message) -> Recalled,
) -> Result<Map<String, Value>, FormatError> {
    let mut system: Vec<&str> = Vec::new();
    let mut turns: Vec<Value> = Vec::new();
    let mut ids = Ids::default();
    for (place, message) in messages.iter().enumerate() {
        let at = |error: FormatError| error.below(&format!("/{place}/content"));
        match message.role {
            Role::System if message.is_blank() => {}
            Role::System => system.push(&message.content),
            Role::User => {
                let blocks: Result<Vec<Value>, FormatError> = pieces(message).iter().map(block).collect();
                add_turn(&mut turns, "user", "content", blocks.map_err(at)?);
            }
            Role::Assistant => {
                let mut blocks = recalled_blocks(recall(message));
                blocks.extend(pieces(message).iter().filter_map(Part::as_text).map(text_block));
                ids.begin_block();
                for call in &message.tool_calls {
                    let id = ids.of_call(&call.id);
                    let input = arguments(&call.arguments);
                    blocks.push(json!({"type": "tool_use", "id": id, "name": call.name, "input": input}));
                }
                add_turn(&mut turns, "assistant", "content", blocks);
            }
            Role::Tool => {
                let id = ids.of_result(message.tool_call_id.as_deref().unwrap_or_default());
                let mut result = json!({"type": "tool_result", "tool_use_id": id});
                let parts = pieces(message);
                match parts.as_slice() {
                    [] => {}
                    [Part::Text { text }] => result["content"] = json!(text),
                    parts => {
                        let blocks: Result<Vec<Value>, FormatError> = parts.iter().map(block).collect();
                        result["content"] = json!(blocks.map_err(at)?);
                    }
                }
                add_turn(&mut turns, "user", "content", vec![result]);
            }
        }
    }
    for turn in &mut turns {
        if let Some([only]) = turn["content"].as_array().map(Vec::as_slice)
            && only["type"] == "text"
        {
            turn["content"] = only["text"].clone();
        }
    }
    let mut written = Map::new();
    if !system.is_empty() {
        written.insert("system".to_owned(), json!(system.join("\n\n")));
    }
    written.insert("messages".to_owned(), Value::Array(turns));
    Ok(written)
}

fn text_block(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

/// Returns signed thinking blocks unchanged; blocks without a signature are omitted, because the provider does not accept them.
fn recalled_blocks(recalled: Recalled) -> Vec<Value> {
    let mut blocks = Vec::new();
    let mut text = String::new();
    for thought in recalled.thoughts {
        match thought {
            Thought::Text(said) => text = said,
            Thought::Signature(signature) => {
                let thinking = std::mem::take(&mut text);
                blocks.push(json!({"type": "thinking", "thinking": thinking, "signature": signature}));
            }
            Thought::Block(data) => {
                text.clear();
                blocks.push(data);
            }
        }
    }
    blocks
}

/// Generates ids of calls that this provider accepts: letters, digits, `_`, `-`, unique in a conversation.
#[derive(Default)]
struct Ids {
    used: BTreeSet<String>,
    /// Generated ids of the open block, in order, by the id in the conversation.
    open: BTreeMap<String, VecDeque<String>>,
}

impl Ids {
    fn begin_block(&mut self) {
        self.open.clear();
    }

    fn of_call(&mut self, id: &str) -> String {
        let is_taken = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        let mut plain: String = id.chars().map(|c| if is_taken(c) { c } else { '_' }).collect();
        if plain.is_empty() {
            plain.push_str("call");
        }
        let mut own = plain.clone();
        let mut number = 2_u32;
        while !self.used.insert(own.clone()) {
            own = format!("{plain}-{number}");
            number += 1;
        }
        self.open.entry(id.to_owned()).or_default().push_back(own.clone());
        own
    }

    fn of_result(&mut self, id: &str) -> String {
        let open = self.open.get_mut(id).and_then(VecDeque::pop_front);
        open.unwrap_or_else(|| id.to_owned())
    }
}

fn block(part: &Part) -> Result<Value, FormatError> {
    let source = |url: &str, given: Option<&str>| -> Result<Value, FormatError> {
        if let Some((kind, data)) = data_of(url) {
            return Ok(json!({"type": "base64", "media_type": given.unwrap_or(kind), "data": data}));
        }
        Ok(if is_web(url) {
            json!({"type": "url", "url": url})
        } else {
            json!({"type": "file", "file_id": url})
        })
    };
    Ok(match part {
        Part::Text { text } => text_block(text),
        Part::Image { url, media_type, .. } => {
            json!({"type": "image", "source": source(url, media_type.as_deref())?})
        }
        Part::File { url, media_type, name } => {
            let mut block = json!({"type": "document", "source": source(url, media_type.as_deref())?});
            if let Some(name) = name {
                block["title"] = json!(name);
            }
            block
        }
    })
}

/// Reads `{system?, messages}`, or a list of messages.
///
/// # Errors
/// The first fault, with its location.
pub fn read(value: &Value) -> Result<Vec<Message>, FormatError> {
    let mut read = Vec::new();
    match value.get("system") {
        None | Some(Value::Null) => {}
        Some(Value::String(text)) => read.push(Message::new(Role::System, text.as_str())),
        Some(Value::Array(blocks)) => {
            let texts = blocks.iter().filter_map(|block| block.get("text")?.as_str());
            read.push(Message::new(Role::System, texts.collect::<Vec<_>>().join("\n\n")));
        }
        Some(_) => {
            return Err(FormatError::new(
                "/system",
                "`system` must be a text or a list of texts",
            ));
        }
    }
    let (place, list) = match value.as_array() {
        Some(list) => ("", list),
        None => ("/messages", list_at(value, "messages")?),
    };
    for (at, message) in list.iter().enumerate() {
        turn(message, &mut read).map_err(|error| error.below(&format!("{place}/{at}")))?;
    }
    Ok(read)
}

/// Reads a turn: one message, or tool results followed by the user's message.
fn turn(written: &Value, read: &mut Vec<Message>) -> Result<(), FormatError> {
    let role = match text_at(written, "role", "")? {
        "user" => Role::User,
        "assistant" => Role::Assistant,
        "system" => Role::System,
        other => return Err(FormatError::new("/role", format!("unknown role `{other}`"))),
    };
    let blocks = match written.get("content") {
        Some(Value::String(text)) => {
            read.push(Message::new(role, text.as_str()));
            return Ok(());
        }
        Some(Value::Array(blocks)) => blocks,
        _ => {
            return Err(FormatError::new(
                "/content",
                "`content` must be a text or a list of blocks",
            ));
        }
    };
    let mut parts = Vec::new();
    let mut calls = Vec::new();
    let mut recalled = Recalled::default();
    let mut results = Vec::new();
    for (at, block) in blocks.iter().enumerate() {
        let place = format!("/content/{at}");
        match text_at(block, "type", &place)? {
            "tool_use" => calls.push(ToolCall {
                id: text_at(block, "id", &place)?.to_owned(),
                name: text_at(block, "name", &place)?.to_owned(),
                arguments: block.get("input").cloned().unwrap_or_else(|| json!({})),
            }),
            "tool_result" => results.push(result(block, &place)?),
            "thinking" => {
                let text = text_at(block, "thinking", &place)?.to_owned();
                recalled.thoughts.push(Thought::Text(text));
                if let Some(signature) = block.get("signature").and_then(Value::as_str) {
                    recalled.thoughts.push(Thought::Signature(signature.to_owned()));
                }
            }
            "redacted_thinking" => recalled.thoughts.push(Thought::Block(block.clone())),
            _ => parts.push(part(block, &place)?),
        }
    }
    let has_results = !results.is_empty();
    read.append(&mut results);
    if !parts.is_empty() || !calls.is_empty() || !has_results {
        let mut message = Message::of_parts(role, parts);
        message.tool_calls = calls;
        super::reasoning::note(&mut message, "anthropic", recalled);
        read.push(message);
    }
    Ok(())
}

fn result(block: &Value, place: &str) -> Result<Message, FormatError> {
    let id = text_at(block, "tool_use_id", place)?;
    let content = match block.get("content") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::String(text)) => vec![Part::text(text.as_str())],
        Some(Value::Array(blocks)) => {
            let blocks = blocks.iter().enumerate();
            let parts: Result<_, _> = blocks
                .map(|(at, one)| part(one, &format!("{place}/content/{at}")))
                .collect();
            parts?
        }
        Some(_) => {
            return Err(FormatError::new(
                format!("{place}/content"),
                "must be a text or a list of blocks",
            ));
        }
    };
    let mut message = Message::of_parts(Role::Tool, content);
    message.tool_call_id = Some(id.to_owned());
    Ok(message)
}

fn part(block: &Value, place: &str) -> Result<Part, FormatError> {
    let url = || -> Result<Arc<str>, FormatError> {
        let at = format!("{place}/source");
        let source = block.get("source").unwrap_or(&Value::Null);
        Ok(match text_at(source, "type", &at)? {
            "base64" => data_url(text_at(source, "media_type", &at)?, text_at(source, "data", &at)?).into(),
            "url" => text_at(source, "url", &at)?.into(),
            "file" => text_at(source, "file_id", &at)?.into(),
            other => {
                return Err(FormatError::new(
                    format!("{at}/type"),
                    format!("a source of type `{other}` is not taken"),
                ));
            }
        })
    };
    Ok(match text_at(block, "type", place)? {
        "text" => Part::text(text_at(block, "text", place)?),
        "image" => Part::image(url()?),
        "document" => {
            let mut file = Part::file(url()?);
            if let Part::File { name, .. } = &mut file {
                *name = block.get("title").and_then(Value::as_str).map(str::to_owned);
            }
            file
        }
        other => {
            let message = format!("a block of type `{other}` is not taken");
            return Err(FormatError::new(format!("{place}/type"), message));
        }
    })
}
