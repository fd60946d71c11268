//! The effects a run wants done outside.

use std::sync::Arc;

use serde_json::Value;

use super::ThreadNo;
use super::message::Timer;
use super::report::RunReport;
use super::session::SessionLeft;
use super::trigger_calls::{CallNo, TriggerCall};
use crate::Millis;
use crate::event::RaisedEvent;
use crate::message::Message as ChatMessage;
use crate::thread::{self, EffectId, FiringId};

/// Something to be done outside of a run. What comes of it is told the run as a [`super::Message`].
#[derive(Clone, Debug)]
pub enum Effect {
    /// A thread may take its first step: it is told [`thread::Input::Start`]. Asked where
    /// [`super::RunSeed::picks_starts`] alone.
    Begin {
        /// Which.
        thread: ThreadNo,
    },
    /// The run waits for its turn in its session: it is told [`super::ToSupervisor::Session`]. The first effect of such a run.
    AwaitSession,
    /// The run is done with its session, and leaves this; none: the session stays as it was. Told before the outcome.
    LeaveSession(Option<Box<SessionLeft>>),
    /// A thread wants something that comes from outside: a model, a tool, a script, texts that the world does not evaluate in
    /// place, a function that takes its time, a timer, an event. It is answered with [`thread::Input::Answer`].
    Thread {
        /// Which.
        thread: ThreadNo,
        /// One of [`thread::Effect`]'s `Model`, `Tool`, `Script`, `Evaluate`, `Function`, `Timer`, `WaitEvent`.
        effect: thread::Effect,
    },
    /// A thread no longer awaits something of that: it is to be stopped.
    Drop {
        /// Which.
        thread: ThreadNo,
        /// The effect that it awaited.
        effect: EffectId,
    },
    /// A thread asks which firings hold it, once every trigger of what was raised has been matched: it is answered with
    /// [`thread::Outcome::HeldByFiring`].
    AwaitTriggers {
        /// Which.
        thread: ThreadNo,
        /// The effect that it awaits.
        effect: EffectId,
    },
    /// A thread has ended: whatever is under way for it is to be stopped.
    ThreadEnded {
        /// Which.
        thread: ThreadNo,
    },
    /// Something happened.
    Emit {
        /// The event's place among those of the run, from 1. Complete where each event of the run is raised by the run: where it
        /// is kept.
        sequence: u64,
        /// The workflow of the thread it happened in.
        workflow_id: Arc<str>,
        /// The thread.
        thread_id: Arc<str>,
        /// The event.
        event: RaisedEvent,
    },
    /// Events came together from outside, in the main thread's name.
    EmitAll {
        /// The place of the first of them, as for [`Self::Emit`].
        first: u64,
        /// The main thread's workflow.
        workflow_id: Arc<str>,
        /// The main thread.
        thread_id: Arc<str>,
        /// The events.
        events: Vec<RaisedEvent>,
    },
    /// Tell [`super::ToSupervisor::Elapsed`] after a while.
    SetTimer {
        /// Names it.
        timer: Timer,
        /// When, milliseconds from now.
        after_ms: Millis,
    },
    /// That is no longer needed.
    StopTimer {
        /// Which.
        timer: Timer,
    },
    /// Start a run that nobody of this one waits for; its end is told as [`super::ToSupervisor::DetachedEnded`].
    StartRun(Box<DetachedStart>),
    /// Call what a trigger calls; its end is told as [`super::ToSupervisor::TriggerCalled`].
    CallTrigger {
        /// Names the call.
        call: CallNo,
        /// The call.
        what: Arc<TriggerCall>,
    },
    /// Tell [`super::ToSupervisor::TriggersQuiet`] once the triggers of all that was raised have acted.
    QuiesceTriggers,
    /// The outcome. Detached threads may still run.
    Report(Box<RunReport>),
    /// Nothing of the run is left. Nothing follows.
    Settled,
}

/// A run that a trigger starts.
#[derive(Clone, Debug, PartialEq)]
pub struct DetachedStart {
    /// The firing.
    pub firing: FiringId,
    /// The workflow.
    pub workflow_id: String,
    /// Its input.
    pub input: Value,
    /// The messages that its conversation starts with.
    pub messages: Vec<ChatMessage>,
    /// Inside what a token event started: the token limit is not checked.
    pub is_unlimited: bool,
    /// Triggers between the run's own steps and it.
    pub trigger_depth: u32,
}
