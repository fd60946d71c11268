//! Measurement of the memory that a run holds.

use std::collections::HashSet;
use std::sync::Arc;

use foldhash::fast::FixedState;
use pirn_conversation::conversation::Conversation;
use pirn_definition::error::{RunError, RunErrorCode};
use pirn_definition::value::memory;
use serde_json::{Value, json};

use crate::run::ThreadNo;
use crate::run::data::branches::Branches;
use crate::run::data::message::{ConversationSource, FinalThreadState, ToThread};
use crate::run::data::thread_state::Slot;
use crate::run::parts::memory::{FIRING, STEP, THREAD};
use crate::run::state::RunMachine;
use crate::thread::{Input, Output, Outputs, ThreadMachine, Variables};

/// Bytes that remain of an ended thread.
const ENDED: u64 = 384;

/// State of a measurement.
#[derive(Default)]
struct Measure<'r> {
    /// Addresses of counted values. Used for membership only: addresses differ between processes and must not affect the result.
    counted: HashSet<usize, FixedState>,
    total: u64,
    largest: Option<(u64, Holder<'r>)>,
    /// Version 0.2.0 did not count the messages that a conversation had at the last join. A run of it must fail at the same step.
    is_of_0_2_0: bool,
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
        if self.is_of_0_2_0 {
            self.counted.extend(shared);
        }
        if let Some((address, bytes)) = base
            && self.counted.insert(address)
        {
            self.add(bytes, Holder::Conversation(thread));
        }
        // Snapshots of this conversation refer to the shared part by this address: it is counted here, not again for each of them.
        // After the base, which is the shared part itself if nothing was added since the snapshot that a join has restored.
        self.counted.extend(shared);
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
    pub(in crate::run) fn check_memory(&mut self) {
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
        let mut measure = Measure {
            is_of_0_2_0: !self.merges_assignments,
            ..Measure::default()
        };
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
