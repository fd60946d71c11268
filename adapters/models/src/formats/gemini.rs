//! `{systemInstruction?, contents}` of Gemini's generateContent.

use std::collections::VecDeque;
use std::sync::Arc;

use pirn_definition::message::{Message, Part, Role, ToolCall};
use serde_json::{Map, Value, json};

use super::openai::media_type;
use super::reasoning::{Recalled, Thought};
use super::{FormatError, add_turn, arguments, data_of, data_url, list_at, pieces, text_at};

/// Prefix of the ids generated for calls without an id; such ids are not sent back.
pub(crate) const OWN_ID: &str = "call-";

/// Returns whether the provider generated the id.
fn is_given(id: &str) -> bool {
    let number = id.strip_prefix(OWN_ID);
    !id.is_empty() && !number.is_some_and(|rest| rest.chars().all(|c| c.is_ascii_digit() || c == '-'))
}

/// Writes `systemInstruction` and `contents`. Consecutive messages of one role become one turn, including the results of a block.
/// `recall` returns the signatures of calls that are sent back to their model.
///
/// # Errors
/// An image or file has an unknown media type.
pub fn write<'a>(
    messages: &'a [Arc<Message>],
    recall: impl Fn(&'a Message) -> Recalled,
) -> Result<Map<String, Value>, FormatError> {
    let mut system: Vec<Value> = Vec::new();
    let mut turns: Vec<Value> = Vec::new();
    let mut calls: &[ToolCall] = &[];
    for (place, message) in messages.iter().enumerate() {
        let at = |error: FormatError| error.below(&format!("/{place}/content"));
        let own = || -> Result<Vec<Value>, FormatError> { pieces(message).iter().map(of_part).collect() };
        match message.role {
            Role::System if message.is_blank() => {}
            Role::System => system.push(json!({ "text": message.content })),
            Role::User => user(&mut turns, own().map_err(at)?),
            Role::Assistant => {
                calls = &message.tool_calls;
                let mut recalled = recall(message);
                let mut parts = own().map_err(at)?;
                for call in calls {
                    let mut function = json!({"name": call.name, "args": arguments(&call.arguments)});
                    if is_given(&call.id) {
                        function["id"] = json!(call.id);
                    }
                    let mut part = json!({ "functionCall": function });
                    if let Some(signature) = recalled.signature_of(&call.id) {
                        part["thoughtSignature"] = json!(signature);
                    }
                    parts.push(part);
                }
                add_turn(&mut turns, "model", "parts", parts);
            }
            Role::Tool => {
                let id = message.tool_call_id.as_deref().unwrap_or_default();
                let name = calls
                    .iter()
                    .find(|call| call.id == id)
                    .map_or("", |call| call.name.as_str());
                let mut response = json!({"name": name, "response": {"output": message.content}});
                if is_given(id) {
                    response["id"] = json!(id);
                }
                let mut parts = vec![json!({ "functionResponse": response })];
                for part in message.parts.iter().filter(|part| part.as_text().is_none()) {
                    parts.push(of_part(part).map_err(at)?);
                }
                add_turn(&mut turns, "user", "parts", parts);
            }
        }
    }
    let mut written = Map::new();
    if !system.is_empty() {
        written.insert("systemInstruction".to_owned(), json!({ "parts": system }));
    }
    written.insert("contents".to_owned(), Value::Array(turns));
    Ok(written)
}

/// Adds the user's parts in a turn separate from tool results, because a call must be followed only by its results.
fn user(turns: &mut Vec<Value>, parts: Vec<Value>) {
    let answers = |turn: &Value| turn.pointer("/parts/0/functionResponse").is_some();
    if turns.last().is_some_and(answers) && !parts.is_empty() {
        turns.push(json!({"role": "user", "parts": parts}));
    } else {
        add_turn(turns, "user", "parts", parts);
    }
}

fn of_part(part: &Part) -> Result<Value, FormatError> {
    let media = |url: &str, given: Option<&str>| -> Result<Value, FormatError> {
        let kind = media_type(given, url)
            .ok_or_else(|| FormatError::new("", format!("Gemini needs the media type of {url}: set `mediaType`")))?;
        Ok(match data_of(url) {
            Some((_, data)) => json!({"inlineData": {"mimeType": kind, "data": data}}),
            None => json!({"fileData": {"mimeType": kind, "fileUri": url}}),
        })
    };
    match part {
        Part::Text { text } => Ok(json!({ "text": text })),
        Part::Image { url, media_type, .. } | Part::File { url, media_type, .. } => media(url, media_type.as_deref()),
    }
}

/// Reads `{systemInstruction?, contents}`, or a list of contents.
///
/// # Errors
/// The first fault, with its location.
pub fn read(value: &Value) -> Result<Vec<Message>, FormatError> {
    let mut reader = Reader::default();
    for name in ["systemInstruction", "system_instruction"] {
        if let Some(system) = value.get(name) {
            let texts = system.get("parts").and_then(Value::as_array).into_iter().flatten();
            let texts = texts.filter_map(|part| part.get("text")?.as_str());
            let messages = texts.map(|text| Message::new(Role::System, text));
            reader.read.extend(messages);
        }
    }
    let (place, list) = match value.as_array() {
        Some(list) => ("", list),
        None => ("/contents", list_at(value, "contents")?),
    };
    for (at, content) in list.iter().enumerate() {
        reader
            .turn(content)
            .map_err(|error| error.below(&format!("{place}/{at}")))?;
    }
    Ok(reader.read)
}

#[derive(Default)]
struct Reader {
    read: Vec<Message>,
    /// Number of calls so far, from which ids are generated for calls without one.
    calls: usize,
    /// Names and ids of the calls without a result so far.
    open: VecDeque<(String, String)>,
}

impl Reader {
    fn turn(&mut self, content: &Value) -> Result<(), FormatError> {
        let role = match content.get("role").and_then(Value::as_str).unwrap_or("user") {
            "user" | "function" | "tool" => Role::User,
            "model" => Role::Assistant,
            "system" => Role::System,
            other => return Err(FormatError::new("/role", format!("unknown role `{other}`"))),
        };
        let list = list_at(content, "parts")?;
        let (mut parts, mut calls, mut recalled) = (Vec::new(), Vec::new(), Recalled::default());
        let mut answered = false;
        for (at, part) in list.iter().enumerate() {
            let place = format!("/parts/{at}");
            let signature = part.get("thoughtSignature").and_then(Value::as_str);
            if let Some(call) = part.get("functionCall") {
                let call = self.call(call, &format!("{place}/functionCall"))?;
                if let Some(signature) = signature {
                    recalled.sign(&call.id, signature);
                }
                calls.push(call);
            } else if let Some(response) = part.get("functionResponse") {
                let result = self.result(response, &format!("{place}/functionResponse"))?;
                self.read.push(result);
                answered = true;
            } else if part.get("thought").and_then(Value::as_bool) == Some(true) {
                let text = part.get("text").and_then(Value::as_str).unwrap_or_default();
                recalled.thoughts.push(Thought::Text(text.to_owned()));
            } else if answered && part.get("text").is_none() {
                // Images in this turn belong to the results before them.
                if let Some(last) = self.read.last_mut() {
                    let mut with = pieces(last);
                    with.push(media(part, &place)?);
                    let id = last.tool_call_id.take();
                    *last = Message::of_parts(Role::Tool, with);
                    last.tool_call_id = id;
                }
            } else {
                parts.push(match part.get("text").and_then(Value::as_str) {
                    Some(text) => Part::text(text),
                    None => media(part, &place)?,
                });
            }
        }
        if !parts.is_empty() || !calls.is_empty() || !answered {
            let mut message = Message::of_parts(role, parts);
            message.tool_calls = calls;
            super::reasoning::note(&mut message, "gemini", recalled);
            self.read.push(message);
        }
        Ok(())
    }

    fn call(&mut self, call: &Value, place: &str) -> Result<ToolCall, FormatError> {
        let name = text_at(call, "name", place)?;
        self.calls += 1;
        let own = || format!("{OWN_ID}{}", self.calls);
        let id = call.get("id").and_then(Value::as_str).map_or_else(own, str::to_owned);
        self.open.push_back((name.to_owned(), id.clone()));
        Ok(ToolCall {
            id,
            name: name.to_owned(),
            arguments: call.get("args").cloned().unwrap_or_else(|| json!({})),
        })
    }

    /// Returns the result of the call with this id, else of the first open call of this name.
    fn result(&mut self, response: &Value, place: &str) -> Result<Message, FormatError> {
        let name = text_at(response, "name", place)?;
        let given = response.get("id").and_then(Value::as_str);
        let is_its = |(called, id): &(String, String)| given.map_or(called == name, |given| id == given);
        let open = self.open.iter().position(is_its).and_then(|at| self.open.remove(at));
        let id = open.map_or_else(|| given.unwrap_or_default().to_owned(), |(_, id)| id);
        let said = response.get("response").unwrap_or(&Value::Null);
        let only = said.as_object().filter(|fields| fields.len() == 1);
        let text = only.and_then(|fields| fields.get("output")).and_then(Value::as_str);
        let text = text.map_or_else(|| said.to_string(), str::to_owned);
        Ok(Message::tool_result(id, text))
    }
}

fn media(part: &Value, place: &str) -> Result<Part, FormatError> {
    let either = |names: [&str; 2]| names.into_iter().find_map(|name| part.get(name));
    let field = |value: &Value, names: [&str; 2]| -> Option<String> {
        names
            .into_iter()
            .find_map(|name| value.get(name)?.as_str().map(str::to_owned))
    };
    let (url, kind) = if let Some(data) = either(["inlineData", "inline_data"]) {
        let kind = field(data, ["mimeType", "mime_type"]).unwrap_or_default();
        let bytes = data.get("data").and_then(Value::as_str).unwrap_or_default();
        (data_url(&kind, bytes), kind)
    } else if let Some(file) = either(["fileData", "file_data"]) {
        let kind = field(file, ["mimeType", "mime_type"]).unwrap_or_default();
        (field(file, ["fileUri", "file_uri"]).unwrap_or_default(), kind)
    } else {
        let kinds = "text, inlineData, fileData, functionCall, functionResponse";
        return Err(FormatError::new(place, format!("a part is one of {kinds}")));
    };
    let told = data_of(&url)
        .is_none()
        .then(|| kind.clone())
        .filter(|kind| !kind.is_empty());
    let mut read = if kind.starts_with("image/") {
        Part::image(url)
    } else {
        Part::file(url)
    };
    if let Part::Image { media_type, .. } | Part::File { media_type, .. } = &mut read {
        *media_type = told;
    }
    Ok(read)
}
