//! Input and result of a compression.

use std::sync::Arc;

use pirn_definition::definition::CompressionConfig;
use pirn_definition::message::Message;
use serde::{Deserialize, Serialize};

use super::super::{ConversationError, MarkMap, Tokenizer, message_cost};
use super::facts::FactKind;

/// Input of a compression. The current batch of `markMap`, which refers to `messages`, is compressed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CompressionContext {
    /// Id of the thread that owns the conversation.
    #[serde(default)]
    pub thread_id: String,
    /// Id of the thread's workflow.
    #[serde(default)]
    pub workflow_id: String,
    /// Messages in order.
    pub messages: Vec<Arc<Message>>,
    /// Marks, which determine the visible messages; absent: all are visible.
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

/// Result of a compression. The current batch of `markMap`, which refers to `messages`, becomes visible. Without a change, both
/// equal those of the input.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CompressionResult {
    /// Messages in order.
    pub messages: Vec<Arc<Message>>,
    /// Marks, which determine the visible messages.
    pub mark_map: MarkMap,
    /// Statistics of the compression.
    #[serde(default)]
    pub stats: CompressionStats,
}

/// Statistics of a compression.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CompressionStats {
    /// Number of visible messages before the compression.
    pub original_count: u64,
    /// Number of visible messages after the compression.
    pub compressed_count: u64,
    /// Number of tokens saved in the visible messages.
    pub tokens_saved: u64,
    /// Statistics of the facts, with `keepFacts`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub facts: Option<FactStats>,
}

/// Facts of the summarized messages that are still visible. The messages of earlier compressions are included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FactStats {
    /// Number of distinct facts.
    pub total: u64,
    /// Number of facts in the summary or in a retained message.
    pub kept: u64,
    /// Number of messages retained verbatim for their facts.
    pub verbatim: u64,
    /// False if the share `keepFacts` was not reached because no other message fits.
    pub is_met: bool,
    /// Numbers of facts by kind.
    pub kinds: FactKinds,
}

/// Numbers of facts by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FactKinds {
    /// Amounts and counts.
    pub number: KeptFacts,
    /// Dates and times.
    pub date: KeptFacts,
    /// Words of letters and digits.
    pub id: KeptFacts,
    /// Capitalized words.
    pub name: KeptFacts,
    /// Negated words.
    pub negation: KeptFacts,
}

/// Number of facts, and of those that are still visible.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct KeptFacts {
    /// Number of distinct facts.
    pub total: u64,
    /// Number of facts in the summary or in a retained message.
    pub kept: u64,
}

impl FactKinds {
    pub(super) fn count(&mut self, kind: FactKind, is_kept: bool) {
        let of = match kind {
            FactKind::Number => &mut self.number,
            FactKind::Date => &mut self.date,
            FactKind::Id => &mut self.id,
            FactKind::Name => &mut self.name,
            FactKind::Negation => &mut self.negation,
        };
        of.total += 1;
        of.kept += u64::from(is_kept);
    }
}

/// Returns the tokens of messages.
pub(super) fn cost(messages: &[Arc<Message>], tokenizer: &dyn Tokenizer) -> u64 {
    let costs = messages.iter().map(|message| message_cost(message, tokenizer));
    // Counts may come from a host's tokenizer: a huge one must not wrap around.
    costs.fold(0, u64::saturating_add)
}

/// Criterion for a smaller result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SizeCriterion {
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
        // Before the ranges are used as indices: a context may come from outside as JSON.
        self.mark_map.check(self.messages.len())?;
        match &*self.mark_map.visible(self.messages.len()) {
            [] => Ok(&[]),
            // Borrowed: one range is a slice and needs no copy.
            [stretch] => Ok(&self.messages[stretch.clone()]),
            // Only a rollback makes a gap. The callers in the run pass the visible messages alone.
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
        // `again` counts tokens and is evaluated only if `payback` is set.
        requests.is_none_or(|requests| requests.saturating_mul(saved) > again())
    }

    pub(super) fn unchanged(&self, visible: usize) -> CompressionResult {
        CompressionResult {
            // Copies pointers only.
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
    pub(super) fn result(
        &self,
        shown: Vec<Arc<Message>>,
        by: SizeCriterion,
        tokenizer: &dyn Tokenizer,
    ) -> CompressionResult {
        // `compress` has returned the error of an invalid map already.
        let visible = self.visible().unwrap_or_default();
        let is_fewer = match by {
            SizeCriterion::Messages => shown.len() < visible.len(),
            SizeCriterion::Tokens => true,
        };
        // Compared first, because the token counts below read all messages.
        if !is_fewer {
            return self.unchanged(visible.len());
        }
        let (before, after) = (cost(visible, tokenizer), cost(&shown, tokenizer));
        let saved = before.saturating_sub(after);
        // The provider's cache still serves these messages: only the ones after them are processed again.
        let same = visible.iter().zip(&shown).take_while(|(was, is)| was == is).count();
        // A result without savings would break the cache of the provider for nothing.
        if saved == 0 || !self.pays(saved, || cost(&shown[same..], tokenizer)) {
            return self.unchanged(visible.len());
        }
        CompressionResult {
            // A new batch number, so that an applied result differs from an unchanged one.
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
