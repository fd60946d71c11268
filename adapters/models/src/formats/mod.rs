//! Conversations in common formats: those of Pirn, OpenAI, Anthropic and Gemini.
//!
//! 1. Reading preserves everything visible to a model: text, images, files, calls, results, reasoning.
//! 2. Writing a conversation that was read produces an equal one, except for spelling (a string equals a list of one text).
//! 3. Content that the target format cannot express is an error with its location; it is never omitted silently.
//!
//! Not here: requests and replies of a protocol, which are in `providers`.

pub mod anthropic;
pub mod gemini;
pub mod openai;
pub mod reasoning;
#[cfg(feature = "providers")]
pub(crate) mod responses;

use std::fmt;
use std::sync::Arc;

use pirn_actors::History;
use pirn_conversation::conversation::MarkMap;
use pirn_definition::definition::json_from_value;
use pirn_definition::message::Message;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// A format of conversations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A list of messages, `{messages, markMap?, from?}`, or a run's report.
    Pirn,
    /// The `messages` of OpenAI's chat completions.
    OpenAi,
    /// `{system?, messages}` of Anthropic's messages.
    Anthropic,
    /// `{systemInstruction?, contents}` of Gemini's generateContent.
    Gemini,
}

impl Format {
    /// Every form.
    pub const ALL: [Self; 4] = [Self::Pirn, Self::OpenAi, Self::Anthropic, Self::Gemini];

    /// Returns the format's name: `pirn`, `openai`, `anthropic`, `gemini`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pirn => "pirn",
            Self::OpenAi => "openai",
            Self::Anthropic => "anthropic",
            Self::Gemini => "gemini",
        }
    }

    /// Detects the format of a conversation by features that only this format has. Conversations of plain text are identical in
    /// OpenAI's and Pirn's format.
    pub fn of(value: &Value) -> Self {
        let list = messages_of(value);
        let any = |is: &dyn Fn(&Value) -> bool| list.is_some_and(|list| list.iter().any(is));
        let is_pirn = |message: &Value| message.get("toolCalls").is_some() || message.get("toolCallId").is_some();
        if value.get("contents").is_some() || any(&|message| message.get("parts").is_some_and(Value::is_array)) {
            Self::Gemini
        } else if value.get("markMap").is_some() || value.get("conversation").is_some() || any(&is_pirn) {
            Self::Pirn
        } else if value.get("system").is_some() || any(&anthropic::is_its) {
            Self::Anthropic
        } else if any(&openai::is_its) {
            Self::OpenAi
        } else {
            Self::Pirn
        }
    }
}

/// Returns the list of messages or contents, at the location of any format.
fn messages_of(value: &Value) -> Option<&Vec<Value>> {
    let field = ["messages", "contents"].into_iter().find_map(|name| value.get(name));
    field.unwrap_or(value).as_array()
}

/// A conversation that was read: the complete history, and its visible part.
#[derive(Clone, Debug, PartialEq)]
pub struct Read {
    /// The messages, archived ones included.
    pub messages: Vec<Message>,
    /// `None` if all messages are visible.
    pub mark_map: Option<MarkMap>,
}

impl Read {
    /// Returns the history, from which a run can start.
    ///
    /// # Errors
    /// Fails if the mark map does not fit the messages.
    pub fn history(self) -> Result<History, FormatError> {
        let marks = self.mark_map.unwrap_or_default();
        History::of_parts(self.messages, marks)
            .map_err(|error| FormatError::new(format!("/markMap{}", error.pointer()), error.to_string()))
    }
}

/// A fault in a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormatError {
    /// JSON pointer to the fault.
    pub pointer: String,
    /// Description in one sentence, for display.
    pub message: String,
}

impl FormatError {
    pub(crate) fn new(pointer: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            pointer: pointer.into(),
            message: message.into(),
        }
    }

    fn below(mut self, pointer: &str) -> Self {
        self.pointer.insert_str(0, pointer);
        self
    }
}

impl fmt::Display for FormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.pointer.is_empty() {
            f.write_str(&self.message)
        } else {
            write!(f, "{}: {}", self.pointer, self.message)
        }
    }
}

impl std::error::Error for FormatError {}

/// Reads a conversation in `format`, or in the detected format if that is `None`.
///
/// ```
/// use pirn_models::formats::read;
/// use serde_json::json;
/// let read = read(&json!({"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}), None)?;
/// assert_eq!(read.messages[0].content, "hi");
/// # Ok::<(), pirn_models::formats::FormatError>(())
/// ```
///
/// # Errors
/// The first fault, with its location.
pub fn read(value: &Value, format: Option<Format>) -> Result<Read, FormatError> {
    let all_visible = |messages| Read {
        messages,
        mark_map: None,
    };
    match format.unwrap_or_else(|| Format::of(value)) {
        Format::Pirn => pirn(value),
        Format::OpenAi => openai::read(value).map(all_visible),
        Format::Anthropic => anthropic::read(value).map(all_visible),
        Format::Gemini => gemini::read(value).map(all_visible),
    }
}

/// Writes messages in `format`.
///
/// # Errors
/// Fails if the format cannot express a message.
pub fn write(messages: &[Arc<Message>], format: Format) -> Result<Value, FormatError> {
    let own = |message: &Message| reasoning::of_format(message, format);
    match format {
        Format::Pirn => Ok(json!(messages)),
        Format::OpenAi => Ok(json!({ "messages": openai::write(messages, own)? })),
        Format::Anthropic => anthropic::write(messages, own).map(Value::Object),
        Format::Gemini => gemini::write(messages, own).map(Value::Object),
    }
}

/// Reads a list of messages, `{messages, markMap?, from?}`, or a report, which contains that as its `conversation`.
fn pirn(value: &Value) -> Result<Read, FormatError> {
    let (place, held) = match value.get("conversation") {
        Some(held) => ("/conversation", held),
        None => ("", value),
    };
    let Some(fields) = held.as_object() else {
        let messages = typed(held).map_err(|error| error.below(place))?;
        return Ok(Read {
            messages,
            mark_map: None,
        });
    };
    let unknown = fields
        .keys()
        .find(|name| !["messages", "markMap", "from"].contains(&name.as_str()));
    if let Some(name) = unknown {
        let message = format!("unknown field `{name}`; a conversation has `messages`, `markMap` and `from`");
        return Err(FormatError::new(format!("{place}/{name}"), message));
    }
    let part = |name: &str| held.get(name).unwrap_or(&Value::Null);
    let below = |name: &str| format!("{place}/{name}");
    let messages: Vec<Message> = typed(part("messages")).map_err(|error| error.below(&below("messages")))?;
    let mark_map: Option<MarkMap> = typed(part("markMap")).map_err(|error| error.below(&below("markMap")))?;
    let from: Option<usize> = typed(part("from")).map_err(|error| error.below(&below("from")))?;
    let mark_map = mark_map.map(|marks| without_first(marks, from.unwrap_or(0)));
    if let Some(marks) = &mark_map {
        marks
            .check(messages.len())
            .map_err(|error| FormatError::new(format!("{}{}", below("markMap"), error.pointer()), error.to_string()))?;
    }
    Ok(Read { messages, mark_map })
}

/// Returns the marks of a history without its first `from` messages, which the report of a session's run does not contain.
fn without_first(mut marks: MarkMap, from: usize) -> MarkMap {
    for index in marks.batch_boundaries.iter_mut().chain(&mut marks.original_indices) {
        *index = index.saturating_sub(from);
    }
    marks.set_aside.retain(|(_, end)| *end > from);
    for (start, end) in &mut marks.set_aside {
        *start = start.saturating_sub(from);
        *end -= from;
    }
    marks
}

fn typed<T: DeserializeOwned>(value: &Value) -> Result<T, FormatError> {
    json_from_value(value.clone()).map_err(|error| {
        let pointer = error.pointer().unwrap_or_default();
        FormatError::new(pointer, error.message())
    })
}

/// Returns a field that must be a string.
fn text_at<'a>(value: &'a Value, name: &str, place: &str) -> Result<&'a str, FormatError> {
    value
        .get(name)
        .and_then(Value::as_str)
        .ok_or_else(|| FormatError::new(format!("{place}/{name}"), format!("`{name}` must be a text")))
}

/// Returns the list in a field.
fn list_at<'a>(value: &'a Value, name: &str) -> Result<&'a Vec<Value>, FormatError> {
    let list = value.get(name).unwrap_or(&Value::Null).as_array();
    list.ok_or_else(|| FormatError::new(format!("/{name}"), format!("`{name}` must be a list")))
}

/// Returns arguments as an object, which every protocol requires. If a model once wrote another value, the provider would otherwise
/// reject every later request of the conversation.
pub(crate) fn arguments(written: &Value) -> Value {
    let as_written = || json!({ "asWritten": written });
    match written {
        Value::Object(_) => written.clone(),
        Value::Null => json!({}),
        Value::String(text) if text.trim().is_empty() => json!({}),
        Value::String(text) => match serde_json::from_str(text) {
            Ok(Value::Object(fields)) => Value::Object(fields),
            Ok(_) | Err(_) => as_written(),
        },
        Value::Bool(_) | Value::Number(_) | Value::Array(_) => as_written(),
    }
}

/// Returns the media type and the base64 data of a `data:` URL.
pub(crate) fn data_of(url: &str) -> Option<(&str, &str)> {
    let (head, data) = url.strip_prefix("data:")?.split_once(',')?;
    Some((head.strip_suffix(";base64")?, data))
}

fn data_url(media_type: &str, data: &str) -> String {
    format!("data:{media_type};base64,{data}")
}

/// Guesses the media type of a URL from its extension.
fn media_type_of(url: &str) -> Option<&'static str> {
    let path = url.split(['?', '#']).next().unwrap_or_default();
    let ending = path.rsplit('.').next().unwrap_or_default().to_ascii_lowercase();
    Some(match ending.as_str() {
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "pdf" => "application/pdf",
        "txt" => "text/plain",
        _ => return None,
    })
}

/// Returns whether a provider can fetch the URL.
fn is_web(url: &str) -> bool {
    url.starts_with("https://") || url.starts_with("http://") || url.starts_with("gs://")
}

/// Returns a message's parts, or its text if that is not blank.
fn pieces(message: &Message) -> Vec<pirn_definition::message::Part> {
    use pirn_definition::message::Part;
    if !message.parts.is_empty() {
        let is_sent = |part: &&Part| part.as_text().is_none_or(|text| !text.trim().is_empty());
        message.parts.iter().filter(is_sent).cloned().collect()
    } else if message.content.trim().is_empty() {
        Vec::new()
    } else {
        vec![Part::text(message.content.as_str())]
    }
}

/// Adds parts to the last turn if it has this role, otherwise starts a new turn.
fn add_turn(turns: &mut Vec<Value>, role: &str, field: &str, parts: Vec<Value>) {
    if parts.is_empty() {
        return;
    }
    if let Some(last) = turns.last_mut()
        && last["role"] == role
        && let Some(Value::Array(list)) = last.get_mut(field)
    {
        return list.extend(parts);
    }
    turns.push(json!({"role": role, field: parts}));
}
