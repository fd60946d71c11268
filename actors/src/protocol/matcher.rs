//! The messages of an arbiter's trigger matcher.

use std::sync::Arc;

use pirn_core::thread::Outcome;
use pirn_definition::definition::TriggerDefinition;
use pirn_definition::times::TimesFault;
use pirn_events::event::Event;
use pirn_events::trigger::{Owner, TriggerExists, TriggerState};
use pirn_sync::Quota;

use super::bus::{Quiesce, ResumedEvents};
use super::mailbox::Sender;
use crate::answer::Answer;

/// A handle to the trigger matcher of an arbiter.
pub(crate) type MatcherSender = Sender<MatcherMsg>;

/// Reason that an engine does not add a trigger.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TriggerRefused {
    /// The id is in use.
    #[error(transparent)]
    Exists(#[from] TriggerExists),
    /// The trigger has no schedule, which the operation requires.
    #[error("it has no schedule")]
    NoSchedule,
    /// The schedule is invalid.
    #[error("{}", joined(.0))]
    Schedule(Vec<TimesFault>),
    /// The engine has stopped.
    #[error("the engine has stopped")]
    Stopped,
}

fn joined(faults: &[TimesFault]) -> String {
    let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
    faults.join("; ")
}

/// Consecutive events.
pub(crate) enum EventBatch {
    One(Arc<Event>),
    Many(Vec<Arc<Event>>),
}

/// A message to the trigger matcher.
pub(crate) enum MatcherMsg {
    /// Events of types that a trigger watches.
    Happened(EventBatch),
    /// A run was resumed after an earlier process stopped executing it.
    Resumed(Box<ResumedEvents>),
    /// Forwarded by the bus, see [`super::bus::BusMsg::Settle`].
    Settle {
        run_id: Arc<str>,
        answer: Answer<Outcome>,
    },
    Add {
        owner: Owner,
        definition: Arc<TriggerDefinition>,
        /// Engine-wide limit of its firings, shared by all arbiters. None for a limit per run.
        quota: Option<Arc<Quota>>,
        answer: Answer<Result<(), TriggerRefused>>,
    },
    Remove {
        owner: Owner,
        id: String,
    },
    Enable {
        owner: Owner,
        id: String,
        enabled: bool,
        answer: Answer<Option<bool>>,
    },
    States {
        owner: Owner,
        answer: Answer<Vec<TriggerState>>,
    },
    /// Answered once all earlier changes are active.
    InPlace(Answer<()>),
    /// Answered with `BusMsg::Quiesced`, behind all events that earlier firings raise.
    Quiesce(Quiesce),
    /// The result of an evaluation that a run waits for.
    Evaluated {
        run_id: Arc<str>,
        evaluation: u64,
        outcome: Outcome,
    },
    /// Continues with the queued work of a run.
    Proceed {
        run_id: Arc<str>,
    },
    /// Drops the state of an ended run.
    Forget {
        run_id: Arc<str>,
    },
    /// Answered with `BusMsg::MatcherStopped`.
    Stop(Answer<()>),
}
