//! Context of a step: what each node and each transition reads and changes.

use std::sync::Arc;

use pirn_conversation::conversation::TokenUsage;
use pirn_definition::error::{RunError, RunErrorCode};
use pirn_definition::event_type::{EventType, is_kept};
use pirn_definition::graph::NodeIx;
use pirn_definition::value::Output;
use pirn_events::event::{EventFields, Field, RaisedEvent};

use super::data::effect::{ConversationOp, Effect, EffectId, Environment, Evaluation, Outcome, TimerPurpose};
use super::data::pending::DeferredStop;
use super::data::stages::NodeRun;
use super::machine::ThreadMachine;

/// Context of a step: the thread, the environment and the list of effects.
pub(super) struct StepContext<'a> {
    pub(super) thread: &'a mut ThreadMachine,
    pub(super) environment: Environment,
    pub(super) out: &'a mut Vec<Effect>,
}

/// Result of a node's step.
pub(in crate::thread) enum Progress {
    /// The node awaits an answer.
    Wait(NodeRun),
    /// The node completed; an edge selects the next node.
    Done(Output),
    /// The node completed and selects the next node.
    DoneAt(Output, NodeIx),
    /// The thread completes with this output.
    End(Output),
    /// The conditions of the edges were evaluated: continue at this node.
    Chosen(NodeIx),
    /// Return to the safe point and check again whether the thread may continue.
    SafePoint,
    /// The retry delay has passed.
    Retry,
    /// The attempt failed.
    Failed(RunError),
    /// Perform a stop that arrived while the conversation applied a firing's result.
    Stopped(Box<DeferredStop>),
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

    /// Counts agents before they are started. Fails if the limit of the submitted workflow does not allow them.
    pub(super) fn start_agents(&mut self, count: u64) -> Result<(), RunError> {
        let Some(left) = self.environment.agents_left else {
            return Ok(());
        };
        if let Some(after) = left.checked_sub(count) {
            self.environment.agents_left = Some(after);
            return Ok(());
        }
        let node = &self.thread.graph().node(self.thread.at).id;
        let message =
            format!("node {node} needs {count} of the agents that `dynamic.limits.agents` allows, and {left} are left");
        Err(RunError::new(RunErrorCode::Overloaded, message))
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

    pub(super) fn start_deadline(&mut self, after_ms: pirn_definition::Millis) {
        let id = self.next_effect();
        self.thread.deadline = Some(id);
        self.out.push(Effect::Timer {
            id,
            node: self.thread.at,
            after_ms,
            purpose: TimerPurpose::Limit,
        });
    }

    /// Starts to wait for an event that this thread has not taken.
    pub(super) fn wait_event(&mut self, event: &Arc<str>) -> EffectId {
        let id = self.next_effect();
        self.out.push(Effect::WaitEvent {
            id,
            node: self.thread.at,
            event: Arc::clone(event),
            taken: self.thread.taken.as_deref().cloned().unwrap_or_default(),
        });
        id
    }

    /// Records that a wait has taken an event, so that no later wait of the thread matches it.
    pub(super) fn take_event(&mut self, event: &Arc<str>, sequence: u64) {
        // Only CUSTOM events are retained for later waits. Others match only while the thread waits.
        if is_kept(event) {
            self.thread.taken.get_or_insert_default().take(event, sequence);
        }
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
    pub(super) fn emit_caused<F: Into<Field>, const N: usize>(
        &mut self,
        trigger_depth: u32,
        event_type: EventType,
        fields: impl FnOnce(&ThreadMachine) -> [(&'static str, F); N],
    ) {
        if self.listens(event_type) {
            let event = RaisedEvent::with(event_type, EventFields::of_list(fields(self.thread)));
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

    pub(super) fn stop_deadline(&mut self) {
        // Taken, so that the timer is cancelled at most once.
        if let Some(id) = self.thread.deadline.take() {
            self.out.push(Effect::Drop { id });
        }
    }
}

/// Requests the evaluation of expressions or templates of the current node.
pub(super) fn evaluate(cx: &mut StepContext<'_>, what: Evaluation) -> EffectId {
    let id = cx.next_effect();
    let node = cx.thread.at;
    cx.out.push(Effect::Evaluate { id, node, what });
    id
}

/// Completes the node with this output.
pub(super) fn done(output: Output) -> Progress {
    // Only for values from outside: expressions and literals have their own limits.
    output.within_limits().map_or_else(Progress::Failed, Progress::Done)
}

/// Continues with the value of an outcome, or fails.
pub(super) fn value_or(outcome: Outcome, then: impl FnOnce(Output) -> Progress) -> Progress {
    match outcome {
        Outcome::Value(value) => then(value.into()),
        other => Progress::Failed(failure(other)),
    }
}

/// Converts an unexpected outcome to an error.
pub(super) fn failure(outcome: Outcome) -> RunError {
    // Every outcome is listed: a new one must be handled or rejected by each node.
    match outcome {
        Outcome::Failed(error) => error,
        Outcome::Done
        | Outcome::Value(_)
        | Outcome::Logged(_)
        | Outcome::Choice(_)
        | Outcome::Texts(_)
        | Outcome::Prepared(_)
        | Outcome::Reply(_)
        | Outcome::Tool(_)
        | Outcome::NeedsConsent(_)
        | Outcome::Summarize(..)
        | Outcome::Joined(_)
        | Outcome::Child { .. }
        | Outcome::Elapsed
        | Outcome::Event { .. }
        | Outcome::Answered(_)
        | Outcome::HeldByFiring(_) => RunError::new(
            RunErrorCode::NodeFailed,
            "the host returned an outcome that does not match the node's effect",
        ),
    }
}

pub(super) fn no_edge() -> RunError {
    RunError::new(RunErrorCode::NoEdgeSatisfied, "no edge out of the node is satisfied")
}
