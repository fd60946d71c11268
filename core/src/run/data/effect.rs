//! Effects of a run, which the host performs.

use std::sync::Arc;

use pirn_definition::Millis;
use pirn_definition::graph::Graph;
use pirn_definition::message::Message as ChatMessage;
use pirn_events::event::{Event, RaisedEvent};
use serde_json::Value;

use super::message::Timer;
use super::report::RunReport;
use super::session::SessionLeft;
use super::trigger::{CallNo, TriggerCall};
use crate::run::ThreadNo;
use crate::thread::{self, EffectId, FiringId};

/// An effect to be performed outside of the run machine. Results return as a [`crate::run::Message`].
#[derive(Clone, Debug)]
pub enum Effect {
    /// A thread may take its first step: the host sends [`thread::Input::Start`]. Used only with [`crate::run::RunSeed::picks_starts`].
    Begin {
        /// Thread to start.
        thread: ThreadNo,
    },
    /// The run waits for its turn in its session: the host sends [`crate::run::ToSupervisor::Session`]. First effect of such a run.
    AwaitSession,
    /// The run ends its turn in its session, with this update; `None` leaves the session unchanged. Precedes the outcome.
    // Boxed, like the other large contents below: the size of `Effect` is that of its largest variant.
    LeaveSession(Option<Box<SessionLeft>>),
    /// A thread needs a model, a tool, a script, an evaluation that the environment does not perform inline, a slow function, a timer or
    /// an event. The host answers with [`thread::Input::Answer`].
    Thread {
        /// Requesting thread.
        thread: ThreadNo,
        /// One of [`thread::Effect`]'s `Model`, `Tool`, `Script`, `Evaluate`, `Function`, `Timer`, `WaitEvent`.
        effect: thread::Effect,
    },
    /// Cancels an effect of a thread.
    Drop {
        /// Thread that requested the effect.
        thread: ThreadNo,
        /// Effect to cancel.
        effect: EffectId,
    },
    /// A thread waits until every trigger of the raised events has been matched. The host then answers with
    /// [`thread::Outcome::HeldByFiring`].
    AwaitTriggers {
        /// Waiting thread.
        thread: ThreadNo,
        /// Effect that the thread awaits.
        effect: EffectId,
    },
    /// A thread has ended: the host cancels everything that still executes for it.
    ThreadEnded {
        /// Thread that ended.
        thread: ThreadNo,
    },
    /// Publishes an event.
    Emit {
        /// Sequence number among the events of the run, from 1. Without gaps if every event is raised by the run machine, as in a
        /// durable run.
        sequence: u64,
        /// Workflow of the thread that raised the event. Its id alone would be larger, and an effect of more than 128 bytes is moved
        /// by calls of `memcpy`.
        graph: Arc<Graph>,
        /// Id of the thread.
        thread_id: Arc<str>,
        /// Published event.
        event: RaisedEvent,
    },
    /// Publishes events that arrived together from outside, in the main thread's name.
    EmitAll {
        /// Sequence number of the first event.
        first: u64,
        /// Workflow of the main thread.
        graph: Arc<Graph>,
        /// Id of the main thread.
        thread_id: Arc<str>,
        /// Published events.
        events: Vec<RaisedEvent>,
    },
    /// Sets a timer: the host sends [`crate::run::ToSupervisor::Elapsed`].
    SetTimer {
        /// Identity of the timer.
        timer: Timer,
        /// Delay in milliseconds.
        after_ms: Millis,
    },
    /// Cancels a timer.
    StopTimer {
        /// Timer to cancel.
        timer: Timer,
    },
    /// Starts a run for which no thread of this run waits. The host reports its end as [`crate::run::ToSupervisor::DetachedEnded`].
    StartRun(Box<DetachedStart>),
    /// Performs the call of a trigger. The host reports its end as [`crate::run::ToSupervisor::TriggerCalled`].
    CallTrigger {
        /// Number of the call.
        call: CallNo,
        /// Call to perform.
        what: Arc<TriggerCall>,
    },
    /// Requests [`crate::run::ToSupervisor::TriggersQuiet`] when the triggers of all raised events have acted.
    QuiesceTriggers,
    /// Sends the outcome. Detached threads may still run.
    // One per run: its allocation costs less than a larger `Effect` at each event.
    Report(Arc<RunReport>),
    /// The run has settled. No effect follows.
    Settled,
}

/// A run started by a trigger.
#[derive(Clone, Debug, PartialEq)]
pub struct DetachedStart {
    /// Firing that starts it.
    pub firing: FiringId,
    /// Id of its workflow.
    pub workflow_id: String,
    /// Input of the workflow.
    pub input: Value,
    /// Initial messages of its conversation.
    pub messages: Vec<ChatMessage>,
    /// True if a token event started it: the token limit is not checked.
    pub is_unlimited: bool,
    /// Profile of the model request that exceeded the token limit, if that started the run.
    pub summary_profile: Option<Arc<str>>,
    /// Number of triggers between this run's steps and the started run.
    pub trigger_depth: u32,
}

/// Events of an [`Effect::Emit`] or [`Effect::EmitAll`], all of one thread.
#[derive(Clone, Copy, Debug)]
pub struct Emitted<'a> {
    first: u64,
    /// Workflow of the thread.
    pub workflow_id: &'a Arc<str>,
    /// Id of the thread.
    pub thread_id: &'a Arc<str>,
    events: &'a [RaisedEvent],
}

impl Effect {
    /// Returns the events that the effect publishes; `None` if it is another effect.
    pub fn emitted(&self) -> Option<Emitted<'_>> {
        // A single event becomes a slice of one, so that both variants are read by one loop without an allocation.
        let (first, graph, thread_id, events) = match self {
            Self::Emit {
                sequence,
                graph,
                thread_id,
                event,
            } => (*sequence, graph, thread_id, std::slice::from_ref(event)),
            Self::EmitAll {
                first,
                graph,
                thread_id,
                events,
            } => (*first, graph, thread_id, &events[..]),
            _ => return None,
        };
        Some(Emitted {
            first,
            // Borrowed: a caller copies only those events that it needs, in `Emitted::event`.
            workflow_id: &graph.workflow_id,
            thread_id,
            events,
        })
    }
}

impl<'a> Emitted<'a> {
    /// Returns the events with their sequence numbers, in ascending order.
    pub fn numbered(self) -> impl Iterator<Item = (u64, &'a RaisedEvent)> {
        // The step that emitted them has reserved consecutive numbers.
        (self.first..).zip(self.events)
    }

    /// Returns one of these events as the run `run_id` publishes it at time `at`.
    pub(in crate::run) fn event(self, run_id: &Arc<str>, at: Millis, (sequence, raised): (u64, &RaisedEvent)) -> Event {
        Event {
            sequence,
            // The time of the step, so that a rebuilt run publishes an equal event.
            timestamp: at,
            run_id: Arc::clone(run_id),
            workflow_id: Arc::clone(self.workflow_id),
            thread_id: Arc::clone(self.thread_id),
            raised: raised.clone(),
        }
    }
}
