//! The messages that the actors of a run send each other, and those that come to them from outside.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::fired::Fired;
use super::firing::Firing;
use super::last_asked::LastAsked;
use super::panics::Panic;
use super::session::SessionState;
use super::trigger_calls::{CallNo, TriggerCall};
use super::{Doubt, ForkNo, ThreadNo};
use crate::Millis;
use crate::conversation::compression::CompressionResult;
use crate::conversation::{Basis, Conversation, MessageRules};
use crate::definition::{ConversationMode, PinSection, Pinned, VariableScope};
use crate::error::RunError;
use crate::event::RaisedEvent;
use crate::graph::{ForkIx, NodeIx};
use crate::message::Message as ChatMessage;
use crate::thread::{
    CancelReason, ConversationOp, EffectId, FiringId, Input, NodeRecord, Outcome, Snapshot, Spending, ThreadEnd,
    TriggeredResult, Variables,
};

/// Names and values to assign.
pub type Assigned = Vec<(Arc<str>, Arc<Value>)>;

/// A message, and whom it is for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Message {
    /// For the run's supervisor.
    Supervisor(ToSupervisor),
    /// For the thread of this number.
    Thread(ThreadNo, ToThread),
    /// For the conversation that belongs to the thread of this number.
    Conversation(ThreadNo, ToConversation),
}

/// Something whose time comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Timer {
    /// The end of a thread's time: its workflow's `timeoutMs`.
    Thread {
        /// Which.
        thread: ThreadNo,
        /// The limit, milliseconds.
        after_ms: Millis,
    },
    /// The end of a JOIN's time.
    Join {
        /// Which.
        fork: ForkNo,
        /// Tells it from the fork's other timers.
        generation: u32,
    },
    /// The end of a triggered sub-workflow's time.
    Firing(FiringId),
}

/// An order of a person or a trigger to a thread or a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Control {
    /// Stop it, for this reason.
    Cancel(String),
    /// Stop it: the engine shuts down.
    Shutdown,
    /// Stand still at the next safe point.
    Pause,
    /// Go on.
    Resume,
}

/// A message to a run's supervisor.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ToSupervisor {
    /// From outside: the run, or what it did before, is controlled.
    Control(Control),
    /// From outside: a trigger controls a thread.
    ControlThread {
        /// Which.
        thread: ThreadNo,
        /// The control.
        control: Control,
        /// Triggers between the run's own steps and this.
        trigger_depth: u32,
    },
    /// From outside: a time has come.
    Elapsed(Timer),
    /// From outside: a trigger assigns a variable.
    Assign(Box<Assignment>),
    /// From outside: a section of the pinned context is set; null removes it.
    Pin(PinSection, Value),
    /// From outside: events are raised in the main thread's name.
    Raise(Vec<RaisedEvent>),
    /// From outside: an event that follows from another, because of a trigger.
    FollowUp(Box<FollowUp>),
    /// From outside: a trigger fired on an event of the run, and does this. The run takes that in its place.
    Fired(Box<Fired>),
    /// From outside: a trigger fired that calls a function or the notification hook.
    CallTrigger(Arc<TriggerCall>),
    /// From outside: that has ended.
    TriggerCalled {
        /// Which.
        call: CallNo,
        /// Why it failed.
        error: Option<RunError>,
    },
    /// From outside: the run goes on by this definition, which what it went through fits. Changes nothing: it is for whoever
    /// goes on with the run.
    Migrated(Arc<str>),
    /// From outside: the run goes on after a crash, and these effects had begun and have no outcome.
    Recovered(Vec<Doubt>),
    /// From outside: a trigger fired for a thread.
    Fire(Box<Firing>),
    /// From outside: a trigger starts a run that needs nothing of the thread which raised the event.
    FireAlone(Box<Firing>),
    /// From outside: a run that a firing started has ended.
    DetachedEnded {
        /// The firing.
        firing: FiringId,
        /// The run's output.
        output: Result<Value, RunError>,
    },
    /// From outside: the triggers of all that was raised have acted.
    TriggersQuiet,
    /// From outside: the run has its turn in its session, or will not have it.
    Session(Box<Result<SessionState, RunError>>),
    /// A thread stands at FORK.
    Fork {
        /// Which.
        thread: ThreadNo,
        /// The effect that it awaits.
        effect: EffectId,
        /// The fork.
        fork: ForkIx,
        /// The variables, outputs and conversation that the branches start with.
        start: Box<BranchStart>,
    },
    /// A thread stands at MAP.
    Map {
        /// Which.
        thread: ThreadNo,
        /// The effect that it awaits.
        effect: EffectId,
        /// The MAP node.
        node: NodeIx,
        /// A list: the input of each item's thread.
        inputs: Arc<Value>,
        /// The thread's conversation.
        conversation: Box<Conversation>,
    },
    /// A thread calls a workflow.
    Call {
        /// Which.
        thread: ThreadNo,
        /// The effect that it awaits.
        effect: EffectId,
        /// The SUBGRAPH node.
        node: NodeIx,
        /// The child's input.
        input: Arc<Value>,
        /// The child's conversation.
        conversation: Box<HandedConversation>,
    },
    /// A thread no longer awaits a fork or a called workflow.
    Drop {
        /// Which.
        thread: ThreadNo,
        /// The effect that it awaited.
        effect: EffectId,
    },
    /// A thread has said how it stands, for a firing; none where it has ended.
    Prepared {
        /// The firing.
        firing: FiringId,
        /// Its state.
        prepared: Option<Box<Prepared>>,
    },
    /// A thread has applied what a firing handed back, or could not.
    Applied {
        /// The firing.
        firing: FiringId,
        /// Why not.
        error: Option<RunError>,
    },
    /// A thread has ended. It said so by way of its conversation: all that it had said there is in it.
    Ended {
        /// Which.
        thread: ThreadNo,
        /// Its end.
        ended: Box<Ended>,
    },
    /// From whoever contains actors: one panicked.
    Panicked(Box<Panic>),
    /// A conversation's actor panicked.
    ConversationLost {
        /// The thread that it belongs to.
        thread: ThreadNo,
        /// Why.
        error: RunError,
    },
    /// Losers of a join are to be stopped, from this path on.
    StopLosers {
        /// The fork.
        fork: ForkNo,
        /// The first path to look at.
        from: usize,
    },
}

/// An assignment that a trigger makes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Assignment {
    /// The thread that raised the event.
    pub thread: ThreadNo,
    /// The scope of the variable.
    pub scope: VariableScope,
    /// The trigger.
    pub trigger_id: Arc<str>,
    /// The variable.
    pub name: Arc<str>,
    /// Its value.
    pub value: Arc<Value>,
    /// Triggers between the run's own steps and this.
    pub trigger_depth: u32,
}

/// An event that follows from another, because of a trigger.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FollowUp {
    /// The thread that raised the other event.
    pub thread: ThreadNo,
    /// The event, one link further down the chain.
    pub event: RaisedEvent,
}

/// A message to a thread.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ToThread {
    /// As its machine takes it.
    Input(Input),
    /// A firing has ended.
    Triggered {
        /// Which.
        firing: FiringId,
        /// The result that it hands back.
        result: TriggeredResult,
        /// The change of the conversation.
        merge: Option<Box<Merge>>,
    },
    /// A firing needs to know how it stands.
    Describe(FiringId),
    /// Its last turn was long, and left something over.
    GoOn,
}

/// A message to a conversation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ToConversation {
    /// To do something, and to answer a thread.
    Serve {
        /// The thread that asks.
        thread: ThreadNo,
        /// The effect that awaits the answer; 0: none does.
        effect: EffectId,
        /// The request.
        request: Box<Request>,
    },
    /// A thread tells its supervisor something, and with it how its conversation is after all that it has said in it.
    Forward(ThreadNo, Box<Forwarded>),
    /// A thread tells its supervisor that it has ended, and what it leaves.
    Ended(ThreadNo, Box<Ended>),
    /// A compression has ended, well or not.
    CompressionEnded,
}

/// A request to a conversation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Request {
    /// The request of a thread's machine.
    Do {
        /// That.
        op: ConversationOp,
        /// For a model request.
        pinned: Option<Box<Pinned>>,
        /// For a model request: what the model is told of budgets.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        budget: Option<String>,
        /// For a model request: what the definitions of its tools cost.
        tool_tokens: u64,
        /// For a model request: the order of messages that its model takes.
        rules: MessageRules,
    },
    /// Take in what a firing hands back.
    Merge(Box<Merge>),
    /// Take over another conversation's content; where that is done, answer so.
    Restore {
        /// The other one.
        conversation: Conversation,
        /// The answer.
        then: Outcome,
    },
}

/// A message of a thread to its supervisor, by way of its conversation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Forwarded {
    /// It stands at FORK.
    Fork {
        /// The effect that it awaits.
        effect: EffectId,
        /// The fork.
        fork: ForkIx,
        /// The variables and outputs that its branches start with.
        snapshot: Snapshot,
    },
    /// It stands at MAP.
    Map {
        /// The effect that it awaits.
        effect: EffectId,
        /// The MAP node.
        node: NodeIx,
        /// A list: the input of each item's thread.
        inputs: Arc<Value>,
    },
    /// It calls a workflow.
    Call {
        /// The effect that it awaits.
        effect: EffectId,
        /// The SUBGRAPH node.
        node: NodeIx,
        /// The child's input.
        input: Arc<Value>,
        /// The origin of the child's conversation.
        mode: ConversationMode,
    },
    /// It no longer awaits one of these.
    Drop {
        /// The effect that it awaited.
        effect: EffectId,
    },
    /// Its state, for a firing.
    Prepared {
        /// The firing.
        firing: FiringId,
        /// The state, but for the conversation.
        prepared: Prepared,
    },
}

/// A conversation as one thread hands it to another.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum HandedConversation {
    /// As it was at that moment.
    Snapshot(Conversation),
    /// Both speak in the one that belongs to this thread.
    Shared(ThreadNo),
}

/// The variables, outputs and conversation that the branches of a fork start with.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BranchStart {
    /// Variables and outputs.
    pub snapshot: Snapshot,
    /// The conversation.
    pub conversation: Conversation,
}

/// The parts of the thread that raised the event, for a triggered sub-workflow.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Prepared {
    /// The last node's output.
    pub output: Arc<Value>,
    /// The thread's input.
    pub input: Arc<Value>,
    /// Its variables.
    pub variables: Variables,
    /// The node it is in.
    pub node: NodeIx,
    /// Its conversation.
    pub conversation: Conversation,
    /// The request that its model got last.
    #[serde(default)]
    pub asked: Option<Box<LastAsked>>,
}

/// The end of a thread.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ended {
    /// By its own word, or by what ended its actor.
    pub end: ThreadEnd,
    /// The tokens that its models cost.
    pub spent: Spending,
    /// Its actor panicked: nobody has said yet that it ended.
    pub panicked: bool,
    /// Its remains, for whoever it ran for; none where nobody takes them over.
    pub artifacts: Option<Box<Artifacts>>,
}

/// The remains of a thread, for whoever it ran for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Artifacts {
    /// Its variables.
    pub variables: Variables,
    /// The nodes it entered; of main and triggered threads alone.
    pub history: Vec<NodeRecord>,
    /// The node it was in.
    pub node: NodeIx,
    /// Its conversation; none where that was lost.
    pub conversation: Option<Conversation>,
}

/// The change that a firing makes to the conversation of its main thread.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Merge {
    /// The change itself.
    pub change: Change,
    /// A token event set it off: COMPRESSION_COMPLETED says what came of it, also where that is nothing.
    pub is_compression: bool,
    /// Triggers between the run's own steps and this.
    pub trigger_depth: u32,
    /// Global variables to assign with it: both or neither.
    pub globals: Assigned,
}

/// A change of a conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Change {
    /// Nothing.
    Nothing,
    /// These at its end.
    Append(Vec<ChatMessage>),
    /// These in the place of what was visible.
    Replace {
        /// When.
        basis: Basis,
        /// The messages.
        messages: Vec<ChatMessage>,
    },
    /// A compression's result, checked before it is taken.
    Compressed {
        /// When the compression began.
        basis: Basis,
        /// Its result.
        result: CompressionResult,
    },
}

impl Control {
    /// The same, as a thread's input.
    pub(super) fn input(self, trigger_depth: u32) -> Input {
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

    /// A queue of many messages is moved about: each has its size.
    #[test]
    fn a_message_stays_small() {
        assert!(size_of::<Message>() <= 120, "{}", size_of::<Message>());
    }
}
