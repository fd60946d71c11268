//! `summarize`: plans a summary, which a model writes, and applies it.

use std::sync::Arc;

use pirn_definition::message::{Message, Role};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::super::{ConversationError, Tokenizer, message_cost};
use super::checklist::{CHECKLIST, Checklist, Collected, Limits, Size, collected, instructions, rendered};
use super::context::{CompressionContext, CompressionResult, FactStats, SizeCriterion, cost};
use super::facts::KnownFacts;
use super::keep::system_and_recent;
use super::parameters;
use super::verbatim::Verbatim;

/// Metadata key that marks a summary: `{ids[], count, batch, verbatim?, facts?}` of the summarized messages.
const SUMMARY_OF: &str = "summaryOf";

/// Field with the number of messages retained for their facts. They follow the summary directly.
const VERBATIM: &str = "verbatim";

/// Field with the figures of the facts.
const FACTS: &str = "facts";

/// Messages to summarize, and messages to retain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SummaryPlan {
    /// Messages for the model, in order, including earlier summaries.
    pub to_summarize: Vec<Arc<Message>>,
    /// System messages, which come first.
    pub system: Vec<Arc<Message>>,
    /// Messages after the summary.
    pub kept: Vec<Arc<Message>>,
    /// Positions of `to_summarize` among the visible messages.
    places: Vec<usize>,
    /// Positions of `kept`.
    kept_places: Vec<usize>,
    context: CompressionContext,
}

impl SummaryPlan {
    /// Returns false if even an empty summary would save less than the provider's cache loses.
    pub(super) fn may_pay(&self, tokenizer: &dyn Tokenizer) -> bool {
        // The summary is unknown, so that the largest possible saving is compared.
        let saved = cost(&self.to_summarize, tokenizer);
        self.context.pays(saved, || cost(&self.kept, tokenizer))
    }
}

/// Selects the messages to summarize: all except system messages, pinned ones, the last `keep_recent` others, and the current turn.
/// Returns `None` if that is nothing, or only an earlier summary.
///
/// # Errors
/// Returns [`ConversationError::InvalidMarkMap`] for an invalid mark map.
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
        // Positions survive the split: `stands_for` and `shown` need them.
        kept_places: Vec::new(),
        context: context.clone(),
    };
    for (place, (message, kept)) in visible.iter().zip(flags).enumerate() {
        let part = match (message.role, kept) {
            // Before the flags: a system message is never summarized.
            (Role::System, _) => &mut plan.system,
            (_, true) => {
                plan.kept_places.push(place);
                &mut plan.kept
            }
            (_, false) => {
                plan.places.push(place);
                &mut plan.to_summarize
            }
        };
        part.push(Arc::clone(message));
    }
    // Otherwise each compression would summarize the last summary again, and lose facts each time.
    Ok(has_new(&plan.to_summarize).then_some(plan))
}

/// Returns true if anything to summarize is neither a summary nor a message retained with one for its facts.
fn has_new(to_summarize: &[Arc<Message>]) -> bool {
    // The messages that a summary retained follow it directly: see `SummaryPlan::shown`.
    let mut beside = 0;
    to_summarize.iter().any(|message| match summary_of(message) {
        Some(summary) => {
            beside = summary.get(VERBATIM).and_then(Value::as_u64).unwrap_or(0);
            false
        }
        None if beside > 0 => {
            beside -= 1;
            false
        }
        None => true,
    })
}

/// Applies `text` as the summary. Nothing changes if the result would not be smaller, or the text is blank.
///
/// With `keepFacts`, messages with facts that the text lacks are retained verbatim: the newest first, by whole tool blocks, until
/// the share of facts is reached or no other one fits in a result that is still smaller, or in one fourth of the token limit.
pub fn finish_summary(plan: &SummaryPlan, text: &str, tokenizer: &dyn Tokenizer) -> CompressionResult {
    let visible = plan.system.len() + plan.kept.len() + plan.to_summarize.len();
    // A blank summary would delete the messages that it replaces.
    if text.trim().is_empty() {
        return plan.context.unchanged(visible);
    }
    let config = plan.context.compression_config.as_ref();
    // Validated when the summary was planned.
    let floor = config.and_then(|config| parameters::keep_facts(&config.parameters).ok().flatten());
    // Without `keepFacts` no facts are extracted, which would read all messages.
    let Some(floor) = floor else {
        let stays = vec![false; plan.to_summarize.len()];
        let shown = plan.shown(text, &stays, (None, None));
        return plan.context.result(shown, SizeCriterion::Messages, tokenizer);
    };
    let mut verbatim = Verbatim::new(&plan.to_summarize, |_| false, &KnownFacts::new(), text, tokenizer);
    verbatim.fill(floor, plan.context.token_limit);
    let mut result = plan.context.result(
        plan.shown(text, &verbatim.stays, (None, None)),
        SizeCriterion::Messages,
        tokenizer,
    );
    // An unchanged result contains no summary to which the figures would apply.
    if result.stats.tokens_saved > 0 {
        result.stats.facts = Some(verbatim.facts(floor));
    }
    result
}

/// Result of a summary with a checklist.
#[derive(Clone, Debug, PartialEq)]
pub struct Summarized {
    /// Result of the compression.
    pub result: CompressionResult,
    /// Sentences of the model's summary that are worded as instructions and are not in the user's messages.
    pub instructions: Vec<String>,
}

/// Applies a checklist of the messages as the summary, followed by the quotation of a model's summary if there is one. Without one, the
/// quotation of the last compression is retained.
///
/// `keepFacts` has the effect that [`finish_summary`] describes.
pub fn finish_with_checklist(plan: &SummaryPlan, text: Option<&str>, tokenizer: &dyn Tokenizer) -> Summarized {
    let (limits, floor) = plan.parameters();
    let text = text.map(str::trim).filter(|text| !text.is_empty());
    let (mut list, content) = plan.checklist(&limits, text, tokenizer);
    let mut stays = vec![false; plan.to_summarize.len()];
    let mut facts = None;
    if let Some(floor) = floor {
        let mut verbatim = Verbatim::new(&plan.to_summarize, is_summary, &list.facts, &content, tokenizer);
        verbatim.fill(floor, plan.context.token_limit);
        facts = Some(verbatim.facts(floor));
        list.facts = verbatim.known();
        stays = verbatim.stays;
    }
    let shown = plan.shown(&content, &stays, (Some(&list), facts.as_ref()));
    let mut result = plan.context.result(shown, SizeCriterion::Messages, tokenizer);
    // An unchanged result contains no summary to which the figures would apply.
    if result.stats.tokens_saved > 0 {
        result.stats.facts = facts;
    }
    let instructions = match &list.summary {
        Some(summary) if text.is_some() => instructions(summary, &list.statements),
        Some(_) | None => Vec::new(),
    };
    Summarized { result, instructions }
}

/// Returns sentences with facts that a summary with this text of a model lacks, in order; none if it has the share `keepFacts`.
pub fn missing_statements(plan: &SummaryPlan, text: &str, tokenizer: &dyn Tokenizer) -> Vec<String> {
    let (limits, Some(floor)) = plan.parameters() else {
        return Vec::new();
    };
    let (list, content) = plan.checklist(&limits, Some(text), tokenizer);
    Verbatim::new(&plan.to_summarize, is_summary, &list.facts, &content, tokenizer).missing(floor)
}

impl SummaryPlan {
    /// Returns the limits of the checklist, and the share `keepFacts`.
    fn parameters(&self) -> (Limits, Option<f64>) {
        let config = self.context.compression_config.as_ref();
        let none = Map::new();
        let parameters = config.map_or(&none, |config| &config.parameters);
        // Both are validated when the summary is planned.
        let limits = parameters::checklist(parameters).unwrap_or(Limits::DEFAULT);
        (limits, parameters::keep_facts(parameters).ok().flatten())
    }

    /// Returns the checklist of the messages to summarize, with the summary of a model, and its text.
    fn checklist(&self, limits: &Limits, summary: Option<&str>, tokenizer: &dyn Tokenizer) -> (Checklist, String) {
        let batch = self.context.mark_map.current_batch;
        let named = self.to_summarize.iter().zip(&self.places);
        let mut list = collected(named.map(|(message, place)| Collected {
            message,
            id: id_of(message, batch, *place),
            is_summary: is_summary(message),
        }));
        if let Some(summary) = summary {
            // The model has read the earlier one, which the new one replaces.
            list.summary = Some(summary.to_owned());
        }
        let mut count = 0_u64;
        let mut size = Size {
            visible: cost(&self.system, tokenizer).saturating_add(cost(&self.kept, tokenizer)),
            limit: self.context.token_limit,
            summaries: 0,
            messages: 0,
        };
        for message in &self.to_summarize {
            let tokens = message_cost(message, tokenizer);
            let earlier = summary_of(message);
            count = count.saturating_add(earlier.map_or(1, replaced));
            let part = if earlier.is_some() {
                &mut size.summaries
            } else {
                &mut size.messages
            };
            *part = part.saturating_add(tokens);
            size.visible = size.visible.saturating_add(tokens);
        }
        let text = rendered(&mut list, limits, &size, count, tokenizer);
        (list, text)
    }

    /// Returns the messages with the summary: system messages, summary, then the retained ones in order.
    fn shown(
        &self,
        text: &str,
        stays: &[bool],
        (list, facts): (Option<&Checklist>, Option<&FactStats>),
    ) -> Vec<Arc<Message>> {
        // Of the user: an assistant's message without calls would end a turn, and a system message is never summarized again.
        let mut summary = Message::new(Role::User, text);
        let mut metadata = stands_for(self, stays);
        if let (Some(facts), Some(summary)) = (facts, metadata.get_mut(SUMMARY_OF)) {
            // The report has the figures of each compression, even if no event is subscribed to.
            summary[FACTS] = json!(facts);
        }
        if let Some(list) = list {
            metadata.insert(CHECKLIST.to_owned(), json!(list));
        }
        summary.metadata = Some(metadata);
        let verbatim = self.places.iter().zip(&self.to_summarize).zip(stays);
        let verbatim = verbatim.filter(|(_, stays)| **stays).map(|(message, _)| message);
        let mut beside: Vec<_> = verbatim.chain(self.kept_places.iter().zip(&self.kept)).collect();
        // Both lists are sorted, but messages retained for their facts may be between the others.
        beside.sort_by_key(|(place, _)| **place);
        let system = self.system.iter().cloned().chain([Arc::new(summary)]);
        system
            .chain(beside.into_iter().map(|(_, message)| Arc::clone(message)))
            .collect()
    }
}

/// Returns the ids of the summarized messages, and their number with those that earlier summaries among them replaced. A message
/// without an id is identified by batch and position, such as `0:3`. `rollbackToBatch` with `batch` makes the messages visible again.
fn stands_for(plan: &SummaryPlan, stays: &[bool]) -> Map<String, Value> {
    let batch = plan.context.mark_map.current_batch;
    let mut ids = Vec::new();
    let mut count = 0_u64;
    let all = plan.to_summarize.iter().zip(&plan.places).zip(stays);
    for (message, place) in all.filter(|(_, stays)| !**stays).map(|(message, _)| message) {
        count = count.saturating_add(summary_of(message).map_or(1, replaced));
        // The id of an earlier summary and not the ids in it: with those, the summaries of a long conversation would have a size
        // that is quadratic in the number of its messages.
        ids.push(json!(id_of(message, batch, *place)));
    }
    let mut summary = json!({"ids": ids, "count": count, "batch": batch});
    let verbatim = stays.iter().filter(|stays| **stays).count();
    if verbatim > 0 {
        // Absent instead of 0, so that summaries without `keepFacts` are unchanged.
        summary[VERBATIM] = json!(verbatim);
    }
    let mut metadata = Map::new();
    metadata.insert(SUMMARY_OF.to_owned(), summary);
    metadata
}

/// Returns the id of a message; of one without an id, its batch and position.
fn id_of(message: &Message, batch: u64, place: usize) -> String {
    message.id.clone().unwrap_or_else(|| format!("{batch}:{place}"))
}

/// Returns the number of messages that a summary replaces.
fn replaced(summary: &Map<String, Value>) -> u64 {
    // A summary without a count, which another tool wrote, replaces at least one message.
    summary.get("count").and_then(Value::as_u64).unwrap_or(1)
}

/// Returns true if the message is a summary.
pub fn is_summary(message: &Message) -> bool {
    summary_of(message).is_some()
}

fn summary_of(message: &Message) -> Option<&Map<String, Value>> {
    message.metadata.as_ref()?.get(SUMMARY_OF)?.as_object()
}
