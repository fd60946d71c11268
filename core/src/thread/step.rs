//! One step of a thread: its start, its end, and the transitions between nodes.

use std::sync::Arc;

use pirn_conversation::conversation::TokenUsage;
use pirn_definition::definition::DEFAULT_MAX_STEPS;
use pirn_definition::error::{RunError, RunErrorCode};
use pirn_definition::event_type::EventType;
use pirn_definition::value::Output;
use pirn_events::event::{EventFields, Field, RaisedEvent};
use serde_json::{Value, json};

use super::effect::{
    CancelReason, ConversationOp, Effect, EffectId, Environment, Evaluation, Outcome, ThreadEnd, TimerPurpose,
};
use super::machine::{NodeStatus, ThreadMachine};
use super::nodes::{NodeRun, Progress};
use super::safe_point::{DeferredStop, SafePointWork};
use crate::status::ThreadStatus;

/// Context of a step: the thread, the environment and the list of effects.
pub(super) struct StepContext<'a> {
    pub(super) thread: &'a mut ThreadMachine,
    pub(super) environment: Environment,
    pub(super) out: &'a mut Vec<Effect>,
}

impl StepContext<'_> {
    pub(super) fn next_effect(&mut self) -> EffectId {
        // Ids are never reused, so that a late answer to a cancelled effect cannot match a later one.
        self.thread.last_effect += 1;
        self.thread.last_effect
    }

    /// Allocates an effect for the node's external call. Returns its id, and the idempotency key that all attempts share.
    pub(super) fn next_call(&mut self) -> (EffectId, EffectId) {
        let id = self.next_effect();
        // `arrive` clears the key: a retry repeats the call of this node, while the next node makes another call.
        (id, *self.thread.first_call.get_or_insert(id))
    }

    pub(super) fn listens(&self, event_type: EventType) -> bool {
        self.environment.interest.contains(event_type)
    }

    /// Counts the usage of a model call of the current node.
    pub(super) fn spend(&mut self, spent: TokenUsage) {
        self.thread.spent.add(self.thread.at, spent);
    }

    /// Sets the time limit of the attempt, which then fails with NODE_TIMEOUT. A shorter `timeoutMs` of the node stays.
    pub(super) fn limit(&mut self, after_ms: pirn_definition::Millis) {
        // `attempt` has started the timer of the node's `timeoutMs`. The shorter limit wins, because an attempt has one deadline.
        let of_node = self.thread.graph().node(self.thread.at).timeout_ms;
        if of_node.is_some_and(|of_node| of_node <= after_ms) {
            return;
        }
        self.stop_deadline();
        self.start_deadline(after_ms);
    }

    fn start_deadline(&mut self, after_ms: pirn_definition::Millis) {
        let id = self.next_effect();
        self.thread.deadline = Some(id);
        self.out.push(Effect::Timer {
            id,
            node: self.thread.at,
            after_ms,
            purpose: TimerPurpose::Limit,
        });
    }

    /// Raises an event if its type has a subscriber.
    pub(super) fn emit<F: Into<Field>, const N: usize>(
        &mut self,
        event_type: EventType,
        fields: impl FnOnce(&ThreadMachine) -> [(&'static str, F); N],
    ) {
        // Checked before `fields` is called: without a subscriber the values are not cloned and no map is allocated.
        if self.listens(event_type) {
            let event = RaisedEvent::with(event_type, EventFields::of_list(fields(self.thread)));
            self.emit_raised(event);
        }
    }

    /// Raises an event like [`Self::emit`], with the trigger depth of its cause.
    pub(super) fn emit_caused<const N: usize>(
        &mut self,
        trigger_depth: u32,
        event_type: EventType,
        fields: impl FnOnce(&ThreadMachine) -> [(&'static str, Value); N],
    ) {
        if self.listens(event_type) {
            let event = RaisedEvent::new(event_type, fields(self.thread));
            self.emit_raised(event.at_depth(trigger_depth));
        }
    }

    pub(super) fn emit_raised(&mut self, event: RaisedEvent) {
        // The thread may itself be part of a trigger chain, which is longer than the depth of the event's cause.
        let event = event.at_depth(self.thread.trigger_depth);
        // Only noted here: triggers are matched outside of the thread, and the answer is requested at the next safe point.
        if self.environment.holding.contains(event.event_type) {
            self.thread.needs_trigger_check = true;
        }
        if self.listens(event.event_type) {
            self.out.push(Effect::Emit(event));
        }
    }

    /// Sends an operation to the conversation. Events that it raises in the thread's name may hold the thread.
    pub(super) fn converse(&mut self, id: EffectId, op: ConversationOp) {
        // The conversation raises these events later, in the thread's name. The check is requested now, because `emit_raised` never
        // sees them.
        match &op {
            ConversationOp::Append(_) | ConversationOp::Apply(_) => self.may_be_held_by(&[
                EventType::MessageAdded,
                EventType::ArtifactKept,
                EventType::ArtifactDropped,
            ]),
            ConversationOp::AppendReply(_) => self.may_be_held_by(&[
                EventType::MessageAdded,
                EventType::ArtifactKept,
                EventType::ArtifactDropped,
                EventType::CacheCollapsed,
            ]),
            ConversationOp::AddUserMessages(_) => {
                self.may_be_held_by(&[EventType::MessageAdded, EventType::UserMessage]);
            }
            ConversationOp::Compress(_) | ConversationOp::FinishSummary(_) => {
                self.may_be_held_by(&[EventType::CompressionCompleted]);
            }
            ConversationOp::Merge(_) => {
                self.may_be_held_by(&[
                    EventType::MessageAdded,
                    EventType::CompressionCompleted,
                    EventType::VariableChanged,
                ]);
            }
            // Events of `Prepare` return with its answer and pass through `emit_raised`. A built-in tool raises none that can hold.
            ConversationOp::Prepare { .. } | ConversationOp::BuiltIn(..) => {}
        }
        self.out.push(Effect::Conversation { id, op });
    }

    /// Requests a check at the next safe point, if events of these types may hold the thread. Used for events that others raise in
    /// its name.
    pub(super) fn may_be_held_by(&mut self, event_types: &[EventType]) {
        let holding = self.environment.holding;
        self.thread.needs_trigger_check |= event_types.iter().any(|event_type| holding.contains(*event_type));
    }

    // ---- start and end

    pub(super) fn start(&mut self) {
        // A second `Start` must not enter the first node again.
        if self.thread.status != ThreadStatus::Created {
            return;
        }
        self.thread.status = ThreadStatus::Running;
        self.emit(EventType::ThreadStarted, |thread| {
            [
                ("kind", Field::from(thread.kind().as_str())),
                ("pathId", thread.path_id().into()),
            ]
        });
        let first = self.thread.first;
        self.arrive(first);
    }

    pub(super) fn cancel(&mut self, reason: &CancelReason) {
        // Only a time limit has a status of its own. All other reasons are listed, so that a new one is a compile error here.
        let (status, code) = match reason {
            CancelReason::TimedOut { .. } => (ThreadStatus::Timeout, RunErrorCode::NodeTimeout),
            CancelReason::Requested { .. }
            | CancelReason::JoinDecided
            | CancelReason::ParentEnded
            | CancelReason::Shutdown => (ThreadStatus::Cancelled, RunErrorCode::Cancelled),
        };
        self.break_off(status, RunError::new(code, reason.text()));
    }

    /// Ends the thread immediately, or after the conversation has applied a firing's result.
    pub(super) fn break_off(&mut self, status: ThreadStatus, error: RunError) {
        if self.thread.run.is_merging() {
            // The first reason to end the thread is final. A time limit of the node is overridden: it would end the attempt only.
            if !matches!(self.thread.stop.as_deref(), Some(DeferredStop::Thread { .. })) {
                self.stop_deadline();
                self.thread.stop = Some(Box::new(DeferredStop::Thread { status, error }));
            }
            // `unless_stopped` performs the stop when the conversation has answered.
            return;
        }
        // Before `end`, which replaces the state that names the effects in flight. `Ended` must be the last effect.
        self.drop_in_flight();
        if let Some(record) = self.thread.history.last_mut()
            // Between two nodes the last record is final already: the thread is cancelled there, not the node.
            && record.status == NodeStatus::Running
        {
            record.status = NodeStatus::Cancelled;
            record.attempts = self.thread.attempt;
        }
        let error = self.located(error);
        self.end(status, Output::default(), Some(error));
    }

    pub(super) fn resume(&mut self, trigger_depth: u32) {
        // Also without PAUSED: the pause may still wait for the next safe point.
        self.thread.pause = None;
        if self.thread.status == ThreadStatus::Paused {
            self.thread.status = ThreadStatus::Running;
            self.emit_caused(trigger_depth, EventType::ThreadResumed, |thread| {
                [("nodeId", json!(thread.graph().node(thread.at).id))]
            });
            self.poll_safe_point();
        }
    }

    pub(super) fn answer(&mut self, effect: EffectId, outcome: Outcome) {
        // The deadline belongs to every state of the node, so that it is compared before the state.
        if self.thread.deadline == Some(effect) {
            // Cleared first: `drop_in_flight` would cancel the timer that has just fired.
            self.thread.deadline = None;
            if matches!(outcome, Outcome::Elapsed) {
                if self.thread.run.is_merging() {
                    // A pending end of the thread takes precedence over the end of the attempt.
                    self.thread.stop.get_or_insert_with(|| Box::new(DeferredStop::Attempt));
                } else {
                    self.out_of_time();
                }
            }
            return;
        }
        // Moved out, because the handler needs the state by value and the thread mutably. `advance` stores the next state.
        let run = std::mem::take(&mut self.thread.run);
        let progress = run.answer(self, effect, outcome);
        self.advance(progress);
    }

    fn out_of_time(&mut self) {
        self.drop_in_flight();
        let error = RunError::new(RunErrorCode::NodeTimeout, "the node did not end within its time limit");
        self.fail(error);
    }

    // ---- nodes

    /// Enters the current node.
    pub(super) fn enter(&mut self) {
        let at = self.thread.at;
        // Compared before the step limit: a branch does not execute its JOIN, so that arriving there is not a step.
        if self.thread.stop_at == Some(at) {
            let output = self.thread.last.clone();
            self.end(ThreadStatus::Completed, output, None);
            return;
        }
        let limit = self.thread.graph().config.max_steps.unwrap_or(DEFAULT_MAX_STEPS);
        if self.thread.steps >= limit {
            let error = RunError::new(
                RunErrorCode::MaxStepsExceeded,
                format!("the thread entered {limit} nodes and has not ended"),
            );
            let error = self.located(error);
            self.end(ThreadStatus::Failed, Output::default(), Some(error));
            return;
        }
        self.thread.steps += 1;
        let nodes = self.thread.graph().nodes.len();
        // After the check of the limit, so that the history has only nodes that were entered.
        self.thread.history.enter(at, nodes);
        // Attempts do not count as steps: `maxAttempts` bounds them.
        self.attempt();
    }

    /// Starts an attempt at the current node.
    pub(super) fn attempt(&mut self) {
        self.thread.attempt += 1;
        self.emit(EventType::NodeStarted, |thread| {
            let node = thread.graph().node(thread.at);
            [
                ("nodeId", Field::from(&node.id)),
                ("nodeType", node.kind.type_name().into()),
                ("attempt", json!(thread.attempt).into()),
            ]
        });
        // Set before the node is entered, so that the limit includes evaluations and compressions of the node.
        if let Some(after_ms) = self.thread.graph().node(self.thread.at).timeout_ms {
            self.start_deadline(after_ms);
        }
        let progress = super::nodes::enter(self);
        self.advance(progress);
    }

    /// Continues until an answer is needed. Recursive: a node that completes on entry, such as FORK, enters the next one. `maxSteps`
    /// bounds the depth.
    pub(super) fn advance(&mut self, progress: Progress) {
        match progress {
            Progress::Wait(run) => self.thread.run = run,
            Progress::Done(output) => {
                self.complete(output);
                self.leave();
            }
            Progress::DoneAt(output, next) => {
                self.complete(output);
                self.arrive(next);
            }
            Progress::End(output) => {
                // The clone shares the value: it is the output of both the node and the thread.
                self.complete(output.clone());
                self.end(ThreadStatus::Completed, output, None);
            }
            // `complete` has run before the edges were evaluated.
            Progress::Chosen(next) => self.arrive(next),
            Progress::SafePoint => self.safe_point(),
            // Not `enter`: the node is in the history already, and a retry passes no safe point.
            Progress::Retry => self.attempt(),
            Progress::Failed(error) => self.fail(error),
            Progress::Stopped(stop) => match *stop {
                DeferredStop::Thread { status, error } => self.break_off(status, error),
                DeferredStop::Attempt => self.out_of_time(),
            },
        }
    }

    /// Completes the current node.
    pub(super) fn complete(&mut self, output: Output) {
        // The limit covers one attempt, not the evaluation of the edges that follows.
        self.stop_deadline();
        let (at, attempts) = (self.thread.at, self.thread.attempt);
        if let Some(record) = self.thread.history.last_mut() {
            record.status = NodeStatus::Completed;
            record.attempts = attempts;
        }
        let nodes = self.thread.graph().nodes.len();
        // Before the event and the edges, whose triggers and conditions read the output.
        self.thread.outputs.set_of(at, output.clone(), nodes);
        self.thread.last = output;
        self.emit(EventType::NodeCompleted, |thread| {
            let node = thread.graph().node(at);
            [
                ("nodeId", Field::from(&node.id)),
                ("nodeType", node.kind.type_name().into()),
                ("attempts", json!(attempts).into()),
                ("output", (&thread.last).into()),
            ]
        });
    }

    /// Selects the edge out of the current node.
    pub(super) fn leave(&mut self) {
        let at = self.thread.at;
        let edges = &self.thread.graph().node(at).edges;
        // Edges are sorted by weight when the graph is compiled.
        match edges.first() {
            // The edge with the highest weight is unconditional: it is always taken.
            Some(edge) if edge.condition.is_none() => {
                let target = edge.target;
                self.arrive(target);
            }
            Some(_) => {
                // A condition may need JavaScript, which the host evaluates on another OS thread: see `evaluate.rs`.
                let id = self.next_effect();
                self.out.push(Effect::Evaluate {
                    id,
                    node: at,
                    what: Evaluation::Edges,
                });
                self.thread.run = NodeRun::Edges { id };
            }
            None => self.fail(no_edge()),
        }
    }

    /// Handles a failed attempt: retries, follows `onError`, or fails the thread.
    pub(super) fn fail(&mut self, error: RunError) {
        // The next attempt sets a new limit. The delay before it is not part of any attempt.
        self.stop_deadline();
        // Before the event: NODE_FAILED, the `onError` output and the thread's error name the same location.
        let error = self.located(error);
        self.emit(EventType::NodeFailed, |thread| {
            let node = thread.graph().node(thread.at);
            [
                ("nodeId", json!(node.id)),
                ("nodeType", json!(node.kind.type_name())),
                ("attempt", json!(thread.attempt)),
                ("error", json!(error)),
            ]
        });
        // A retry precedes `onError`, and the record of the node stays RUNNING until the last attempt has failed.
        if let Some(delay) = super::retry::delay(self.thread, &error, self.environment.random) {
            let id = self.next_effect();
            self.out.push(Effect::Timer {
                id,
                node: self.thread.at,
                after_ms: delay,
                purpose: TimerPurpose::Retry,
            });
            self.thread.run = NodeRun::RetryDelay { id };
            return;
        }
        let attempts = self.thread.attempt;
        if let Some(record) = self.thread.history.last_mut() {
            record.status = NodeStatus::Failed;
            record.attempts = attempts;
        }
        let at = self.thread.at;
        // The error becomes the output of the failed node, so that the target can read it by name and as `output`.
        if let Some(target) = self.thread.graph().node(at).on_error {
            let output = Output::from(json!({ "error": error }));
            self.thread.outputs.set(at, output.clone());
            self.thread.last = output;
            self.arrive(target);
            return;
        }
        self.end(ThreadStatus::Failed, Output::default(), Some(error));
    }

    /// Adds the location to an error that has none.
    pub(super) fn located(&self, mut error: RunError) -> RunError {
        let thread = &*self.thread;
        // An error of a child or branch keeps the location where it occurred.
        error
            .node_id
            .get_or_insert_with(|| Arc::clone(&thread.graph().node(thread.at).id));
        error.thread_id.get_or_insert_with(|| Arc::clone(thread.thread_id()));
        if error.path_id.is_none() {
            error.path_id.clone_from(&thread.path_id);
        }
        error
    }

    pub(super) fn stop_deadline(&mut self) {
        // Taken, so that the timer is cancelled at most once.
        if let Some(id) = self.thread.deadline.take() {
            self.out.push(Effect::Drop { id });
        }
    }

    pub(super) fn drop_in_flight(&mut self) {
        self.stop_deadline();
        let run = std::mem::take(&mut self.thread.run);
        run.abandon(self);
    }

    pub(super) fn end(&mut self, status: ThreadStatus, output: Output, error: Option<RunError>) {
        // Set before the events: `step` ignores every input of a final thread, including answers to the events below.
        self.thread.status = status;
        self.thread.run = NodeRun::Idle;
        // Work that arrived too late still needs an answer: the firing waits for it.
        while let Some(work) = self.next_arrived() {
            match work {
                SafePointWork::Triggered { merge, .. } => {
                    let error = RunError::new(
                        RunErrorCode::Cancelled,
                        "the thread ended before the result could take effect",
                    );
                    self.out.push(Effect::Applied {
                        firing: merge.firing,
                        error: Some(error),
                    });
                }
                // An assignment needs only the variables, which remain after the end.
                SafePointWork::Assign(assignment) => self.assign_for_trigger(assignment),
            }
        }
        let event_type = match status {
            ThreadStatus::Completed => EventType::ThreadCompleted,
            ThreadStatus::Cancelled => EventType::ThreadCancelled,
            ThreadStatus::Failed
            | ThreadStatus::Timeout
            // A thread never ends with the last three. They are listed, so that a new status is a compile error here.
            | ThreadStatus::Created
            | ThreadStatus::Running
            | ThreadStatus::Paused => EventType::ThreadFailed,
        };
        self.emit(event_type, |thread| {
            [
                ("status", Field::from(status.as_str())),
                ("pathId", thread.path_id().into()),
                ("output", (&output).into()),
                ("error", json!(error).into()),
            ]
        });
        // After the event, because no effect follows `Ended`.
        self.out.push(Effect::Ended(ThreadEnd { status, output, error }));
    }

    fn next_arrived(&mut self) -> Option<SafePointWork> {
        self.thread.pending.as_mut()?.arrived.pop_front()
    }
}

pub(super) fn no_edge() -> RunError {
    RunError::new(RunErrorCode::NoEdgeSatisfied, "no edge out of the node is satisfied")
}
