//! Tokens, cost and duration of a run, for lists.

use std::sync::{Mutex, MutexGuard, PoisonError};

use pirn_conversation::conversation::{Cost, TokenUsage};
use pirn_definition::event_type::EventType;
use serde::Deserialize;

use pirn::{Event, RunReport};

/// Figures of a run that are known without a replay.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Figures {
    pub(crate) tokens: Option<u64>,
    pub(crate) cost: Option<Cost>,
    /// Time from the start to the end, in milliseconds; `None` before the end.
    pub(crate) duration_ms: Option<u64>,
}

impl Figures {
    /// Returns the figures of a report, which may be that of an unfinished run.
    pub(crate) fn of(report: &RunReport, duration_ms: Option<u64>) -> Self {
        Self {
            tokens: Some(report.tokens.spent.total),
            cost: report.tokens.spent.cost,
            duration_ms,
        }
    }
}

/// Counts the figures of a run in memory.
#[derive(Debug, Default)]
pub(crate) struct FigureCounter {
    state: Mutex<TokenUsage>,
    ended: std::sync::OnceLock<Figures>,
}

/// The part of an LLM node's output that is read.
#[derive(Deserialize)]
struct Reply {
    usage: TokenUsage,
}

impl FigureCounter {
    /// Adds the usage of a model node that has completed. A node reports its usage when it completes, so the sum is a lower bound
    /// until the run ends.
    pub(crate) fn observe(&self, event: &Event) {
        let fields = &event.raised.fields;
        if event.raised.event_type != EventType::NodeCompleted || fields.text("nodeType") != Some("LLM") {
            return;
        }
        let Some(output) = fields.get("output") else { return };
        if let Ok(reply) = Reply::deserialize(output) {
            self.state().add(reply.usage);
        }
    }

    /// Replaces the sum by the figures of the final report.
    pub(crate) fn end(&self, report: &RunReport, duration_ms: u64) {
        self.ended.get_or_init(|| Figures::of(report, Some(duration_ms)));
    }

    /// Returns the sum of the usage of the nodes that have completed so far.
    pub(crate) fn used(&self) -> TokenUsage {
        *self.state()
    }

    pub(crate) fn figures(&self) -> Figures {
        if let Some(ended) = self.ended.get() {
            return *ended;
        }
        let used = self.used();
        Figures {
            tokens: Some(used.total),
            cost: used.cost,
            duration_ms: None,
        }
    }

    fn state(&self) -> MutexGuard<'_, TokenUsage> {
        // Ignore poisoning: every critical section preserves the invariants.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
