//! JSON input from a person or a program; errors contain their location.

use std::io;
use std::sync::Arc;

use pirn::formats::{self, FormatError, Read};
use pirn_conversation::conversation::{Conversation, ConversationError, CountedMessage, MarkMap, Tokenizer};
use pirn_definition::definition::{JsonError, JsonErrorKind, json_from_str, json_from_value};
use pirn_definition::message::Message;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// The error for an invalid input: `{error:{code,message,pointer}}`.
#[derive(Debug)]
pub(super) struct BadInput {
    code: &'static str,
    message: String,
    pointer: String,
}

impl BadInput {
    pub(super) fn new(code: &'static str, message: impl Into<String>, pointer: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            pointer: pointer.into(),
        }
    }

    pub(super) fn unreadable(error: &io::Error) -> Self {
        Self::new("INVALID_JSON", format!("stdin: {error}"), "")
    }

    /// Creates a refusal of the value at `place` of the input.
    pub(super) fn at(place: &str, error: &ConversationError) -> Self {
        Self::new(error.code(), error.to_string(), format!("{place}{}", error.pointer()))
    }

    pub(super) fn json(&self) -> Value {
        json!({"error": {"code": self.code, "message": self.message, "pointer": self.pointer}})
    }
}

/// Parses a value of type `T`.
pub(super) fn parse<T: DeserializeOwned>(text: &str) -> Result<T, BadInput> {
    json_from_str(text).map_err(|error| refusal(&error))
}

/// Parses any JSON.
pub(super) fn json_of(text: &str) -> Result<Value, BadInput> {
    parse(text)
}

/// Converts a JSON value to a value of type `T`.
pub(super) fn typed<T: DeserializeOwned>(value: &Value) -> Result<T, BadInput> {
    json_from_value(value.clone()).map_err(|error| refusal(&error))
}

fn refusal(error: &JsonError) -> BadInput {
    let pointer = error.pointer().unwrap_or_default();
    match error.kind() {
        JsonErrorKind::Syntax => BadInput::new("INVALID_JSON", error.to_string(), pointer),
        JsonErrorKind::UnknownField | JsonErrorKind::MissingField | JsonErrorKind::Invalid => {
            BadInput::new("INVALID_INPUT", error.sentence("the input"), pointer)
        }
    }
}

/// Reads a conversation, and detects its format.
pub(super) fn any_form(text: &str) -> Result<Read, BadInput> {
    formats::read(&json_of(text)?, None).map_err(|error| of_format(&error))
}

/// Converts the error of reading a conversation.
pub(super) fn of_format(error: &FormatError) -> BadInput {
    BadInput::new("INVALID_CONVERSATION", error.message.as_str(), error.pointer.as_str())
}

/// Builds a conversation from messages and their mark map; without a map, all messages are visible.
pub(super) fn conversation(
    messages: Vec<Arc<Message>>,
    mark_map: Option<MarkMap>,
    tokenizer: &dyn Tokenizer,
) -> Result<Conversation, BadInput> {
    let counted = messages
        .into_iter()
        .map(|message| CountedMessage::new(message, tokenizer));
    Conversation::from_parts(counted, mark_map.unwrap_or_default()).map_err(|error| BadInput::at("/markMap", &error))
}
