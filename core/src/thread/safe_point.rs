//! Safe points: the moment between two nodes, where pauses, holds and what triggers bring take effect.

use std::collections::VecDeque;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::effect::{ConversationOp, Effect, EffectId, FiringId, Outcome, TriggeredResult};
use super::nodes::{NodeRun, Progress};
use super::step::StepContext;
use crate::definition::VariableScope;
use crate::error::RunError;
use crate::event::EventType;
use crate::graph::NodeIx;
use crate::status::ThreadStatus;

/// Results that triggers have pending for a thread.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct PendingResults {
    /// Firings that hold it.
    held: Vec<FiringId>,
    /// Firings that hold the thread and ended before it learned of them.
    released: Vec<FiringId>,
    /// In order.
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

/// An assignment that a trigger makes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct TriggerAssignment {
    pub(super) trigger_id: Arc<str>,
    pub(super) name: Arc<str>,
    pub(super) value: Arc<Value>,
    pub(super) trigger_depth: u32,
}

/// A stop that waits for the conversation to have taken in a firing's result.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Stop {
    /// The thread's end.
    Thread { status: ThreadStatus, error: RunError },
    /// The end of the node's attempt: its time is over.
    Attempt,
}

/// The point at which the thread applies what has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    /// Everything takes effect.
    BetweenNodes,
    /// In the middle of a turn: a compression takes effect, because the call is what it is for. A message that a
    /// trigger adds would stand between the prompt and its answer, so it waits for the node's end.
    BeforeModelCall,
}

/// The fields of VARIABLE_CHANGED.
pub fn variable_fields(name: &str, value: &Value, scope: VariableScope) -> [(&'static str, Value); 3] {
    [("name", json!(name)), ("value", value.clone()), ("scope", json!(scope))]
}

/// The values a firing hands to the thread beside messages.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct PendingMerge {
    pub(super) firing: FiringId,
    /// To assign, all or none.
    pub(super) variables: Vec<(Arc<str>, Arc<Value>)>,
    /// Triggers between the run's own steps and this.
    pub(super) trigger_depth: u32,
}

impl StepContext<'_> {
    /// The thread stands between two nodes and is about to enter `next`.
    pub(super) fn arrive(&mut self, next: NodeIx) {
        self.thread.at = next;
        self.thread.attempt = 0;
        self.thread.prompted = false;
        self.thread.first_call = None;
        self.thread.cut_off = None;
        self.safe_point();
    }

    pub(super) fn safe_point(&mut self) {
        if let Some(wait) = self.settle() {
            self.thread.run = wait;
            return;
        }
        self.thread.run = NodeRun::SafePoint;
        if self.is_stopped() {
            return;
        }
        self.enter();
    }

    /// Applies what has arrived; asks about holds. What it still waits for, or none.
    pub(super) fn settle(&mut self) -> Option<NodeRun> {
        if let Some((id, merge)) = self.apply_arrived(When::BetweenNodes) {
            return Some(NodeRun::Merging { id, merge });
        }
        if self.thread.needs_trigger_check {
            self.thread.needs_trigger_check = false;
            let id = self.next_effect();
            self.out.push(Effect::RaiseAndAwaitTriggers { id, event: None });
            return Some(NodeRun::AwaitingTriggers { id });
        }
        None
    }

    /// True if a firing holds the thread, or it is to pause.
    pub(super) fn is_stopped(&mut self) -> bool {
        if self.is_held() {
            return true;
        }
        if let Some(trigger_depth) = self.thread.pause {
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
            match pending.released.iter().position(|released| *released == firing) {
                Some(place) => {
                    pending.released.remove(place);
                }
                None => pending.held.push(firing),
            }
        }
    }

    /// Applies what has arrived, in order, up to what the conversation must answer first: that is returned.
    pub(super) fn apply_arrived(&mut self, when: When) -> Option<(EffectId, PendingMerge)> {
        let may_now = |work: &SafePointWork| match (when, work) {
            (When::BetweenNodes, _) => true,
            (When::BeforeModelCall, SafePointWork::Triggered { is_compression, .. }) => *is_compression,
            (When::BeforeModelCall, SafePointWork::Assign(_)) => false,
        };
        while let Some(pending) = &mut self.thread.pending {
            let place = pending.arrived.iter().position(may_now)?;
            match pending.arrived.remove(place)? {
                SafePointWork::Assign(assignment) => self.assign_for_trigger(assignment),
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
                    // The variables are checked first: all or nothing, and the conversation cannot be taken back.
                    if let Err(error) = self.thread.variables.clone().assign_all(&merge.variables) {
                        self.out.push(Effect::Applied {
                            firing,
                            error: Some(error),
                        });
                        continue;
                    }
                    let id = self.next_effect();
                    self.converse(id, ConversationOp::Merge(firing));
                    return Some((id, merge));
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
            Err(error) => self.emit_caused(trigger_depth, EventType::TriggerFailed, |_| {
                [("triggerId", json!(trigger_id)), ("error", json!(error))]
            }),
        }
    }

    /// The conversation has taken in a firing's messages, or could not; its variables follow.
    pub(super) fn merged(&mut self, merge: &PendingMerge, outcome: Outcome) {
        let error = match outcome {
            Outcome::Failed(error) => Some(error),
            _ => self.take_variables(&merge.variables, merge.trigger_depth).err(),
        };
        let firing = merge.firing;
        self.out.push(Effect::Applied { firing, error });
    }

    /// After [`Self::merged`]: what came meanwhile has its turn, or `then`.
    pub(super) fn unless_stopped(&mut self, then: impl FnOnce(&mut Self) -> Progress) -> Progress {
        match self.thread.stop.take() {
            Some(stop) => Progress::Stopped(stop),
            None => then(self),
        }
    }

    /// Assigns what came from a join or a firing, all or nothing.
    pub(super) fn take_variables(
        &mut self,
        variables: &[(Arc<str>, Arc<Value>)],
        trigger_depth: u32,
    ) -> Result<(), RunError> {
        self.thread.variables.assign_all(variables)?;
        for (name, _) in variables {
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
            None if result.holds => pending.released.push(firing),
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

    /// Something came that takes effect at a safe point: if the thread stands at one, it does now.
    pub(super) fn poll_safe_point(&mut self) {
        match self.thread.run {
            NodeRun::SafePoint => self.safe_point(),
            NodeRun::Llm(ref stage) if stage.is_safe_point() => {
                if let Some(progress) = super::nodes::llm::safe_point(self) {
                    self.advance(progress);
                }
            }
            _ => {}
        }
    }
}
