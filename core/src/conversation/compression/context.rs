//! The input of a compression and its result.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::super::{ConversationError, MarkMap, Tokenizer, message_cost};
use crate::definition::CompressionConfig;
use crate::message::Message;

/// The input. `messages` are those that `markMap` is about: its current batch is what gets compressed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct CompressionContext {
    /// The thread whose conversation it is.
    #[serde(default)]
    pub thread_id: String,
    /// Its workflow.
    #[serde(default)]
    pub workflow_id: String,
    /// Messages, in order.
    pub messages: Vec<Arc<Message>>,
    /// Which of them are visible; absent: all.
    #[serde(default)]
    pub mark_map: MarkMap,
    /// Tokens of the next request.
    #[serde(default)]
    pub tokens_used: u64,
    /// The token limit of a request.
    #[serde(default)]
    pub token_limit: u64,
    /// Strategy and parameters; absent: no-op.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compression_config: Option<CompressionConfig>,
}

/// The output. `markMap` is about `messages`: its current batch is what becomes visible. No change: both are the
/// context's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct CompressionResult {
    /// Messages, in order.
    pub messages: Vec<Arc<Message>>,
    /// Which of them are visible.
    pub mark_map: MarkMap,
    /// Its figures.
    #[serde(default)]
    pub stats: CompressionStats,
}

/// The figures of a compression.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct CompressionStats {
    /// Visible messages before.
    pub original_count: u64,
    /// Visible messages after.
    pub compressed_count: u64,
    /// Tokens that the visible messages cost less.
    pub tokens_saved: u64,
    /// The facts that were kept, where `keepFacts` asks for that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub facts: Option<FactStats>,
}

/// The facts of what was summarized, as far as they are still shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct FactStats {
    /// Facts, each once.
    pub total: u64,
    /// Those that the summary has, or a message beside it.
    pub kept: u64,
    /// Messages that stay word for word beside the summary.
    pub verbatim: u64,
    /// False where less than `keepFacts` is kept, because nothing more fits.
    pub is_met: bool,
}

/// Returns the tokens of messages.
pub(super) fn cost(messages: &[Arc<Message>], tokenizer: &dyn Tokenizer) -> u64 {
    let costs = messages.iter().map(|message| message_cost(message, tokenizer));
    costs.fold(0, u64::saturating_add)
}

/// Criterion for a smaller result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Smaller {
    /// Fewer messages.
    Messages,
    /// An equal number of messages, some of them shorter.
    Tokens,
}

impl CompressionContext {
    /// Returns the visible messages.
    ///
    /// # Errors
    /// Returns [`ConversationError::InvalidMarkMap`] if the map is invalid or its current batch has a gap.
    pub fn visible(&self) -> Result<&[Arc<Message>], ConversationError> {
        self.mark_map.check(self.messages.len())?;
        match &*self.mark_map.visible(self.messages.len()) {
            [] => Ok(&[]),
            [stretch] => Ok(&self.messages[stretch.clone()]),
            [_, _, ..] => Err(ConversationError::InvalidMarkMap {
                pointer: "/setAside".to_owned(),
                message: "the current batch has a gap: give its visible messages alone".to_owned(),
            }),
        }
    }

    /// Returns true if `payback` requests save more tokens than the provider's cache loses by the change (`again`), or `payback` is
    /// not set.
    pub(super) fn pays(&self, saved: u64, again: impl FnOnce() -> u64) -> bool {
        let config = self.compression_config.as_ref();
        let requests = config.and_then(|config| config.parameters.get("payback")?.as_u64());
        requests.is_none_or(|requests| requests.saturating_mul(saved) > again())
    }

    pub(super) fn unchanged(&self, visible: usize) -> CompressionResult {
        CompressionResult {
            messages: self.messages.clone(),
            mark_map: self.mark_map.clone(),
            stats: CompressionStats {
                original_count: visible as u64,
                compressed_count: visible as u64,
                tokens_saved: 0,
                facts: None,
            },
        }
    }

    /// Returns `shown` as a new batch if it has fewer tokens and satisfies `by`, else the unchanged messages.
    pub(super) fn result(&self, shown: Vec<Arc<Message>>, by: Smaller, tokenizer: &dyn Tokenizer) -> CompressionResult {
        let visible = self.visible().unwrap_or_default();
        let is_fewer = match by {
            Smaller::Messages => shown.len() < visible.len(),
            Smaller::Tokens => true,
        };
        if !is_fewer {
            return self.unchanged(visible.len());
        }
        let (before, after) = (cost(visible, tokenizer), cost(&shown, tokenizer));
        let saved = before.saturating_sub(after);
        let same = visible.iter().zip(&shown).take_while(|(was, is)| was == is).count();
        if saved == 0 || !self.pays(saved, || cost(&shown[same..], tokenizer)) {
            return self.unchanged(visible.len());
        }
        CompressionResult {
            mark_map: MarkMap::starting_with(self.mark_map.current_batch.saturating_add(1)),
            stats: CompressionStats {
                original_count: visible.len() as u64,
                compressed_count: shown.len() as u64,
                tokens_saved: saved,
                facts: None,
            },
            messages: shown,
        }
    }
}
