//! Reasoning that a model needs again between the tool rounds of a turn: thinking blocks with their signatures, reasoning text, and
//! signatures of calls. It is stored in the assistant message's `metadata.reasoning` and is opaque to all other code.

use std::collections::BTreeMap;

use pirn_definition::message::Message;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::Format;

/// Key of the reasoning in a message's metadata.
const FIELD: &str = "reasoning";

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Kept {
    provider: String,
    /// `None` in a conversation that was read from another format.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    /// Pieces in order of arrival.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    thoughts: Vec<Thought>,
    /// Signatures by call id.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    signatures: BTreeMap<String, Vec<String>>,
}

/// A piece of reasoning.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Thought {
    /// Text of the reasoning.
    Text(String),
    /// Signature of the text before it, which may be empty.
    Signature(String),
    /// A block in the provider's format: a redacted block, a reasoning item.
    Block(Value),
}

/// The reasoning of one message.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recalled {
    /// Pieces in order of arrival.
    pub thoughts: Vec<Thought>,
    signatures: BTreeMap<String, Vec<String>>,
}

impl Recalled {
    /// Creates the reasoning of a reply from its text and its blocks.
    pub(super) fn of_parts<'a>(text: Option<&str>, blocks: impl IntoIterator<Item = &'a Value>) -> Self {
        let text = text
            .filter(|text| !text.is_empty())
            .map(|text| Thought::Text(text.to_owned()));
        let blocks = blocks.into_iter().cloned().map(Thought::Block);
        Self {
            thoughts: text.into_iter().chain(blocks).collect(),
            signatures: BTreeMap::new(),
        }
    }

    /// Adds a signature of a call.
    pub(crate) fn sign(&mut self, call: &str, signature: &str) {
        self.signatures
            .entry(call.to_owned())
            .or_default()
            .push(signature.to_owned());
    }

    /// Returns whether there is no reasoning.
    pub(crate) fn is_empty(&self) -> bool {
        self.thoughts.is_empty() && self.signatures.is_empty()
    }

    /// Takes the signature of one of the message's calls.
    pub(super) fn signature_of(&mut self, call: &str) -> Option<String> {
        self.signatures.remove(call)?.into_iter().next()
    }

    /// Returns the text and the blocks, for a format that separates them from the reply.
    pub(super) fn beside(self) -> (Option<String>, Vec<Value>) {
        let (mut texts, mut blocks) = (Vec::new(), Vec::new());
        for thought in self.thoughts {
            match thought {
                Thought::Text(text) => texts.push(text),
                Thought::Block(block) => blocks.push(block),
                Thought::Signature(_) => {}
            }
        }
        ((!texts.is_empty()).then(|| texts.join("\n")), blocks)
    }

    #[cfg(feature = "providers")]
    /// Returns the blocks only.
    pub(super) fn blocks(self) -> Vec<Value> {
        self.beside().1
    }
}

/// Returns message metadata that contains the reasoning of a reply of `provider`'s `model`.
pub(crate) fn metadata(provider: &str, model: Option<&str>, recalled: Recalled) -> Option<Map<String, Value>> {
    if recalled.is_empty() {
        return None;
    }
    let kept = Kept {
        provider: provider.to_owned(),
        model: model.map(str::to_owned),
        thoughts: recalled.thoughts,
        signatures: recalled.signatures,
    };
    Some(Map::from_iter([(FIELD.to_owned(), json!(kept))]))
}

/// Stores the reasoning in a message that was read.
pub(super) fn note(message: &mut Message, provider: &str, recalled: Recalled) {
    if let Some(kept) = metadata(provider, None, recalled) {
        message.metadata.get_or_insert_default().extend(kept);
    }
}

#[cfg(feature = "providers")]
/// Returns the reasoning that is sent back to `provider`'s `model`, and to no other.
pub(crate) fn for_model(message: &Message, provider: &str, model: &str) -> Recalled {
    let is_its = |kept: &Kept| kept.provider == provider && kept.model.as_deref() == Some(model);
    kept(message).filter(is_its).map(recalled).unwrap_or_default()
}

/// Returns the reasoning for a conversation written in `format`, from any model of that provider.
pub(super) fn of_format(message: &Message, format: Format) -> Recalled {
    let is_its = |kept: &Kept| kept.provider == format.name();
    kept(message).filter(is_its).map(recalled).unwrap_or_default()
}

/// Returns the stored reasoning. Metadata of another shape, which anyone may write, is ignored.
fn kept(message: &Message) -> Option<Kept> {
    let written = message.metadata.as_ref()?.get(FIELD)?;
    Kept::deserialize(written).ok()
}

fn recalled(kept: Kept) -> Recalled {
    Recalled {
        thoughts: kept.thoughts,
        signatures: kept.signatures,
    }
}
