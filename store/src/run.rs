//! Stored data types: runs, journal records, sessions, timers and snapshots.

use crate::content::ContentHash;

/// Maximum length of a chain of forks.
// A read of a fork visits all of its ancestors, so the length of the chain is bounded.
pub const MAX_FORKS: usize = 1000;

/// Run without its journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Run id.
    pub id: String,
    /// Workflow id.
    pub workflow: String,
    /// Workflow definition, fixed at the start.
    pub definition: ContentHash,
    /// Other contents that the run names: input, conversation.
    pub contents: Vec<ContentHash>,
    /// Semantics version of the state machines.
    pub semantics: u32,
    /// Session of the run.
    pub session: Option<String>,
    /// Run and step at which this run was forked. The two journals are identical up to that step.
    pub base: Option<Base>,
    /// Status as of the last commit.
    pub status: RunStatus,
    /// Start time in milliseconds since 1970.
    pub started_at: u64,
    /// Time of the last record, or of the start.
    pub updated_at: u64,
    /// Number of the last record, counted from the start of the base; 0 before the first.
    pub steps: u64,
}

/// Sort key of runs: start time, then id.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RunPlace {
    /// Start time in milliseconds since 1970.
    pub started_at: u64,
    /// Run id.
    pub id: String,
}

impl Run {
    /// Ends the owner in the ids of its runs.
    pub const OWNER_END: char = '~';

    /// Returns the owner: the part of the id before the first `~`.
    pub fn owner(&self) -> Option<&str> {
        Self::owner_of(&self.id)
    }

    /// Returns the owner of the run with this id.
    pub fn owner_of(id: &str) -> Option<&str> {
        Some(id.split_once(Self::OWNER_END)?.0)
    }

    /// Returns the sort key.
    pub fn place(&self) -> RunPlace {
        RunPlace {
            started_at: self.started_at,
            id: self.id.clone(),
        }
    }
}

/// Position at which a run was forked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Base {
    /// Id of the base run.
    pub run: String,
    /// Number of the last shared step.
    pub step: u64,
}

/// Stored status of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RunStatus {
    /// The run has started and not ended. Without an owner it waits to be resumed.
    Unfinished,
    /// The run has no pending work until an input arrives. It may or may not have an owner.
    Waiting(WaitingFor),
    /// The main thread completed.
    Completed,
    /// The main thread failed.
    Failed,
    /// The run was cancelled.
    Cancelled,
    /// The run exceeded its time limit.
    TimedOut,
}

/// Kind of input that a run waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WaitingFor {
    /// Answer of a person.
    Interaction,
    /// Event.
    Event,
    /// Timer.
    Timer,
}

impl RunStatus {
    /// All statuses, in the order of their stored codes.
    // Stored rows contain the index: append new statuses at the end.
    pub const ALL: [Self; 8] = [
        Self::Unfinished,
        Self::Waiting(WaitingFor::Interaction),
        Self::Waiting(WaitingFor::Event),
        Self::Waiting(WaitingFor::Timer),
        Self::Completed,
        Self::Failed,
        Self::Cancelled,
        Self::TimedOut,
    ];

    /// Returns true if the run has ended.
    pub fn is_final(self) -> bool {
        match self {
            Self::Unfinished | Self::Waiting(_) => false,
            Self::Completed | Self::Failed | Self::Cancelled | Self::TimedOut => true,
        }
    }

    /// `UNFINISHED`, `WAITING`, `COMPLETED`, `FAILED`, `CANCELLED` or `TIMEOUT`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unfinished => "UNFINISHED",
            Self::Waiting(_) => "WAITING",
            Self::Completed => "COMPLETED",
            Self::Failed => "FAILED",
            Self::Cancelled => "CANCELLED",
            Self::TimedOut => "TIMEOUT",
        }
    }

    /// Returns the kind of input of a waiting run.
    pub fn waiting_for(self) -> Option<WaitingFor> {
        match self {
            Self::Waiting(what) => Some(what),
            Self::Unfinished | Self::Completed | Self::Failed | Self::Cancelled | Self::TimedOut => None,
        }
    }
}

impl WaitingFor {
    /// `interaction`, `event` or `timer`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Interaction => "interaction",
            Self::Event => "event",
            Self::Timer => "timer",
        }
    }
}

/// Filter of run lists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunFilter {
    /// Status as returned by [`RunStatus::as_str`].
    pub status: Option<String>,
    /// Session id.
    pub session: Option<String>,
    /// Workflow id.
    pub workflow: Option<String>,
    /// Owner, as returned by [`Run::owner`].
    pub owner: Option<String>,
    /// Only runs that have not ended.
    pub live: bool,
    /// Descending order of start.
    pub youngest_first: bool,
}

impl RunFilter {
    /// Creates a filter for runs that have not ended.
    pub fn live() -> Self {
        Self {
            live: true,
            ..Self::default()
        }
    }

    /// Returns true if the filter matches a run.
    pub fn has(&self, run: &Run) -> bool {
        let is_of_workflow = self.workflow.as_ref().is_none_or(|workflow| *workflow == run.workflow);
        let is_owned = self.owner.is_none() || self.owner.as_deref() == run.owner();
        let is_of_session = self.session.is_none() || self.session == run.session;
        self.has_status(run.status) && is_of_workflow && is_of_session && is_owned
    }

    /// Returns true if the filter may match a run of this status.
    pub fn has_status(&self, status: RunStatus) -> bool {
        // By name, so that one filter covers all three kinds of waiting.
        let is_asked = self.status.as_deref().is_none_or(|asked| asked == status.as_str());
        is_asked && !(self.live && status.is_final())
    }
}

/// State that the runs of a session pass on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// Session id.
    pub id: String,
    /// Number of writes.
    pub version: u64,
    /// State as JSON of the engine.
    pub body: String,
    /// Contents that the body names.
    pub contents: Vec<ContentHash>,
    /// Run of the last write.
    pub run: String,
    /// Time of the last write in milliseconds since 1970.
    pub updated_at: u64,
}

/// Time at which a parked run is resumed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timer {
    /// Due time in milliseconds since 1970.
    pub due: u64,
    /// Run id.
    pub run: String,
    /// Effect that waits for the timer.
    pub effect: String,
}

/// State of a run's machine after a step. Shortens the replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Number of the step.
    pub step: u64,
    /// State, serialized by the machine.
    pub body: String,
}

/// External input of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Time at which the run received the input, in milliseconds since 1970.
    pub at: u64,
    /// Effect that had this outcome.
    pub effect: Option<String>,
    /// Input as JSON of the run's machine.
    pub body: String,
}

impl Record {
    /// Creates a record that is not the outcome of an effect.
    pub fn new(at: u64, body: impl Into<String>) -> Self {
        Self {
            at,
            effect: None,
            body: body.into(),
        }
    }

    /// Sets the effect that had this outcome.
    #[must_use]
    pub fn effect(mut self, id: impl Into<String>) -> Self {
        self.effect = Some(id.into());
        self
    }
}
