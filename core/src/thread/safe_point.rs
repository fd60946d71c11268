//! Safe points between two nodes, at which pauses, holds and the results of triggers take effect.

use std::collections::VecDeque;
use std::sync::Arc;

use pirn_definition::definition::VariableScope;
use pirn_definition::error::RunError;
use pirn_definition::event_type::EventType;
use pirn_definition::graph::NodeIx;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::effect::{ConversationOp, Effect, EffectId, FiringId, Outcome, TriggeredResult};
use super::nodes::{NodeRun, Progress};
use super::step::StepContext;
use crate::status::ThreadStatus;

/// Pending results of triggers for a thread.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct PendingResults {
    /// Firings that hold the thread.
    held: Vec<FiringId>,
    /// Firings that ended before the thread received that they hold it: the two messages may arrive in either order.
    released: Vec<FiringId>,
    /// Work in arrival order.
    pub(super) arrived: VecDeque<SafePointWork>,
}

/// Work that waits for a safe point.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum SafePointWork {
    Triggered {
        merge: PendingMerge,
        conversation: bool,
        is_compression: bool,
    },
    Assign(TriggerAssignment),
}

/// An assignment by a trigger.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct TriggerAssignment {
    pub(super) trigger_id: Arc<str>,
    pub(super) name: Arc<str>,
    pub(super) value: Arc<Value>,
    pub(super) trigger_depth: u32,
}

/// A stop that waits until the conversation has applied a firing's result.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum DeferredStop {
    /// End of the thread.
    Thread { status: ThreadStatus, error: RunError },
    /// End of the attempt: its time limit has passed.
    Attempt,
}

/// Point at which pending work is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SafePointKind {
    /// Between two nodes: all work is applied.
    BetweenNodes,
    /// Before a model call inside a node: only compressions are applied, because the call needs them. A message of a trigger would
    /// separate the prompt from its reply, so that it waits for the end of the node.
    BeforeModelCall,
}

/// Returns the fields of VARIABLE_CHANGED.
pub fn variable_fields(name: &str, value: &Value, scope: VariableScope) -> [(&'static str, Value); 3] {
    [("name", json!(name)), ("value", value.clone()), ("scope", json!(scope))]
}

/// Variables in the result of a firing.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct PendingMerge {
    pub(super) firing: FiringId,
    /// Assignments, applied atomically.
    pub(super) variables: Vec<(Arc<str>, Arc<Value>)>,
    /// Number of triggers between the run's steps and this result.
    pub(super) trigger_depth: u32,
}

impl StepContext<'_> {
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

    /// Applies pending work, then checks for holds. Returns the state to wait in, if any.
    pub(super) fn settle(&mut self) -> Option<NodeRun> {
        // Before the check for holds: applying a result raises events that may themselves hold the thread.
        if let Some((id, merge)) = self.apply_arrived(SafePointKind::BetweenNodes) {
            return Some(NodeRun::Merging { id, merge });
        }
        if self.thread.needs_trigger_check {
            // Cleared before the request: an event that is raised while the answer is pending needs another check.
            self.thread.needs_trigger_check = false;
            let id = self.next_effect();
            self.out.push(Effect::RaiseAndAwaitTriggers { id, event: None });
            return Some(NodeRun::AwaitingTriggers { id });
        }
        None
    }

    /// Returns true if a firing holds the thread or a pause is pending.
    pub(super) fn is_stopped(&mut self) -> bool {
        // Before the pause: a held thread becomes PAUSED only when its last hold ends.
        if self.is_held() {
            return true;
        }
        if let Some(trigger_depth) = self.thread.pause {
            // Work that arrives while the thread is paused leads here again. The event is raised once per pause.
            if self.thread.status == ThreadStatus::Running {
                self.thread.status = ThreadStatus::Paused;
                self.emit_caused(trigger_depth, EventType::ThreadPaused, |thread| {
                    [("nodeId", json!(thread.graph().node(thread.at).id))]
                });
            }
            return true;
        }
        false
    }

    pub(super) fn is_held(&self) -> bool {
        let pending = self.thread.pending.as_ref();
        pending.is_some_and(|pending| !pending.held.is_empty())
    }

    pub(super) fn hold(&mut self, firings: Vec<FiringId>) {
        for firing in firings {
            let pending = self.thread.pending_mut();
            // The firing may have ended first: its result and this answer come from different parties. Then nothing is left to wait
            // for.
            match pending.released.iter().position(|released| *released == firing) {
                Some(place) => {
                    // Both messages have arrived. An entry that stayed would let the list grow with each firing.
                    pending.released.remove(place);
                }
                None => pending.held.push(firing),
            }
        }
    }

    /// Applies pending work in order. Stops at work that needs an answer of the conversation, and returns that.
    pub(super) fn apply_arrived(&mut self, when: SafePointKind) -> Option<(EffectId, Box<PendingMerge>)> {
        let may_now = |work: &SafePointWork| match (when, work) {
            (SafePointKind::BetweenNodes, _) => true,
            (SafePointKind::BeforeModelCall, SafePointWork::Triggered { is_compression, .. }) => *is_compression,
            (SafePointKind::BeforeModelCall, SafePointWork::Assign(_)) => false,
        };
        // Borrowed again for each piece of work, because applying one needs the whole thread.
        while let Some(pending) = &mut self.thread.pending {
            // Not the front: before a model call, compressions overtake the work that waits for the end of the node.
            let place = pending.arrived.iter().position(may_now)?;
            match pending.arrived.remove(place)? {
                SafePointWork::Assign(assignment) => self.assign_for_trigger(assignment),
                // Without changes to the conversation the result is applied in this step.
                SafePointWork::Triggered {
                    merge,
                    conversation: false,
                    ..
                } => self.merged(&merge, Outcome::Done),
                SafePointWork::Triggered {
                    merge,
                    conversation: true,
                    ..
                } => {
                    let firing = merge.firing;
                    // Check the variables before the conversation changes: that change cannot be undone, and the result must be
                    // atomic.
                    if let Err(error) = self.thread.variables.clone().assign_all(&merge.variables) {
                        self.out.push(Effect::Applied {
                            firing,
                            error: Some(error),
                        });
                        // The firing gets its answer here. Its part for the conversation is never requested.
                        continue;
                    }
                    // The variables cannot change until the answer: assignments that arrive while the thread waits are queued in
                    // `arrived`.
                    let id = self.next_effect();
                    self.converse(id, ConversationOp::Merge(firing));
                    return Some((id, Box::new(merge)));
                }
            }
        }
        None
    }

    pub(super) fn assign_for_trigger(&mut self, assignment: TriggerAssignment) {
        let TriggerAssignment {
            trigger_id,
            name,
            value,
            trigger_depth,
        } = assignment;
        match self.thread.variables.assign(&name, value, false) {
            Ok(value) => self.variable_changed(&name, &value, VariableScope::Thread, trigger_depth),
            // An event instead of a failure: a trigger's mistake does not end the thread that it observes.
            Err(error) => self.emit_caused(trigger_depth, EventType::TriggerFailed, |_| {
                [("triggerId", json!(trigger_id)), ("error", json!(error))]
            }),
        }
    }

    /// Handles the conversation's answer to a firing's messages: on success the variables are assigned.
    pub(super) fn merged(&mut self, merge: &PendingMerge, outcome: Outcome) {
        let error = match outcome {
            Outcome::Failed(error) => Some(error),
            // Only now, after the conversation has changed: a rejected result leaves both untouched.
            _ => self.take_variables(&merge.variables, merge.trigger_depth).err(),
        };
        let firing = merge.firing;
        // Also on success: the firing ends only when its result was applied.
        self.out.push(Effect::Applied { firing, error });
    }

    /// Performs a stop that arrived during the change, else calls `then`. Called after [`Self::merged`].
    pub(super) fn unless_stopped(&mut self, then: impl FnOnce(&mut Self) -> Progress) -> Progress {
        // Taken, so that the stop is performed once.
        match self.thread.stop.take() {
            Some(stop) => Progress::Stopped(stop),
            None => then(self),
        }
    }

    /// Assigns variables from a join or a firing: all or none.
    pub(super) fn take_variables(
        &mut self,
        variables: &[(Arc<str>, Arc<Value>)],
        trigger_depth: u32,
    ) -> Result<(), RunError> {
        // The events follow the last assignment: a trigger must not observe half of the result.
        self.thread.variables.assign_all(variables)?;
        for (name, _) in variables {
            // Read again, because the type of the variable may have converted the value.
            if let Some(value) = self.thread.variables.value(name).cloned() {
                self.variable_changed(name, &value, VariableScope::Thread, trigger_depth);
            }
        }
        Ok(())
    }

    pub(super) fn variable_changed(
        &mut self,
        name: &Arc<str>,
        value: &Arc<Value>,
        scope: VariableScope,
        trigger_depth: u32,
    ) {
        self.emit_caused(trigger_depth, EventType::VariableChanged, |_| {
            variable_fields(name, value, scope)
        });
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
