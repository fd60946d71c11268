//! The messages of an arbiter's trigger matcher.

use std::sync::Arc;

use pirn_core::definition::TriggerDefinition;
use pirn_core::event::Event;
use pirn_core::thread::Outcome;
use pirn_core::trigger::{Owner, TriggerState};
use pirn_sync::Quota;

use super::bus::{Quiesce, ResumedEvents};
use super::mailbox::Sender;
use crate::answer::Answer;

/// A handle to the trigger matcher of an arbiter.
pub(crate) type MatcherSender = Sender<MatcherMsg>;

/// Events that happened one after the other.
pub(crate) enum Happened {
    One(Arc<Event>),
    Many(Vec<Arc<Event>>),
}

/// A message to the trigger matcher.
pub(crate) enum MatcherMsg {
    /// Events that some trigger may watch for.
    Happened(Happened),
    /// A run goes on, after a process of it ended.
    Resumed(Box<ResumedEvents>),
    /// As for the bus, which passes it on.
    Settle {
        run_id: Arc<str>,
        answer: Answer<Outcome>,
    },
    Add {
        owner: Owner,
        definition: Arc<TriggerDefinition>,
        /// The limit of its firings on all arbiters, where that is limited for the engine and not for each run.
        quota: Option<Arc<Quota>>,
        answer: Answer<Result<(), String>>,
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
    /// Answers when all that was added, removed and changed before is.
    InPlace(Answer<()>),
    /// Answered by `BusMsg::Quiesced`, after all that the triggers of what came before raise.
    Quiesce(Quiesce),
    /// The text of a trigger was evaluated, for a run that waits for this one.
    Evaluated {
        run_id: Arc<str>,
        evaluation: u64,
        outcome: Outcome,
    },
    /// A run that has waited for a text has more to do.
    Proceed {
        run_id: Arc<str>,
    },
    /// Nothing more comes of a run.
    Forget {
        run_id: Arc<str>,
    },
    /// Answered by `BusMsg::MatcherStopped`.
    Stop(Answer<()>),
}
