//! Compression strategies as pure functions.
//!
//! Each of these guarantees has a test:
//! - A tool block is retained or removed as a whole.
//! - The current turn is retained, regardless of counts.
//! - System messages are retained and come first. Only `keep_recent` treats them like others.
//! - Pinned messages are retained.
//! - The result is smaller, or there is no change.
//! - A strategy is idempotent.
//!
//! Not here: calls of a model that summarizes: a triggered sub-workflow makes them.

mod accept;
mod checklist;
mod context;
mod facts;
mod keep;
mod parameters;
mod summary;
mod tool_results;
mod transcript;
mod turn;
mod verbatim;
mod window;

use std::sync::Arc;

use pirn_definition::message::{Message, Role};
use serde::{Deserialize, Serialize};

pub use accept::{Accepted, accept_result, replacement};
pub use checklist::{Checklist, JudgedStatement, Section, Statement, judge_statements};
pub use context::{CompressionContext, CompressionResult, CompressionStats, FactKinds, FactStats, KeptFacts};
pub use facts::{Fact, FactKind, JudgedFact, facts_of, judge};
pub use parameters::{InvalidParameter, ParameterKind};
pub use summary::{
    Summarized, SummaryPlan, finish_summary, finish_with_checklist, is_summary, missing_statements, plan_summary,
};
pub use transcript::transcript;
pub use turn::{current_turn_start, current_turn_tokens};

use self::context::SizeCriterion;
use super::{ConversationError, Tokenizer, message_cost};

/// Result of a strategy.
#[derive(Clone, Debug, PartialEq)]
pub enum Compression {
    /// Final result; `stats` show whether anything changed.
    Done(Box<CompressionResult>),
    /// `summarize` needs a summary: pass it to [`finish_with_checklist`].
    Summarize(Box<SummaryPlan>),
}

/// Use of a profile's model for summaries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SummaryUse {
    /// The model summarizes its conversations.
    #[default]
    Always,
    /// An offline model, which summarizes only if `profileId` names its profile.
    IfNamed,
    /// An offline model: its summaries lose more than a checklist.
    Never,
}

/// Reason that a compression could not start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CompressionError {
    /// The mark map of the context is inconsistent.
    Conversation(ConversationError),
    /// A parameter of the strategy has the wrong type.
    Parameter(InvalidParameter),
}

impl std::fmt::Display for CompressionError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Conversation(error) => error.fmt(f),
            Self::Parameter(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for CompressionError {}

/// Runs the strategy in the context's config. No strategy, or an unknown one, changes nothing.
///
/// # Errors
/// Returns an error for an invalid mark map or a parameter of the wrong type.
pub fn compress(context: &CompressionContext, tokenizer: &dyn Tokenizer) -> Result<Compression, CompressionError> {
    // First, so that an invalid map is reported whatever the strategy is.
    let visible = context.visible().map_err(CompressionError::Conversation)?;
    let config = context.compression_config.clone().unwrap_or_default();
    let parameters = &config.parameters;
    // `pays` ignores a value of the wrong type, because it cannot return an error.
    parameters::check_payback(parameters)?;
    // All strategies but one remove messages.
    let mut by = SizeCriterion::Messages;
    let kept = match config.strategy.as_deref() {
        Some("keep_recent") => {
            let count = parameters::count(parameters)?;
            shown(visible, &keep::recent(visible, count), Order::AsItWas)
        }
        Some("keep_system_recent") => {
            let count = parameters::count(parameters)?;
            shown(visible, &keep::system_and_recent(visible, count), Order::SystemFirst)
        }
        Some("sliding_window") => {
            let window = parameters::window(parameters)?;
            // Counted once: `window` reads each cost several times.
            let costs: Vec<u64> = visible.iter().map(|message| message_cost(message, tokenizer)).collect();
            shown(visible, &window::window(visible, &costs, window), Order::SystemFirst)
        }
        Some("summarize") => {
            let keep_recent = parameters::keep_recent(parameters)?;
            // Only checked here: `finish_with_checklist`, which uses the values, cannot return an error.
            parameters::keep_facts(parameters)?;
            parameters::checklist(parameters)?;
            return Ok(
                match plan_summary(context, keep_recent).map_err(CompressionError::Conversation)? {
                    // Checked before the model is called: its summary could not pay either.
                    Some(plan) if plan.may_pay(tokenizer) => Compression::Summarize(Box::new(plan)),
                    Some(_) | None => Compression::Done(Box::new(context.unchanged(visible.len()))),
                },
            );
        }
        Some("checklist") => {
            let keep_recent = parameters::keep_recent(parameters)?;
            parameters::checklist(parameters)?;
            parameters::keep_facts(parameters)?;
            let plan = plan_summary(context, keep_recent).map_err(CompressionError::Conversation)?;
            return Ok(Compression::Done(Box::new(match plan {
                Some(plan) => finish_with_checklist(&plan, None, tokenizer).result,
                None => context.unchanged(visible.len()),
            })));
        }
        Some("clear_tool_results") => {
            // The strategy replaces contents and removes no message.
            by = SizeCriterion::Tokens;
            tool_results::cleared(visible, &parameters::clear(parameters)?, tokenizer)
        }
        // Not an error: an unknown strategy is defined as a no-op.
        Some(_) | None => visible.to_vec(),
    };
    Ok(Compression::Done(Box::new(context.result(kept, by, tokenizer))))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    AsItWas,
    SystemFirst,
}

/// Returns the messages with a set flag. If all are set, their order is unchanged.
fn shown(visible: &[Arc<Message>], kept: &[bool], order: Order) -> Vec<Arc<Message>> {
    let stay = visible
        .iter()
        .zip(kept)
        .filter(|(_, kept)| **kept)
        .map(|(message, _)| Arc::clone(message));
    // Without a removal the result must equal the visible messages, or the strategy would not be idempotent.
    if order == Order::AsItWas || kept.iter().all(|kept| *kept) {
        return stay.collect();
    }
    // `partition` is stable: the order within both parts is preserved.
    let (mut system, others): (Vec<_>, Vec<_>) = stay.partition(|message| message.role == Role::System);
    system.extend(others);
    system
}
