//! Messages between the actors of a run, and external inputs of the run.

use std::sync::Arc;

use pirn_conversation::conversation::compression::CompressionResult;
use pirn_conversation::conversation::{Basis, Conversation, MessageRules};
use pirn_definition::Millis;
use pirn_definition::definition::{ConversationMode, InDoubt, PinSection, Pinned, TriggerDefinition, VariableScope};
use pirn_definition::error::RunError;
use pirn_definition::graph::{ForkIx, NodeIx};
use pirn_definition::message::Message as ChatMessage;
use pirn_events::event::{Event, RaisedEvent};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::doubt::UnresolvedEffect;
use super::last_request::LastRequest;
use super::report::RunReport;
use super::session::SessionState;
use super::summaries::SummaryWarning;
use super::trigger::{CallNo, CallTarget, Firing, TriggerCall};
use super::user_messages::UserMessage;
use crate::run::{ForkNo, ThreadNo};
use crate::thread::{
    Callee, CancelReason, ConversationOp, EffectId, FiringId, Input, NodeRecord, OfferedTools, Outcome, Snapshot,
    ThreadEnd, TriggeredResult, UsageByNode, Variables,
};

/// Names and values to assign.
pub type Assigned = Vec<(Arc<str>, Arc<Value>)>;

/// A message with its recipient.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Message {
    /// Message to the supervisor of the run.
    Supervisor(ToSupervisor),
    /// Message to a thread.
    Thread(ThreadNo, ToThread),
    /// Message to the conversation that this thread owns.
    Conversation(ThreadNo, ToConversation),
}

impl Message {
    /// Returns the message to a run about the end of the run that a firing has started.
    pub fn started_run_ended(firing: FiringId, output: Result<Value, RunError>) -> Self {
        Self::Supervisor(ToSupervisor::DetachedEnded { firing, output })
    }

    /// Returns the message to a run about the report of the run that a firing has started.
    pub fn started_run_reported(firing: FiringId, report: &RunReport) -> Self {
        let error = report.error.clone();
        Self::started_run_ended(firing, error.map_or_else(|| Ok(report.output.clone()), Err))
    }
}

/// Identity of a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Timer {
    /// Time limit of a thread: the workflow's `timeoutMs`.
    Thread {
        /// Limited thread.
        thread: ThreadNo,
        // The expiry repeats the limit, so that the reason of the cancel states it.
        /// Limit in milliseconds.
        after_ms: Millis,
    },
    /// Time limit of a JOIN.
    Join {
        /// Fork that is joined.
        fork: ForkNo,
        /// Distinguishes the successive timers of one fork, so that a late expiry is ignored.
        generation: u32,
    },
    /// Time limit of a triggered sub-workflow.
    Firing(FiringId),
}

/// A command of a person or a trigger for a thread or a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Control {
    /// Cancel, with a reason.
    Cancel(String),
    /// Cancel because the engine shuts down.
    Shutdown,
    /// Pause at the next safe point.
    Pause,
    /// Resume.
    Resume,
}

/// A message to a run's supervisor.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ToSupervisor {
    /// External: control the whole run.
    Control(Control),
    /// External: a trigger controls a thread.
    ControlThread {
        /// Controlled thread.
        thread: ThreadNo,
        /// Command to execute.
        control: Control,
        /// Number of triggers between the run's steps and this message.
        trigger_depth: u32,
    },
    /// External: a timer expired.
    Elapsed(Timer),
    // Boxed, like the other large contents below: the queue moves messages by value.
    /// External: a trigger assigns a variable.
    Assign(Box<Assignment>),
    /// External: a section of the pinned context is set; null removes it.
    Pin(PinSection, Value),
    /// External: a person's message to the model of the main thread.
    Say(Box<UserMessage>),
    /// External: events are raised in the main thread's name.
    Raise(Vec<RaisedEvent>),
    /// External: raise an event that a trigger derived from another event.
    FollowUp(Box<FollowUp>),
    /// External: a trigger fired on an event of the run. [`RunMachine::receive`](crate::run::RunMachine::receive) replaces this message by the
    /// message of the trigger's action.
    Fired(Box<FiringRecord>),
    // Shared: the run retains the call while the host performs it.
    /// External: a trigger fired that calls a function or the notification hook.
    CallTrigger(Arc<TriggerCall>),
    /// External: the call of a trigger ended.
    TriggerCalled {
        /// Call that ended.
        call: CallNo,
        /// Error, if the call failed.
        error: Option<RunError>,
    },
    /// External: the run continues with this workflow definition; its history was checked to fit. Changes no state: the next owner
    /// of the run reads the record.
    Migrated(Arc<str>),
    /// External: the run was recovered after a crash. These effects had started and have no recorded outcome.
    Recovered(Vec<UnresolvedEffect>),
    /// External: a trigger fired for a thread.
    Fire(Box<Firing>),
    /// External: a trigger starts a run that uses only the event, no state of the thread that raised it.
    FireAlone(Box<Firing>),
    /// External: a run that a firing started has ended.
    DetachedEnded {
        /// Firing that started the run.
        firing: FiringId,
        /// Output of the run, or its error.
        output: Result<Value, RunError>,
    },
    /// External: the triggers of all raised events have acted.
    TriggersQuiet,
    /// External: the run got its turn in its session, or an error.
    Session(Box<Result<SessionState, RunError>>),
    /// A thread is at a FORK node.
    Fork {
        /// Thread at the fork.
        thread: ThreadNo,
        /// Effect that the thread awaits.
        effect: EffectId,
        /// Fork to start.
        fork: ForkIx,
        /// Initial variables, outputs and conversation of the branches.
        start: Box<ForkSnapshot>,
    },
    /// A thread is at a MAP node.
    Map {
        /// Thread at the node.
        thread: ThreadNo,
        /// Effect that the thread awaits.
        effect: EffectId,
        /// The MAP node.
        node: NodeIx,
        // One value for all items: the input of an item is copied only when its thread starts.
        /// Input of each item's thread, as a list.
        inputs: Arc<Value>,
        /// Snapshot of the thread's conversation.
        conversation: Box<Conversation>,
    },
    /// A thread calls a workflow.
    Call {
        /// Calling thread.
        thread: ThreadNo,
        /// Effect that the thread awaits.
        effect: EffectId,
        /// Node that starts the child.
        node: NodeIx,
        /// Workflow of the child.
        #[serde(default, skip_serializing_if = "Callee::is_of_node")]
        callee: Callee,
        /// Input of the child.
        input: Arc<Value>,
        /// Conversation of the child.
        conversation: Box<ConversationSource>,
    },
    /// A thread cancels a fork or a called workflow.
    Drop {
        /// Thread that cancels.
        thread: ThreadNo,
        /// Effect that the thread awaited.
        effect: EffectId,
    },
    /// A thread returned its state for a firing.
    Prepared {
        /// Firing that requested the state.
        firing: FiringId,
        /// State of the thread; `None` if the thread has ended.
        prepared: Option<Box<TriggerContext>>,
    },
    /// A thread applied or rejected the result of a firing.
    Applied {
        /// Firing with this result.
        firing: FiringId,
        /// Reason of the rejection.
        error: Option<RunError>,
    },
    /// A thread has ended. The message is routed through the thread's conversation, so that it arrives after all earlier
    /// operations.
    Ended {
        /// Thread that ended.
        thread: ThreadNo,
        /// Outcome and remaining state of the thread.
        ended: Box<ThreadResult>,
    },
    /// External: the host caught the panic of an actor.
    Panicked(Box<Panic>),
    /// A conversation's actor panicked.
    ConversationLost {
        /// Thread that owns the conversation.
        thread: ThreadNo,
        /// Error with the panic message.
        error: RunError,
    },
    /// Cancel the next group of a join's losers.
    StopLosers {
        /// Fork that was joined.
        fork: ForkNo,
        /// First path to examine.
        from: usize,
    },
}

/// An assignment by a trigger.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Assignment {
    /// Thread that raised the event.
    pub thread: ThreadNo,
    /// Scope of the variable.
    pub scope: VariableScope,
    /// Id of the trigger.
    pub trigger_id: Arc<str>,
    /// Name of the variable.
    pub name: Arc<str>,
    /// New value.
    pub value: Arc<Value>,
    /// Number of triggers between the run's steps and this assignment.
    pub trigger_depth: u32,
}

/// An event that a trigger derived from another event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FollowUp {
    /// Thread that raised the original event.
    pub thread: ThreadNo,
    /// Derived event; its trigger depth is one higher.
    pub event: RaisedEvent,
}

/// A message to a thread.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ToThread {
    /// Input of the thread's state machine.
    Input(Input),
    /// A firing has ended.
    Triggered {
        /// Firing that ended.
        firing: FiringId,
        /// Result for the thread.
        result: TriggeredResult,
        /// Change of the conversation, if any.
        merge: Option<Box<Merge>>,
    },
    /// Request for the thread's state, for this firing.
    Describe(FiringId),
    /// Continue with the effects that exceeded the limit of the last turn.
    GoOn,
}

/// A message to a conversation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ToConversation {
    /// Perform an operation and answer a thread.
    Serve {
        /// Requesting thread.
        thread: ThreadNo,
        /// Effect to answer; 0 if the thread expects no answer.
        effect: EffectId,
        /// Operation to perform.
        request: Box<Request>,
    },
    /// Forward a thread's message to the supervisor, with a snapshot of the conversation after the thread's earlier operations.
    Forward(ThreadNo, Box<ThreadRequest>),
    /// Forward to the supervisor that a thread has ended, with its remaining state.
    Ended(ThreadNo, Box<ThreadResult>),
    /// A compression has succeeded or failed.
    CompressionEnded,
}

/// An operation of a conversation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Request {
    /// An operation of the thread's state machine.
    Do {
        /// Operation to perform.
        op: ConversationOp,
        /// Pinned context of a model request.
        pinned: Option<Box<Pinned>>,
        /// Note about the remaining budget in a model request.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        budget: Option<String>,
        /// Tokens of the tool definitions of a model request.
        tool_tokens: u64,
        /// Tools that the request offers in addition to those of its node, to prepare it.
        #[serde(default)]
        offered: Option<Box<OfferedTools>>,
        /// Message order that the model of a request accepts.
        rules: MessageRules,
    },
    /// Apply the change of a firing.
    Merge(Box<Merge>),
    /// Replace the content by that of another conversation, then answer with `then`.
    Restore {
        /// Replacement.
        conversation: Conversation,
        /// Answer after the replacement.
        then: Outcome,
    },
}

/// A message of a thread to its supervisor, routed through its conversation. The conversation adds its snapshot.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ThreadRequest {
    /// The thread is at a FORK node.
    Fork {
        /// Effect that the thread awaits.
        effect: EffectId,
        /// Fork to start.
        fork: ForkIx,
        /// Initial variables and outputs of the branches.
        snapshot: Snapshot,
    },
    /// The thread is at a MAP node.
    Map {
        /// Effect that the thread awaits.
        effect: EffectId,
        /// The MAP node.
        node: NodeIx,
        /// Input of each item's thread, as a list.
        inputs: Arc<Value>,
    },
    /// The thread calls a workflow.
    Call {
        /// Effect that the thread awaits.
        effect: EffectId,
        /// Node that starts the child.
        node: NodeIx,
        /// Workflow of the child.
        #[serde(default, skip_serializing_if = "Callee::is_of_node")]
        callee: Callee,
        /// Input of the child.
        input: Arc<Value>,
        /// Origin of the child's conversation.
        mode: ConversationMode,
    },
    /// The thread cancels a fork, a MAP or a called workflow.
    Drop {
        /// Effect that the thread awaited.
        effect: EffectId,
    },
    /// State of the thread, for a firing.
    Prepared {
        /// Firing that requested the state.
        firing: FiringId,
        /// State with an empty conversation; the conversation fills it in.
        prepared: TriggerContext,
    },
}

/// A conversation that one thread passes to another.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ConversationSource {
    /// Independent copy.
    Snapshot(Conversation),
    /// The conversation that this thread owns, used by both.
    Shared(ThreadNo),
}

/// Initial variables, outputs and conversation of a fork's branches.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ForkSnapshot {
    /// Variables and outputs.
    pub snapshot: Snapshot,
    /// The conversation.
    pub conversation: Conversation,
}

/// State of the thread that raised an event, for a triggered sub-workflow.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TriggerContext {
    /// Output of the last node.
    pub output: Arc<Value>,
    /// Input of the thread.
    pub input: Arc<Value>,
    /// Variables of the thread.
    pub variables: Variables,
    /// Current node.
    pub node: NodeIx,
    /// Conversation of the thread.
    pub conversation: Conversation,
    /// Last request that the thread sent to a model.
    #[serde(default)]
    pub asked: Option<Box<LastRequest>>,
}

/// Outcome and remaining state of a thread.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ThreadResult {
    /// Outcome that the thread reported, or the error of its panic.
    pub end: ThreadEnd,
    /// Tokens that the thread's model calls used.
    pub spent: UsageByNode,
    /// True if the actor panicked: no end event has been raised for the thread.
    pub panicked: bool,
    /// Remaining state for the starter of the thread; `None` if the starter does not use it.
    pub artifacts: Option<Box<FinalThreadState>>,
}

/// State that remains of an ended thread, for its starter.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FinalThreadState {
    /// Variables of the thread.
    pub variables: Variables,
    /// Nodes that the thread entered. Recorded for main and triggered threads only.
    pub history: Vec<NodeRecord>,
    /// Last node.
    pub node: NodeIx,
    /// Conversation; `None` if it was lost in a panic.
    pub conversation: Option<Conversation>,
    /// Warnings of the summaries that compressed the conversation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<SummaryWarning>,
}

/// Change that a firing makes to the conversation of its main thread.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Merge {
    /// The change itself.
    pub change: Change,
    /// True if a token event caused the firing. COMPRESSION_COMPLETED is then raised even if nothing changed.
    pub is_compression: bool,
    /// Number of triggers between the run's steps and this change.
    pub trigger_depth: u32,
    /// Global variables to assign atomically with the change.
    pub globals: Assigned,
    /// Warnings of the summaries that the firing wrote.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<SummaryWarning>,
}

/// A change of a conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Change {
    /// Leaves the conversation unchanged.
    Nothing,
    /// Appends messages.
    Append(Vec<ChatMessage>),
    /// Replaces the messages that were visible in the snapshot.
    Replace {
        /// Version of the conversation when the snapshot was taken.
        basis: Basis,
        /// Replacement.
        messages: Vec<ChatMessage>,
    },
    /// Applies the result of a compression after validation.
    Compressed {
        /// Version of the conversation when the compression started.
        basis: Basis,
        /// Result of the compression.
        result: Box<CompressionResult>,
    },
}

impl Control {
    /// Converts the command to an input of a thread.
    pub(in crate::run) fn input(self, trigger_depth: u32) -> Input {
        match self {
            Self::Cancel(reason) => Input::Cancel {
                reason: CancelReason::Requested { reason },
                trigger_depth,
            },
            Self::Shutdown => Input::Cancel {
                reason: CancelReason::Shutdown,
                trigger_depth,
            },
            Self::Pause => Input::Pause { trigger_depth },
            Self::Resume => Input::Resume { trigger_depth },
        }
    }
}

#[cfg(all(test, target_pointer_width = "64"))]
mod tests {
    use super::*;

    /// The size matters because queues move messages by value.
    #[test]
    fn a_message_has_at_most_120_bytes() {
        assert!(size_of::<Message>() <= 120, "{}", size_of::<Message>());
    }
}

/// A trigger fired on an event of the run. Firing and action are one message, so that they are recorded atomically.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FiringRecord {
    /// Sequence number of the event.
    pub sequence: u64,
    /// Name of the trigger, with its owner.
    pub trigger: Arc<str>,
    /// The event. Not serialized: a rebuilt run raises it again before this message is taken.
    #[serde(skip)]
    pub(in crate::run) event: Option<Arc<Event>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    does: Option<Action>,
}

/// Action of a trigger in the run that raised the event.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Action {
    Fire(Arc<TriggerDefinition>),
    FireAlone(Arc<TriggerDefinition>),
    Call {
        trigger_id: Arc<str>,
        target: CallTarget,
        in_doubt: InDoubt,
        holds_outcome: bool,
    },
    /// A message that does not contain the event.
    Tell(Box<Message>),
}

impl FiringRecord {
    /// Creates the record. `does` is the message to the run; `None` if the trigger does nothing in the run.
    pub fn new(sequence: u64, trigger: Arc<str>, does: Option<Message>) -> Self {
        let (event, does) = match does {
            None => (None, None),
            Some(Message::Supervisor(ToSupervisor::Fire(firing))) => {
                (Some(firing.event), Some(Action::Fire(firing.trigger)))
            }
            Some(Message::Supervisor(ToSupervisor::FireAlone(firing))) => {
                (Some(firing.event), Some(Action::FireAlone(firing.trigger)))
            }
            Some(Message::Supervisor(ToSupervisor::CallTrigger(call))) => {
                // The sender usually passes its only reference: the call is moved, not copied.
                let TriggerCall {
                    trigger_id,
                    event,
                    target,
                    in_doubt,
                    holds_outcome,
                } = Arc::unwrap_or_clone(call);
                let call = Action::Call {
                    trigger_id,
                    target,
                    in_doubt,
                    holds_outcome,
                };
                (Some(event), Some(call))
            }
            // The message itself: it has no event that could be left out of the record.
            Some(message) => (None, Some(Action::Tell(Box::new(message)))),
        };
        Self {
            sequence,
            trigger,
            event,
            does,
        }
    }

    /// Returns true if the event must be attached before the message is taken.
    pub(in crate::run) fn needs_event(&self) -> bool {
        match &self.does {
            Some(Action::Fire(_) | Action::FireAlone(_) | Action::Call { .. }) => self.event.is_none(),
            Some(Action::Tell(_)) | None => false,
        }
    }

    /// Returns false if the trigger does not watch events of this type.
    pub(in crate::run) fn fits(&self, event: &Event) -> bool {
        match &self.does {
            Some(Action::Fire(trigger) | Action::FireAlone(trigger)) => {
                // False if the run was rebuilt under another definition: another event may have this number then.
                trigger.watches().any(|watched| watched == event.raised.event_type)
            }
            // The record of a call does not have the definition of the trigger.
            Some(Action::Call { .. } | Action::Tell(_)) | None => true,
        }
    }

    /// Returns the message for the run; `None` if the trigger does nothing there.
    pub(in crate::run) fn message(self) -> Option<Message> {
        let message = match (self.does?, self.event) {
            (Action::Tell(message), _) => return Some(*message),
            (Action::Fire(trigger), Some(event)) => ToSupervisor::Fire(Box::new(Firing { trigger, event })),
            (Action::FireAlone(trigger), Some(event)) => ToSupervisor::FireAlone(Box::new(Firing { trigger, event })),
            (
                Action::Call {
                    trigger_id,
                    target,
                    in_doubt,
                    holds_outcome,
                },
                Some(event),
            ) => ToSupervisor::CallTrigger(Arc::new(TriggerCall {
                trigger_id,
                event,
                target,
                in_doubt,
                holds_outcome,
            })),
            // Not reached: a replay ends with `Diverged` if `NamedEvents::complete` finds no event.
            (Action::Fire(_) | Action::FireAlone(_) | Action::Call { .. }, None) => return None,
        };
        Some(Message::Supervisor(message))
    }
}

/// An actor panicked while it handled the message that was taken last.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Panic {
    /// Actor that panicked.
    pub of: Panicked,
    /// Panic message.
    pub message: String,
}

/// The actor that panicked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Panicked {
    /// A thread. It ends with status FAILED, with the state so far if that was saved.
    Thread {
        /// Number of the thread.
        thread: ThreadNo,
        /// True if the state so far can be saved.
        is_known: bool,
    },
    /// A conversation. The thread that awaits its answer receives an error, and the thread that owns it ends.
    Conversation {
        /// Owner of the conversation.
        owner: ThreadNo,
        /// Thread that awaits its answer, with the effect.
        asker: Option<(ThreadNo, EffectId)>,
    },
}
