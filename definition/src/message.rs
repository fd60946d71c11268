//! One message of a conversation.

use std::fmt;
use std::sync::Arc;

use serde::de::{SeqAccess, Visitor, value::SeqAccessDeserializer};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value, json};

use crate::value::{Output, has_too_deep, is_too_deep, levels, memory};

/// The speaker of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Instructions, at the start of a request.
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

/// A tool call requested by the model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ToolCall {
    /// Ties the call to its result.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// Arguments, which follow the tool's schema.
    #[serde(default)]
    pub arguments: Value,
}

/// A piece of content other than plain text. Images and files are references: a URL that the provider reads, or a `data:` URL
/// that contains the bytes. All copies of a message share the URL's memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(
    tag = "type",
    rename_all = "lowercase",
    rename_all_fields = "camelCase",
    deny_unknown_fields
)]
pub enum Part {
    /// Text.
    Text {
        /// The text itself.
        text: String,
    },
    /// An image.
    Image {
        /// `https://...`, or `data:image/png;base64,...`.
        url: Arc<str>,
        /// Media type if the URL does not contain it: `image/png`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        media_type: Option<String>,
        /// Level of detail for the model, for providers that support it: `low`, `high`, `auto`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        detail: Option<String>,
        /// Width in pixels, from which the token cost is estimated.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        width: Option<u32>,
        /// Height in pixels, from which the token cost is estimated.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        height: Option<u32>,
    },
    /// A document.
    File {
        /// `https://...`, `data:application/pdf;base64,...`, or the id of a file stored by the provider.
        url: Arc<str>,
        /// Media type if the URL does not contain it: `application/pdf`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        media_type: Option<String>,
        /// File name shown to the model.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
    },
}

impl Part {
    /// A piece of text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into() }
    }

    /// An image at a URL.
    pub fn image(url: impl Into<Arc<str>>) -> Self {
        Self::Image {
            url: url.into(),
            media_type: None,
            detail: None,
            width: None,
            height: None,
        }
    }

    /// A document at a URL.
    pub fn file(url: impl Into<Arc<str>>) -> Self {
        Self::File {
            url: url.into(),
            media_type: None,
            name: None,
        }
    }

    /// Estimated memory in bytes.
    fn memory(&self) -> u64 {
        let text = match self {
            Self::Text { text } => text.len(),
            Self::Image { url, .. } | Self::File { url, .. } => url.len(),
        };
        size_of::<Self>() as u64 + text as u64
    }

    /// The text of a piece of text.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text { text } => Some(text),
            Self::Image { .. } | Self::File { .. } => None,
        }
    }
}

/// One message. Histories share messages; a message is immutable once it is appended.
///
/// In JSON its `content` is a string, or a list of [`Part`]s.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// Optional id, passed through unchanged.
    pub id: Option<String>,
    /// The speaker.
    pub role: Role,
    /// The text. If there are parts, their texts joined by newlines.
    pub content: String,
    /// The complete content, in order, if it is more than one text; otherwise empty.
    pub parts: Arc<[Part]>,
    /// Tool calls requested by an assistant message.
    pub tool_calls: Vec<ToolCall>,
    /// The call a tool message answers.
    pub tool_call_id: Option<String>,
    /// Left out of a main agent's requests.
    pub sub_agent_internal: bool,
    /// Retained by every compression.
    pub pin: bool,
    /// Anything the user attaches.
    pub metadata: Option<Map<String, Value>>,
}

impl Message {
    /// Estimated memory in bytes.
    pub fn memory(&self) -> u64 {
        let calls = self.tool_calls.iter();
        let calls = calls.map(|call| 64 + (call.id.len() + call.name.len()) as u64 + memory(&call.arguments));
        let parts = self.parts.iter().map(Part::memory);
        let metadata = self.metadata.iter().flatten();
        let metadata = metadata.map(|(name, value)| 48 + name.len() as u64 + memory(value));
        size_of::<Self>() as u64 + self.content.len() as u64 + calls.chain(parts).chain(metadata).sum::<u64>()
    }

    /// Returns true if a value in the message is nested more than [`MAX_LEVELS`](crate::value::MAX_LEVELS) deep.
    #[inline]
    pub fn is_too_deep(&self) -> bool {
        self.tool_calls.iter().any(|call| is_too_deep(&call.arguments))
            || self.metadata.as_ref().is_some_and(has_too_deep)
    }

    /// A message of `role` with nothing but text: `Message::new(Role::User, "hi")`.
    pub fn new(role: Role, content: impl Into<String>) -> Self {
        Self {
            id: None,
            role,
            content: content.into(),
            parts: Arc::default(),
            tool_calls: Vec::new(),
            tool_call_id: None,
            sub_agent_internal: false,
            pin: false,
            metadata: None,
        }
    }

    /// A message of `role` with these parts. No parts give an empty text; a single text part becomes plain text.
    pub fn of_parts(role: Role, parts: impl Into<Vec<Part>>) -> Self {
        let mut parts = parts.into();
        if let [Part::Text { text }] = parts.as_mut_slice() {
            return Self::new(role, std::mem::take(text));
        }
        let content = parts.iter().filter_map(Part::as_text).collect::<Vec<_>>().join("\n");
        Self {
            parts: parts.into(),
            ..Self::new(role, content)
        }
    }

    /// The result of the tool call `call_id`.
    pub fn tool_result(call_id: impl Into<String>, content: impl Into<String>) -> Self {
        Self {
            tool_call_id: Some(call_id.into()),
            ..Self::new(Role::Tool, content)
        }
    }

    /// Returns the message as JSON, serialised on first read.
    pub fn lazy_json(self: &Arc<Self>) -> Output {
        /// Nesting depth added by a list of parts: list, object, and the message.
        const PARTS: usize = 3;
        let arguments = self.tool_calls.iter().map(|call| 3 + levels(&call.arguments));
        let metadata = self
            .metadata
            .iter()
            .flat_map(Map::values)
            .map(|value| 2 + levels(value));
        let levels = arguments.chain(metadata).max().unwrap_or_default().max(PARTS);
        let message = Arc::clone(self);
        Output::later(levels, move || json!(*message))
    }

    /// True if this is an assistant message that requests tool calls.
    #[inline]
    pub fn asks_for_tools(&self) -> bool {
        self.role == Role::Assistant && !self.tool_calls.is_empty()
    }

    /// True if the content is empty or only white space, which providers refuse.
    #[inline]
    pub fn is_blank(&self) -> bool {
        let is_text = |part: &Part| part.as_text().is_some();
        self.content.trim().is_empty() && self.parts.iter().all(is_text)
    }
}

impl AsRef<Message> for Message {
    fn as_ref(&self) -> &Message {
        self
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: &'a Option<String>,
    role: Role,
    content: ShownContent<'a>,
    #[serde(skip_serializing_if = "<[ToolCall]>::is_empty")]
    tool_calls: &'a [ToolCall],
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: &'a Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    sub_agent_internal: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pin: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: &'a Option<Map<String, Value>>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum ShownContent<'a> {
    Text(&'a str),
    Parts(&'a [Part]),
}

impl Serialize for Message {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let content = if self.parts.is_empty() {
            ShownContent::Text(&self.content)
        } else {
            ShownContent::Parts(&self.parts)
        };
        Shown {
            id: &self.id,
            role: self.role,
            content,
            tool_calls: &self.tool_calls,
            tool_call_id: &self.tool_call_id,
            sub_agent_internal: self.sub_agent_internal,
            pin: self.pin,
            metadata: &self.metadata,
        }
        .serialize(serializer)
    }
}

#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Written {
    #[serde(default)]
    id: Option<String>,
    role: Role,
    /// A string or a list of parts. Providers write null next to tool calls; null is read as an empty text.
    #[serde(default)]
    content: Option<WrittenContent>,
    #[serde(default)]
    tool_calls: Vec<ToolCall>,
    #[serde(default)]
    tool_call_id: Option<String>,
    #[serde(default)]
    sub_agent_internal: bool,
    /// Retained by every compression.
    #[serde(default)]
    pin: bool,
    #[serde(default)]
    metadata: Option<Map<String, Value>>,
}

#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(untagged))]
enum WrittenContent {
    Text(String),
    Parts(Vec<Part>),
}

impl<'de> Deserialize<'de> for WrittenContent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Content;

        impl<'de> Visitor<'de> for Content {
            type Value = WrittenContent;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text or a list of parts")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<WrittenContent, E> {
                Ok(WrittenContent::Text(text.to_owned()))
            }

            fn visit_string<E: serde::de::Error>(self, text: String) -> Result<WrittenContent, E> {
                Ok(WrittenContent::Text(text))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, parts: A) -> Result<WrittenContent, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(parts)).map(WrittenContent::Parts)
            }
        }

        deserializer.deserialize_any(Content)
    }
}

impl<'de> Deserialize<'de> for Message {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let written = Written::deserialize(deserializer)?;
        let plain = match written.content {
            None => Self::new(written.role, ""),
            Some(WrittenContent::Text(text)) => Self::new(written.role, text),
            Some(WrittenContent::Parts(parts)) => Self::of_parts(written.role, parts),
        };
        Ok(Self {
            id: written.id,
            tool_calls: written.tool_calls,
            tool_call_id: written.tool_call_id,
            sub_agent_internal: written.sub_agent_internal,
            pin: written.pin,
            metadata: written.metadata,
            ..plain
        })
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for Message {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Message".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        Written::json_schema(generator)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn message_content_round_trips_as_a_string_or_a_list_of_parts() {
        let parts = json!([
            {"type": "text", "text": "look:"},
            {"type": "image", "url": "https://example.test/a.png", "mediaType": "image/png"},
            {"type": "file", "url": "data:application/pdf;base64,AA==", "name": "a.pdf"},
            {"type": "text", "text": "and say"},
        ]);
        for (content, text) in [
            (json!("hi"), "hi"),
            (
                json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]),
                "a\nb",
            ),
            (parts, "look:\nand say"),
        ] {
            let written = json!({"role": "user", "content": content});
            let message: Message = serde_json::from_value(written.clone()).unwrap();
            assert_eq!(message.content, text);
            assert_eq!(json!(message), written);
        }
        for (content, text) in [
            (json!(null), ""),
            (json!([]), ""),
            (json!([{"type": "text", "text": "one"}]), "one"),
        ] {
            let message: Message = serde_json::from_value(json!({"role": "user", "content": content})).unwrap();
            assert_eq!(json!(message), json!({"role": "user", "content": text}));
        }
    }

    #[test]
    fn invalid_message_content_is_refused_with_the_reason() {
        for (content, words) in [
            (json!(7), "a text or a list of parts"),
            (json!([{"type": "sound", "url": "x"}]), "unknown variant `sound`"),
            (json!([{"type": "image"}]), "missing field `url`"),
        ] {
            let refused = serde_json::from_value::<Message>(json!({"role": "user", "content": content})).unwrap_err();
            assert!(refused.to_string().contains(words), "{refused}");
        }
    }

    #[test]
    fn a_message_with_only_an_image_is_not_blank() {
        assert!(Message::new(Role::User, " \n").is_blank());
        assert!(!Message::of_parts(Role::User, vec![Part::image("https://example.test/a.png")]).is_blank());
    }
}
