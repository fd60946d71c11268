//! Protocols: their names, their endpoints, and the modules that implement them.

use pirn_conversation::conversation::MessageRules;
use reqwest::Url;
use serde_json::Value;

use super::failure::Failure;
use super::frames::{Framing, StreamFrame};
use super::key::Key;
use super::reply_builder::ReplyBuilder;
use super::request::parameters::Parameters;
use super::request::provider_request::ProviderRequest;
use super::{anthropic, gemini, ollama, openai, responses};
use crate::formats::FormatError;

/// An HTTP protocol of models.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    /// OpenAI's chat completions.
    OpenAi,
    /// OpenAI's Responses: `api = "responses"`.
    Responses,
    Anthropic,
    Gemini,
    Ollama,
}

impl Protocol {
    pub(super) const ALL: [Self; 4] = [Self::OpenAi, Self::Anthropic, Self::Gemini, Self::Ollama];

    pub(super) fn of(provider: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|protocol| protocol.name() == provider)
    }

    /// Returns the name in a profile's `provider`.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::OpenAi | Self::Responses => "openai",
            Self::Anthropic => "anthropic",
            Self::Gemini => "gemini",
            Self::Ollama => "ollama",
        }
    }

    /// Returns the URL of the provider itself.
    pub(super) fn endpoint(self) -> &'static str {
        match self {
            Self::OpenAi | Self::Responses => "https://api.openai.com/v1/",
            Self::Anthropic => "https://api.anthropic.com/v1/",
            Self::Gemini => "https://generativelanguage.googleapis.com/v1beta/",
            Self::Ollama => "http://localhost:11434/",
        }
    }

    /// Returns the environment variable with the key of the provider. It is not used for an endpoint set in the profile: a key is
    /// sent only to the server for which it was issued.
    pub(super) fn key_variable(self) -> Option<&'static str> {
        match self {
            Self::OpenAi | Self::Responses => Some("OPENAI_API_KEY"),
            Self::Anthropic => Some("ANTHROPIC_API_KEY"),
            Self::Gemini => Some("GEMINI_API_KEY"),
            Self::Ollama => None,
        }
    }

    /// Returns the order of messages that the provider requires.
    pub(super) fn message_rules(self) -> MessageRules {
        match self {
            Self::Anthropic | Self::Gemini => MessageRules::STRICT,
            Self::OpenAi | Self::Responses | Self::Ollama => MessageRules::default(),
        }
    }

    /// Returns the URL of a request.
    pub(super) fn url(self, endpoint: &Url, request: &ProviderRequest<'_>) -> Url {
        let mut url = endpoint.clone();
        let path = match self {
            Self::OpenAi => "chat/completions".to_owned(),
            Self::Responses => "responses".to_owned(),
            Self::Anthropic => "messages".to_owned(),
            Self::Ollama => "api/chat".to_owned(),
            Self::Gemini if request.streams => format!("models/{}:streamGenerateContent", request.model),
            Self::Gemini => format!("models/{}:generateContent", request.model),
        };
        url.set_path(&format!("{}{path}", endpoint.path()));
        if self == Self::Gemini && request.streams {
            url.query_pairs_mut().append_pair("alt", "sse");
        }
        url
    }

    /// Returns the protocol's headers, to which those of the profile are added.
    pub(super) fn headers(self, key: &Key) -> Vec<(&'static str, String)> {
        let key = key.expose();
        match self {
            Self::OpenAi | Self::Responses | Self::Ollama => {
                let bearer = key.map(|key| ("authorization", format!("Bearer {key}")));
                bearer.into_iter().collect()
            }
            Self::Anthropic => {
                let key = key.map(|key| ("x-api-key", key.to_owned()));
                let version = ("anthropic-version", "2023-06-01".to_owned());
                key.into_iter().chain([version]).collect()
            }
            Self::Gemini => key.map(|key| ("x-goog-api-key", key.to_owned())).into_iter().collect(),
        }
    }

    pub(super) fn body(self, request: &ProviderRequest<'_>) -> Result<Value, FormatError> {
        match self {
            Self::OpenAi => openai::body(request),
            Self::Responses => Ok(responses::body(request)),
            Self::Anthropic => anthropic::body(request),
            Self::Gemini => gemini::body(request),
            Self::Ollama => ollama::body(request),
        }
    }

    /// Returns the first invalid parameter for this provider, with the reason.
    pub(super) fn check(self, parameters: &Parameters) -> Result<(), (String, String)> {
        match self {
            Self::Anthropic => anthropic::check(parameters),
            Self::Ollama => ollama::check(parameters),
            Self::OpenAi | Self::Responses | Self::Gemini => Ok(()),
        }
    }

    pub(super) fn framing(self) -> Framing {
        match self {
            Self::OpenAi | Self::Responses | Self::Anthropic | Self::Gemini => Framing::Events,
            Self::Ollama => Framing::Lines,
        }
    }

    /// Reads a frame of a stream.
    pub(super) fn parse_chunk(self, frame: &StreamFrame, reply: &mut ReplyBuilder) -> Result<(), Failure> {
        if matches!(self, Self::OpenAi | Self::Responses) && frame.data.trim() == "[DONE]" {
            openai::done(reply);
            return Ok(());
        }
        let value: Value = serde_json::from_str(&frame.data)
            .map_err(|error| Failure::malformed(format!("the reply does not follow the protocol: {error}")))?;
        if !value.is_object() {
            return Err(Failure::malformed(
                "the reply does not follow the protocol: a frame is not a JSON object",
            ));
        }
        self.check_error(&value)?;
        match self {
            Self::OpenAi => openai::parse_chunk(&value, reply),
            Self::Responses => responses::parse_chunk(frame.event.as_deref(), &value, reply),
            Self::Anthropic => anthropic::parse_chunk(frame.event.as_deref(), &value, reply),
            Self::Gemini => gemini::parse_chunk(&value, reply),
            Self::Ollama => {
                ollama::parse_chunk(&value, reply);
                Ok(())
            }
        }
    }

    /// Reads a reply without streaming.
    pub(super) fn parse_response(self, body: &Value, reply: &mut ReplyBuilder) -> Result<(), Failure> {
        self.check_error(body)?;
        match self {
            Self::OpenAi => openai::parse_response(body, reply),
            Self::Responses => responses::parse_response(body, reply),
            Self::Anthropic => anthropic::parse_response(body, reply),
            Self::Gemini => gemini::parse_chunk(body, reply),
            Self::Ollama => {
                ollama::parse_chunk(body, reply);
                Ok(())
            }
        }
    }

    fn check_error(self, value: &Value) -> Result<(), Failure> {
        let checked = super::reply_builder::check_error(value);
        if self == Self::Ollama {
            checked.map_err(ollama::said_error)
        } else {
            checked
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use proptest::prelude::*;
    use proptest::sample::Index;

    use super::super::frames::Frames;
    use super::*;

    fn folder() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/wire")
    }

    /// Returns the protocol and the bytes of every recorded stream.
    fn recorded() -> Vec<(String, Protocol, Vec<u8>)> {
        let rows = std::fs::read(folder().join("replies.json")).expect("rows");
        let rows: Vec<Value> = serde_json::from_slice(&rows).expect("JSON");
        let text = |row: &Value, name: &str| row[name].as_str().expect("a text").to_owned();
        rows.iter()
            .map(|row| (text(row, "file"), text(row, "protocol")))
            .filter(|(file, _)| Path::new(file).extension().is_some_and(|ending| ending != "json"))
            .map(|(file, protocol)| {
                let protocol = if protocol == "openai responses" {
                    Protocol::Responses
                } else {
                    Protocol::of(&protocol).expect("a protocol")
                };
                let bytes = std::fs::read(folder().join(&file)).expect("a stream");
                (file, protocol, bytes)
            })
            .collect()
    }

    /// Returns the reply in these pieces of a stream, or the failure.
    fn read(protocol: Protocol, pieces: &[&[u8]]) -> String {
        let (mut frames, mut builder) = (Frames::new(protocol.framing()), ReplyBuilder::default());
        let last = std::iter::once(None);
        for piece in pieces.iter().map(Some).chain(last) {
            let new = match piece {
                Some(piece) => frames.take(piece),
                None => frames.end(),
            };
            for frame in new {
                if builder.is_over() {
                    break;
                }
                if let Err(failure) = protocol.parse_chunk(&frame, &mut builder) {
                    return format!("{failure:?}");
                }
            }
            if builder.is_over() {
                break;
            }
            if frames.is_malformed() {
                return "not UTF-8".to_owned();
            }
        }
        let reply = builder.reply(protocol.name(), "m", &Key::none());
        let mut shown = format!("{reply:?}");
        // An id of a call without one is random.
        for call in reply.iter().flat_map(|reply| &reply.tool_calls) {
            shown = shown.replace(&call.id, "an id");
        }
        shown
    }

    #[test]
    fn bytes_that_are_not_utf8_after_the_end_are_ignored_in_any_chunk() {
        let reply = b"data: {\"choices\": [{\"delta\": {\"content\": \"hi\"}, \"finish_reason\": \"stop\"}]}\n\ndata: [DONE]\n\n";
        let (garbage, cut) = (b"\xff\n".as_slice(), b"data: {\"\xff\n".as_slice());
        for rest in [garbage, cut] {
            let whole = [reply.as_slice(), rest].concat();
            let expected = read(Protocol::OpenAi, &[reply]);
            assert!(expected.starts_with("Ok"), "{expected}");
            assert_eq!(read(Protocol::OpenAi, &[reply, rest]), expected);
            assert_eq!(read(Protocol::OpenAi, &[&whole]), expected, "in one chunk");
            // Before the end they are a failure.
            assert_eq!(read(Protocol::OpenAi, &[rest, reply]), "not UTF-8");
        }
    }

    proptest! {
        #[test]
        fn a_recorded_reply_does_not_depend_on_chunk_boundaries(cuts in prop::collection::vec(any::<Index>(), 1..40)) {
            for (file, protocol, bytes) in recorded() {
                let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len())).collect();
                at.extend([0, bytes.len()]);
                at.sort_unstable();
                let pieces: Vec<&[u8]> = at.windows(2).map(|ends| &bytes[ends[0]..ends[1]]).collect();
                prop_assert_eq!(read(protocol, &pieces), read(protocol, &[&bytes]), "{}", file);
            }
        }
    }
}
