//! One step of a thread: its start, its end, and the transitions between nodes.

use std::sync::Arc;

use pirn_definition::definition::DEFAULT_MAX_STEPS;
use pirn_definition::error::{RunError, RunErrorCode};
use pirn_definition::event_type::EventType;
use pirn_definition::graph::NodeIx;
use pirn_definition::value::Output;
use pirn_events::event::Field;
use serde_json::json;

use super::context::{Progress, StepContext, no_edge};
use super::data::effect::{
    CancelReason, Effect, EffectId, Environment, Evaluation, FiringId, Input, Outcome, ThreadEnd, TimerPurpose,
    TriggeredResult,
};
use super::data::pending::{DeferredStop, PendingMerge, SafePointWork, TriggerAssignment};
use super::data::records::NodeStatus;
use super::data::stages::NodeRun;
use super::machine::ThreadMachine;
use crate::status::ThreadStatus;

impl ThreadMachine {
    /// Processes one input and appends its effects to `out`. Returns the number of agents that the thread may still start.
    pub fn step(&mut self, environment: Environment, input: Input, out: &mut Vec<Effect>) -> Option<u64> {
        // Late answers, cancels and results of triggers may cross with the end. `end` has answered everything that waited.
        if self.status.is_final() {
            return environment.agents_left;
        }
        let mut cx = StepContext {
            thread: self,
            environment,
            out,
        };
        match input {
            Input::Start => cx.start(),
            Input::Answer { effect, outcome } => cx.answer(effect, outcome),
            Input::Cancel { reason, trigger_depth } => {
                // The events of the end are caused by the trigger, so that they have its depth.
                cx.thread.trigger_depth = cx.thread.trigger_depth.max(trigger_depth);
                cx.cancel(&reason);
            }
            Input::Fail(error) => cx.break_off(ThreadStatus::Failed, error),
            // Only noted: a node in progress is not interrupted, and `is_stopped` pauses at the next safe point.
            Input::Pause { trigger_depth } => cx.thread.pause = Some(trigger_depth),
            Input::Resume { trigger_depth } => cx.resume(trigger_depth),
            Input::Raised => {
                cx.thread.needs_trigger_check = true;
                // A thread at a safe point checks only when an input arrives, so that it must check now.
                cx.poll_safe_point();
            }
            Input::Triggered { firing, result } => cx.triggered(firing, result),
            Input::Assign {
                trigger_id,
                name,
                value,
                trigger_depth,
            } => {
                let assignment = TriggerAssignment {
                    trigger_id,
                    name,
                    value,
                    trigger_depth,
                };
                cx.thread
                    .pending_mut()
                    .arrived
                    // Queued even at a safe point, so that it takes effect after earlier results of triggers.
                    .push_back(SafePointWork::Assign(assignment));
                cx.poll_safe_point();
            }
        }
        cx.environment.agents_left
    }
}

impl StepContext<'_> {
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

    // ---- safe points

    /// Moves the thread to the safe point before `next`.
    pub(super) fn arrive(&mut self, next: NodeIx) {
        self.thread.at = next;
        // Everything that belongs to the attempts at the previous node. The outputs and the history stay.
        self.thread.attempt = 0;
        self.thread.prompted = false;
        self.thread.first_call = None;
        self.thread.cut_off = None;
        self.safe_point();
    }

    pub(super) fn safe_point(&mut self) {
        // The answer leads back to this function, because more work may have arrived in the meantime.
        if let Some(wait) = self.settle() {
            self.thread.run = wait;
            return;
        }
        // Set before the check: a thread that stops here is found by `poll_safe_point`.
        self.thread.run = NodeRun::SafePoint;
        if self.is_stopped() {
            return;
        }
        self.enter();
    }

    pub(super) fn triggered(&mut self, firing: FiringId, result: TriggeredResult) {
        // Before the result is queued: it may lead to the next model call within this step.
        if let NodeRun::Llm(stage) = &mut self.thread.run
            && result.checks_limit
        {
            stage.check_limit();
        }
        let pending = self.thread.pending_mut();
        match pending.held.iter().position(|held| *held == firing) {
            Some(place) => {
                pending.held.remove(place);
            }
            // The answer that the firing holds the thread has not arrived yet. `hold` drops it when it arrives.
            None if result.holds => pending.released.push(firing),
            // The firing never held the thread: no later message names it.
            None => {}
        }
        pending.arrived.push_back(SafePointWork::Triggered {
            merge: PendingMerge {
                firing,
                variables: result.variables,
                trigger_depth: result.trigger_depth,
            },
            conversation: result.conversation,
            is_compression: result.is_compression,
        });
        self.poll_safe_point();
    }

    /// Applies newly arrived work if the thread is at a safe point.
    pub(super) fn poll_safe_point(&mut self) {
        match self.thread.run {
            // The thread waits for exactly this work, or is paused, which does not defer results.
            NodeRun::SafePoint => self.safe_point(),
            // An LLM node may be held inside of the node, before its model call.
            NodeRun::Llm(ref stage) if stage.is_safe_point() => {
                if let Some(progress) = super::nodes::llm::safe_point(self) {
                    self.advance(progress);
                }
            }
            // The node is in progress: `arrive` leads to the next safe point and applies the work there.
            _ => {}
        }
    }
}
