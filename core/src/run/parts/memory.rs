//! The memory that a run holds, and its limit.
//!
//! The bytes that a run allocates are summed as they arrive, each value once, when it is created or received. Nothing is
//! subtracted. Only when the sum could exceed the limit is the run measured, each shared value once, and the sum restarts from the
//! result. A step therefore costs one addition. A measurement is amortized over the bytes allocated since the last one: at least an
//! eighth of the limit, which is also the maximum overshoot. Sum and measurement depend only on the messages taken, so that a
//! rebuilt run fails at the same step.
//!
//! Counted: variables, outputs, inputs and loops of threads, the state that forks hold, conversations, firings, large tool results,
//! and the remaining state of ended threads. Not counted, because the run does not hold them: values of a running script, requests
//! in transit to a model, events queued for a subscriber.

use std::sync::Arc;

use pirn_definition::value::memory;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::thread::{NodeRecord, Outcome};

/// Default limit of a run in bytes, if neither the workflow nor the engine sets one.
pub const DEFAULT_RUN_BYTES: u64 = 256 << 20;

/// Bytes of a started thread without its values.
pub(in crate::run) const THREAD: u64 = 1_024;

/// Bytes of a firing without its event.
pub(in crate::run) const FIRING: u64 = 1_024;

/// Bytes of a thread's step into a node.
pub(in crate::run) const STEP: u64 = size_of::<NodeRecord>() as u64;

/// Bytes that a run has allocated since its last measurement.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::run) struct Memory {
    pub(in crate::run) limit: u64,
    pub(in crate::run) made: u64,
    /// Sum at which the run is measured.
    pub(in crate::run) most: u64,
    /// Last event received by a waiting thread, with its sequence number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::run) event: Option<(u64, Arc<Value>)>,
}

impl Memory {
    pub(in crate::run) fn new(limit: u64) -> Self {
        Self {
            limit,
            made: 0,
            most: limit,
            event: None,
        }
    }

    /// Adds bytes that the run allocated or received.
    pub(in crate::run) fn made(&mut self, bytes: u64) {
        // A sum that wraps would restart far below the limit and postpone the measurement.
        self.made = self.made.saturating_add(bytes);
    }

    /// Returns true if a measurement is due.
    pub(in crate::run) fn is_due(&self) -> bool {
        self.made > self.most
    }

    /// Adds the bytes of an external answer. Threads that receive the same event share one value. Values are matched by sequence
    /// number, because another process parses the event once for each thread.
    pub(in crate::run) fn arrived(&mut self, outcome: &mut Outcome) {
        if let Outcome::Event { sequence, event } = outcome {
            let known = self.event.as_ref().filter(|(known, _)| known == sequence);
            let value = known.map_or_else(|| Arc::clone(event.value()), |(_, value)| Arc::clone(value));
            if known.is_none() {
                self.made(memory(&value));
                self.event = Some((*sequence, Arc::clone(&value)));
            }
            *event = value.into();
        }
        self.made(of_outcome(outcome));
    }

    /// Adds the bytes of an inline answer. A value that has other owners was counted before.
    pub(in crate::run) fn evaluated(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Value(value) if Arc::strong_count(value) > 1 => {}
            outcome => self.made(of_outcome(outcome)),
        }
    }

    /// Adds the bytes of a started thread.
    pub(in crate::run) fn started(&mut self) {
        self.made(THREAD);
    }

    /// Adds the bytes of a firing.
    pub(in crate::run) fn fired(&mut self) {
        self.made(FIRING);
    }

    /// Adds the bytes of a value that the run received or copied.
    pub(in crate::run) fn took(&mut self, value: &Value) {
        self.made(memory(value));
    }
}

fn of_outcome(outcome: &Outcome) -> u64 {
    match outcome {
        Outcome::Value(value) => memory(value),
        Outcome::Logged(logged) => of_outcome(&logged.outcome),
        Outcome::Texts(texts) => texts.iter().flatten().map(|text| text.len() as u64).sum(),
        // The text is stored twice: in a message, and in the node's output.
        Outcome::Reply(reply) => 2 * reply.content.len() as u64,
        Outcome::Tool(result) => 2 * result.content.len() as u64,
        Outcome::Answered(answer) => 2 * memory(&answer.answer),
        Outcome::Joined(joined) => {
            let variables = joined.variables.iter().map(|(_, value)| memory(value));
            let folds = joined
                .folds
                .iter()
                .flat_map(|fold| &fold.values)
                .map(|value| memory(value));
            joined.output.memory() + variables.sum::<u64>() + folds.sum::<u64>()
        }
        // Small, counted elsewhere (an event by `arrived`, the output of a child by its thread), or not retained (a prepared
        // request).
        Outcome::Done
        | Outcome::Failed(_)
        | Outcome::Choice(_)
        | Outcome::Prepared(_)
        | Outcome::NeedsConsent(_)
        | Outcome::Summarize(..)
        | Outcome::Child { .. }
        | Outcome::Elapsed
        | Outcome::Event { .. }
        | Outcome::HeldByFiring(_) => 0,
    }
}
