//! Safe points between two nodes, at which pauses, holds and the results of triggers take effect.

use std::sync::Arc;

use pirn_definition::definition::VariableScope;
use pirn_definition::error::RunError;
use pirn_definition::event_type::EventType;
use pirn_events::event::Field;
use serde_json::{Value, json};

use super::context::{Progress, StepContext};
use super::data::effect::{ConversationOp, Effect, EffectId, FiringId, Outcome};
use super::data::pending::{PendingMerge, SafePointKind, SafePointWork, TriggerAssignment};
use super::data::stages::NodeRun;
use crate::status::ThreadStatus;

/// Returns the fields of VARIABLE_CHANGED.
pub fn variable_fields(name: &Arc<str>, value: &Arc<Value>, scope: VariableScope) -> [(&'static str, Field); 3] {
    // The value is shared with the variable, because a queue of events would contain a copy of a large value for each assignment.
    [
        ("name", name.into()),
        ("value", value.into()),
        ("scope", json!(scope).into()),
    ]
}

impl StepContext<'_> {
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
}
