//! `summarize`: planned here, written by a model, finished here.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::super::{ConversationError, Tokenizer};
use super::context::{CompressionContext, CompressionResult, Smaller, cost};
use super::keep::system_and_recent;
use crate::message::{Message, Role};

/// The metadata key that makes a message a summary: `{ids[], count, batch}` of what it stands for.
const SUMMARY_OF: &str = "summaryOf";

/// The messages to summarize, and those that stay.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SummaryPlan {
    /// Goes to the model, in order; an earlier summary is among it.
    pub to_summarize: Vec<Arc<Message>>,
    /// System messages; stand first.
    pub system: Vec<Arc<Message>>,
    /// Follow the summary.
    pub kept: Vec<Arc<Message>>,
    /// The position of each of `to_summarize` among the visible messages.
    places: Vec<usize>,
    context: CompressionContext,
}

impl SummaryPlan {
    /// False where even a summary of no length would not pay for what no cache has then.
    pub(super) fn may_pay(&self, tokenizer: &dyn Tokenizer) -> bool {
        let saved = cost(&self.to_summarize, tokenizer);
        self.context.pays(saved, || cost(&self.kept, tokenizer))
    }
}

/// The messages a summary would replace: all but system messages, pinned ones, the last `keep_recent` others, the current
/// turn. None where that is nothing, or only an earlier summary.
///
/// # Errors
/// [`ConversationError::InvalidMarkMap`].
pub fn plan_summary(
    context: &CompressionContext,
    keep_recent: usize,
) -> Result<Option<SummaryPlan>, ConversationError> {
    let visible = context.visible()?;
    let flags = system_and_recent(visible, keep_recent);
    let mut plan = SummaryPlan {
        to_summarize: Vec::new(),
        system: Vec::new(),
        kept: Vec::new(),
        places: Vec::new(),
        context: context.clone(),
    };
    for (place, (message, kept)) in visible.iter().zip(flags).enumerate() {
        let part = match (message.role, kept) {
            (Role::System, _) => &mut plan.system,
            (_, true) => &mut plan.kept,
            (_, false) => {
                plan.places.push(place);
                &mut plan.to_summarize
            }
        };
        part.push(Arc::clone(message));
    }
    let anything_new = plan.to_summarize.iter().any(|message| summary_of(message).is_none());
    Ok(anything_new.then_some(plan))
}

/// The result with `text` as the summary. No change where that would not be smaller, or the text is blank.
pub fn finish_summary(plan: &SummaryPlan, text: &str, tokenizer: &dyn Tokenizer) -> CompressionResult {
    let visible = plan.system.len() + plan.kept.len() + plan.to_summarize.len();
    if text.trim().is_empty() {
        return plan.context.unchanged(visible);
    }
    let mut summary = Message::new(Role::User, text);
    summary.metadata = Some(stands_for(plan));
    let shown = plan
        .system
        .iter()
        .cloned()
        .chain([Arc::new(summary)])
        .chain(plan.kept.iter().cloned());
    plan.context.result(shown.collect(), Smaller::Messages, tokenizer)
}

/// The ids of what the summary stands for, an earlier summary's included. A message without an id is named by its batch
/// and place there: `0:3`; `batch` is what `rollbackToBatch` brings them back with.
fn stands_for(plan: &SummaryPlan) -> Map<String, Value> {
    let batch = plan.context.mark_map.current_batch;
    let mut ids = Vec::new();
    let mut count = 0_u64;
    for (message, place) in plan.to_summarize.iter().zip(&plan.places) {
        if let Some(earlier) = summary_of(message) {
            ids.extend(
                earlier
                    .get("ids")
                    .and_then(Value::as_array)
                    .into_iter()
                    .flatten()
                    .cloned(),
            );
            count = count.saturating_add(earlier.get("count").and_then(Value::as_u64).unwrap_or(1));
            continue;
        }
        count = count.saturating_add(1);
        ids.push(match &message.id {
            Some(id) => json!(id),
            None => json!(format!("{batch}:{place}")),
        });
    }
    let mut metadata = Map::new();
    metadata.insert(
        SUMMARY_OF.to_owned(),
        json!({"ids": ids, "count": count, "batch": batch}),
    );
    metadata
}

/// True if the message is a summary of others.
pub fn is_summary(message: &Message) -> bool {
    summary_of(message).is_some()
}

fn summary_of(message: &Message) -> Option<&Map<String, Value>> {
    message.metadata.as_ref()?.get(SUMMARY_OF)?.as_object()
}
