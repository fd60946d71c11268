//! What a supervisor is told.

use std::sync::Arc;

use pirn_core::Millis;
use pirn_core::conversation::Conversation;
use pirn_core::definition::VariableScope;
use pirn_core::error::RunError;
use pirn_core::event::RaisedEvent;
use pirn_core::graph::{ForkIx, NodeIx};
use pirn_core::status::ThreadStatus;
use pirn_core::thread::{EffectId, FiringId};
use pirn_sync::Batch;
use serde_json::Value;

use super::assign::Assignment;
use super::{ForkNo, ThreadNo};
use crate::answer::Answer;
use crate::contain::Exit;
use crate::firing::Firing;
use crate::run::ThreadReport;
use crate::thread::{ConversationRef, Described, Ended, ForkState, ThreadMsg};

/// What a person or a trigger does to a thread or a run.
#[derive(Clone, Debug)]
pub(crate) enum Control {
    Cancel(String),
    Shutdown,
    Pause,
    Resume,
}

/// What a run is asked while it runs.
#[derive(Clone, Debug)]
pub struct RunStatus {
    /// The main thread's status.
    pub status: ThreadStatus,
    /// Every thread so far.
    pub threads: Vec<ThreadReport>,
}

/// A message to the supervisor.
pub(crate) enum SupervisorMsg {
    Fork {
        thread: ThreadNo,
        effect: EffectId,
        fork: ForkIx,
        state: Box<ForkState>,
    },
    Child {
        thread: ThreadNo,
        effect: EffectId,
        node: NodeIx,
        input: Arc<Value>,
        conversation: ConversationRef,
    },
    /// Threads that were started wait for their first turn.
    FirstTurns,
    /// Under a virtual clock: this one is to have its first turn.
    FirstTurn(ThreadNo),
    /// Threads that stand were told something.
    Turns,
    /// Under a virtual clock: this one was.
    Turn(ThreadNo),
    /// A thread is to be told something.
    Tell {
        thread: ThreadNo,
        message: Box<ThreadMsg>,
    },
    /// Losers of a join are to be told to stop.
    LastTurns,
    /// A thread has stopped at a safe point until it is resumed, or has been.
    Stands {
        thread: ThreadNo,
        is_paused: bool,
    },
    Drop {
        thread: ThreadNo,
        effect: EffectId,
    },
    Ended {
        thread: ThreadNo,
        ended: Box<Ended>,
    },
    Exited {
        thread: ThreadNo,
        exit: Exit,
        /// What the thread had gathered; its `end` says nothing.
        known: Option<Box<Ended>>,
    },
    Deadline {
        fork: ForkNo,
        generation: u32,
    },
    ThreadDeadline {
        thread: ThreadNo,
        after_ms: Millis,
    },
    Control(Control),
    ControlThread {
        thread_id: String,
        control: Control,
        trigger_depth: u32,
        /// Told where the run has no such thread.
        unknown: Box<dyn FnOnce() + Send>,
    },
    /// A trigger assigns a variable.
    Assign {
        scope: VariableScope,
        assignment: Box<Assignment>,
    },
    Pin(pirn_core::definition::PinSection, Value),
    /// Events from outside, in the main thread's name.
    Raise(Batch<RaisedEvent>),
    Status(Box<dyn FnOnce(RunStatus) + Send>),
    Fire(Box<Firing>),
    /// As [`Self::Fire`], for a firing that needs nothing of its thread.
    FireAlone {
        firing: Box<Firing>,
        taken: Answer<()>,
    },
    Described {
        firing: FiringId,
        described: Option<Box<Described>>,
    },
    FiringDeadline {
        firing: FiringId,
    },
    Returned {
        firing: FiringId,
        conversation: Box<Result<Conversation, RunError>>,
    },
    Compressed {
        firing: FiringId,
        output: Result<Value, RunError>,
    },
    Applied {
        firing: FiringId,
        error: Option<RunError>,
    },
    /// The actor of a conversation that this thread owned panicked.
    ConversationLost {
        thread: ThreadNo,
        message: String,
        /// What had been said in it.
        known: Option<Box<Conversation>>,
    },
    /// The triggers of what the run has raised have acted.
    HeardOut,
    Reported(Box<Result<Conversation, RunError>>),
}

impl actix::Message for SupervisorMsg {
    type Result = ();
}
