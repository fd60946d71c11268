//! What a reasoning model must see again between the tool rounds of a turn: thinking blocks with their signatures,
//! reasoning text, thought signatures of calls.
//!
//! 1. It stands in the assistant message's `metadata.reasoning`, opaque to everybody else, and only where the message asks
//!    for tools: providers want it nowhere else.
//! 2. It goes back to the provider and model that it came from and to no other, and only within the turn that it was said
//!    in: what came after the last assistant message without tool calls.

use std::collections::BTreeMap;

use genai::chat::{ContentPart, CustomPart};
use pirn_core::conversation::ModelRequest;
use pirn_core::message::{Message, Role};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::protocol::Protocol;

/// Its name in a message's metadata.
const FIELD: &str = "reasoning";

/// Who said it, and who may see it again.
#[derive(Clone, Copy)]
pub(super) struct Speaker<'a> {
    pub(super) protocol: Protocol,
    pub(super) model: &'a str,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Kept {
    provider: String,
    model: String,
    /// In the order in which they came.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    thoughts: Vec<Thought>,
    /// By the id of the call.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    signatures: BTreeMap<String, Vec<String>>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Thought {
    Text(String),
    Signature(String),
    /// As the provider wrote it: a redacted block.
    Block(Value),
}

/// The metadata of a reply that asks for tools. `parts` are the reply's, `text` is reasoning that came beside them, and
/// `signatures` are those of its calls, by id.
pub(super) fn metadata(
    speaker: Speaker<'_>,
    parts: impl IntoIterator<Item = ContentPart>,
    text: Option<String>,
    signatures: BTreeMap<String, Vec<String>>,
) -> Option<Map<String, Value>> {
    let mut thoughts: Vec<Thought> = parts.into_iter().filter_map(thought).collect();
    if speaker.protocol.reasons_beside_its_reply() {
        thoughts.extend(text.filter(|text| !text.is_empty()).map(Thought::Text));
    }
    if thoughts.is_empty() && signatures.is_empty() {
        return None;
    }
    let kept = Kept {
        provider: speaker.protocol.name().to_owned(),
        model: speaker.model.to_owned(),
        thoughts,
        signatures,
    };
    Some(Map::from_iter([(FIELD.to_owned(), json!(kept))]))
}

fn thought(part: ContentPart) -> Option<Thought> {
    match part {
        ContentPart::ReasoningContent(text) => Some(Thought::Text(text)),
        ContentPart::ThoughtSignature(signature) => Some(Thought::Signature(signature)),
        ContentPart::Custom(custom) => Some(Thought::Block(custom.data)),
        ContentPart::Text(_) | ContentPart::Binary(_) | ContentPart::ToolCall(_) | ContentPart::ToolResponse(_) => None,
    }
}

/// What goes back to the one who said it.
#[derive(Default)]
pub(super) struct Recalled {
    /// Before the text and the calls.
    pub(super) parts: Vec<ContentPart>,
    signatures: BTreeMap<String, Vec<String>>,
}

impl Recalled {
    /// Of a message of the current turn.
    pub(super) fn of(message: &Message, speaker: Speaker<'_>) -> Self {
        let written = message.metadata.as_ref().and_then(|metadata| metadata.get(FIELD));
        // Anybody may write metadata: what is not ours is nobody's.
        let kept = written.and_then(|written| Kept::deserialize(written).ok());
        match kept {
            Some(kept) if kept.provider == speaker.protocol.name() && kept.model == speaker.model => Self {
                parts: kept.thoughts.into_iter().map(part).collect(),
                signatures: kept.signatures,
            },
            Some(_) | None => Self::default(),
        }
    }

    /// The signatures of one of the message's calls.
    pub(super) fn signatures_of(&mut self, call: &str) -> Option<Vec<String>> {
        self.signatures.remove(call)
    }
}

fn part(thought: Thought) -> ContentPart {
    match thought {
        Thought::Text(text) => ContentPart::ReasoningContent(text),
        Thought::Signature(signature) => ContentPart::ThoughtSignature(signature),
        Thought::Block(data) => ContentPart::Custom(CustomPart { model_iden: None, data }),
    }
}

/// Where the current turn begins among a request's messages.
pub(super) fn turn_start(request: &ModelRequest) -> usize {
    let said = |message: &Message| message.role == Role::Assistant && !message.asks_for_tools();
    let last = request.messages.iter().rposition(|message| said(message));
    last.map_or(0, |last| last + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPEAKER: Speaker<'static> = Speaker {
        protocol: Protocol::Anthropic,
        model: "m",
    };

    fn message(metadata: Option<Map<String, Value>>) -> Message {
        Message {
            metadata,
            ..Message::new(Role::Assistant, "")
        }
    }

    fn said() -> Message {
        let parts = [
            ContentPart::ThoughtSignature("s".to_owned()),
            ContentPart::ReasoningContent("hm".to_owned()),
            ContentPart::Text("no thought".to_owned()),
            ContentPart::Custom(CustomPart {
                model_iden: None,
                data: json!({"type": "redacted_thinking", "data": "x"}),
            }),
        ];
        let signatures = BTreeMap::from([("c1".to_owned(), vec!["t".to_owned()])]);
        message(metadata(SPEAKER, parts, Some("beside".to_owned()), signatures))
    }

    #[test]
    fn what_was_kept_comes_back_in_order_to_who_said_it() {
        let mut recalled = Recalled::of(&said(), SPEAKER);
        let shown: Vec<String> = recalled.parts.iter().map(|part| json!(part).to_string()).collect();
        assert!(
            matches!(&recalled.parts[0], ContentPart::ThoughtSignature(s) if s == "s"),
            "{shown:?}"
        );
        assert!(
            matches!(&recalled.parts[1], ContentPart::ReasoningContent(s) if s == "hm"),
            "{shown:?}"
        );
        assert!(matches!(&recalled.parts[2], ContentPart::Custom(_)), "{shown:?}");
        assert_eq!(recalled.parts.len(), 3, "{shown:?}");
        assert_eq!(recalled.signatures_of("c1"), Some(vec!["t".to_owned()]));
        assert_eq!(recalled.signatures_of("c2"), None);
    }

    #[test]
    fn nobody_else_sees_it() {
        let others = [
            Speaker { model: "n", ..SPEAKER },
            Speaker {
                protocol: Protocol::Gemini,
                ..SPEAKER
            },
        ];
        for speaker in others {
            let mut recalled = Recalled::of(&said(), speaker);
            assert!(recalled.parts.is_empty());
            assert_eq!(recalled.signatures_of("c1"), None);
        }
        let odd = Map::from_iter([(FIELD.to_owned(), json!("mine"))]);
        assert!(Recalled::of(&message(Some(odd)), SPEAKER).parts.is_empty());
    }

    #[test]
    fn a_reply_without_any_keeps_nothing() {
        assert_eq!(metadata(SPEAKER, [], Some("beside".to_owned()), BTreeMap::new()), None);
    }
}
