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

use std::collections::HashSet;
use std::sync::Arc;

use foldhash::fast::FixedState;
use pirn_conversation::conversation::Conversation;
use pirn_definition::error::{RunError, RunErrorCode};
use pirn_definition::value::memory;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::branches::Branches;
use super::message::{ConversationSource, FinalThreadState, ToThread};
use super::slots::Slot;
use super::{RunMachine, ThreadNo};
use crate::thread::{Input, NodeRecord, Outcome, Output, Outputs, ThreadMachine, Variables};

/// Default limit of a run in bytes, if neither the workflow nor the engine sets one.
pub const DEFAULT_RUN_BYTES: u64 = 256 << 20;

/// Bytes of a started thread without its values.
const THREAD: u64 = 1_024;

/// Bytes that remain of an ended thread.
const ENDED: u64 = 384;

/// Bytes of a firing without its event.
const FIRING: u64 = 1_024;

/// Bytes of a thread's step into a node.
pub(super) const STEP: u64 = size_of::<NodeRecord>() as u64;

/// Bytes that a run has allocated since its last measurement.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Memory {
    limit: u64,
    made: u64,
    /// Sum at which the run is measured.
    most: u64,
    /// Last event received by a waiting thread, with its sequence number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    event: Option<(u64, Arc<Value>)>,
}

impl Memory {
    pub(super) fn new(limit: u64) -> Self {
        Self {
            limit,
            made: 0,
            most: limit,
            event: None,
        }
    }

    /// Adds bytes that the run allocated or received.
    pub(super) fn made(&mut self, bytes: u64) {
        // A sum that wraps would restart far below the limit and postpone the measurement.
        self.made = self.made.saturating_add(bytes);
    }

    /// Returns true if a measurement is due.
    pub(super) fn is_due(&self) -> bool {
        self.made > self.most
    }

    /// Adds the bytes of an external answer. Threads that receive the same event share one value. Values are matched by sequence
    /// number, because another process parses the event once for each thread.
    pub(super) fn arrived(&mut self, outcome: &mut Outcome) {
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
    pub(super) fn evaluated(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Value(value) if Arc::strong_count(value) > 1 => {}
            outcome => self.made(of_outcome(outcome)),
        }
    }

    /// Adds the bytes of a started thread.
    pub(super) fn started(&mut self) {
        self.made(THREAD);
    }

    /// Adds the bytes of a firing.
    pub(super) fn fired(&mut self) {
        self.made(FIRING);
    }

    /// Adds the bytes of a value that the run received or copied.
    pub(super) fn took(&mut self, value: &Value) {
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

/// State of a measurement.
#[derive(Default)]
struct Measure<'r> {
    /// Addresses of counted values. Used for membership only: addresses differ between processes and must not affect the result.
    counted: HashSet<usize, FixedState>,
    total: u64,
    largest: Option<(u64, Holder<'r>)>,
}

/// Owner of a counted value.
#[derive(Clone, Copy)]
enum Holder<'r> {
    Variable(&'r str),
    Output(ThreadNo, u32),
    Input(ThreadNo),
    Conversation(ThreadNo),
    Items(ThreadNo),
    Firing(u64),
    Results,
}

impl<'r> Measure<'r> {
    fn add(&mut self, bytes: u64, holder: Holder<'r>) {
        self.total = self.total.saturating_add(bytes);
        // Of equal parts the first one is named, so that a rebuilt run reports an equal error.
        if bytes > 0 && self.largest.is_none_or(|(most, _)| bytes > most) {
            self.largest = Some((bytes, holder));
        }
    }

    fn value(&mut self, value: &Arc<Value>, holder: Holder<'r>) {
        if self.counted.insert(Arc::as_ptr(value) as usize) {
            self.add(memory(value), holder);
        }
    }

    fn output(&mut self, output: &Output, holder: Holder<'r>) {
        if output.address().is_some_and(|address| self.counted.insert(address)) {
            self.add(output.memory(), holder);
        }
    }

    fn variables(&mut self, variables: &'r Variables) {
        for (name, value) in variables.iter() {
            self.value(value, Holder::Variable(name));
        }
    }

    fn outputs(&mut self, thread: ThreadNo, outputs: &Outputs) {
        outputs.each(|node, output| self.output(output, Holder::Output(thread, node)));
    }

    fn conversation(&mut self, thread: ThreadNo, conversation: &Conversation) {
        let (own, base, shared) = conversation.memory();
        self.add(own, Holder::Conversation(thread));
        // Snapshots of this conversation refer to the shared part by this address: it is counted here, not again for each of them.
        self.counted.extend(shared);
        if let Some((address, bytes)) = base
            && self.counted.insert(address)
        {
            self.add(bytes, Holder::Conversation(thread));
        }
    }

    fn machine(&mut self, no: ThreadNo, machine: &'r ThreadMachine) {
        self.total += THREAD + machine.history_len() as u64 * STEP;
        self.variables(machine.variables());
        self.outputs(no, machine.outputs());
        // The last output is usually one of the outputs above. It then has the same address and counts once.
        self.output(machine.last_output(), Holder::Output(no, machine.node()));
        self.value(machine.input(), Holder::Input(no));
        machine.loop_items(|items| self.value(items, Holder::Output(no, machine.node())));
    }

    fn artifacts(&mut self, no: ThreadNo, left: &'r FinalThreadState) {
        self.variables(&left.variables);
        self.total += left.history.len() as u64 * STEP;
        if let Some(conversation) = &left.conversation {
            self.conversation(no, conversation);
        }
    }
}

impl RunMachine {
    /// Measures the run if that is due, and ends it if it exceeds the limit.
    pub(super) fn check_memory(&mut self) {
        let limit = self.memory.limit;
        let measure = self.measure();
        let total = measure.total;
        let error = (total > limit).then(|| self.memory_exceeded(&measure));
        // The sum restarts from the measured total, which no longer contains values that were freed.
        self.memory.made = 0;
        let Some(error) = error else {
            // At least an eighth: a run close to its limit would otherwise be measured at every step.
            self.memory.most = (limit - total).max(limit / 8);
            return;
        };
        // Fail the run once only.
        self.memory.most = u64::MAX;
        // All threads, detached ones included: the limit is that of the run, and any of them may hold the memory.
        for thread in 0..self.tree.len() as ThreadNo {
            self.send(thread, ToThread::Input(Input::Fail(error.clone())));
        }
    }

    fn memory_exceeded(&self, measure: &Measure<'_>) -> RunError {
        let (total, limit) = (measure.total, self.memory.limit);
        let (bytes, holder) = measure.largest.unwrap_or((0, Holder::Results));
        let largest = self.name_of(holder);
        let message = format!(
            "the run holds {}, more than its limit of {}; the largest part is {largest} with {}: store less, or raise \
             `config.limits.runBytes`",
            in_words(total),
            in_words(limit),
            in_words(bytes)
        );
        RunError::new(RunErrorCode::MemoryLimitExceeded, message).with_details(json!({
            "bytes": total,
            "limit": limit,
            "largest": largest,
            "largestBytes": bytes,
        }))
    }

    fn name_of(&self, holder: Holder<'_>) -> String {
        let of = |thread: ThreadNo| match thread {
            0 => String::new(),
            thread => format!(" of thread {}", self.thread_id(thread)),
        };
        match holder {
            Holder::Variable(name) => format!("the variable `{name}`"),
            Holder::Output(thread, node) => {
                format!("the output of `{}`{}", self.graph_of(thread).node(node).id, of(thread))
            }
            Holder::Input(thread) => format!("the input{}", of(thread)),
            Holder::Conversation(thread) => format!("the conversation{}", of(thread)),
            Holder::Items(thread) => {
                let node = self.live(thread).map_or(0, ThreadMachine::node);
                format!("the items of `{}`{}", self.graph_of(thread).node(node).id, of(thread))
            }
            Holder::Firing(firing) => format!("the event of firing {firing}"),
            Holder::Results => "the large tool results".to_owned(),
        }
    }

    fn measure(&self) -> Measure<'_> {
        let mut measure = Measure::default();
        measure.variables(&self.globals);
        for (no, slot) in (0..).zip(&self.slots) {
            match slot {
                Slot::NotStarted(start) => {
                    measure.total += THREAD;
                    // A branch starts from the state in its fork, which is measured below once for all branches.
                    let Some(start) = start else { continue };
                    measure.value(&start.input, Holder::Input(no));
                    // A shared conversation is measured at its owner.
                    if let ConversationSource::Snapshot(conversation) = &start.conversation {
                        measure.conversation(no, conversation);
                    }
                }
                Slot::Live(live) => {
                    measure.machine(no, &live.machine);
                    // `None` if the thread shares a conversation: its owner's slot counts it.
                    if let Some(conversation) = live.conversation() {
                        measure.conversation(no, conversation);
                    }
                }
                Slot::Ended(ended) => {
                    measure.total += ENDED;
                    let node = ended.artifacts.as_ref().map_or(0, |left| left.node);
                    measure.output(&ended.end.output, Holder::Output(no, node));
                    if let Some(left) = &ended.artifacts {
                        measure.artifacts(no, left);
                    }
                }
            }
        }
        for fork in self.forks.values() {
            match &fork.branches {
                Branches::Paths { start, .. } => {
                    measure.variables(&start.snapshot.variables);
                    measure.outputs(fork.parent, &start.snapshot.outputs);
                    measure.conversation(fork.parent, &start.conversation);
                }
                Branches::Items {
                    inputs, conversation, ..
                } => {
                    measure.value(inputs, Holder::Items(fork.parent));
                    measure.conversation(fork.parent, conversation);
                }
            }
        }
        for (id, run) in self.firings.iter() {
            measure.add(FIRING + run.event_memory(), Holder::Firing(*id));
            measure.variables(&run.variables);
            if let Some(basis) = &run.basis {
                measure.conversation(run.main, &basis.1);
            }
        }
        if let Some(results) = &self.results {
            measure.add(results.bytes() as u64, Holder::Results);
        }
        measure
    }
}

fn in_words(bytes: u64) -> String {
    const MIB: u64 = 1 << 20;
    if bytes >= 10 * MIB {
        return format!("{} MiB", bytes / MIB);
    }
    // Rounds up, so that a small part is not reported as 0 KiB.
    format!("{} KiB", bytes.div_ceil(1 << 10))
}
