//! Runs, sessions, timers and snapshots, as a store tells of them.

use crate::content::ContentHash;

/// A run has at most so many others in the line of those it was forked from.
pub const MAX_FORKS: usize = 1000;

/// A run as its store knows it, without its journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Its id.
    pub id: String,
    /// Its workflow's id.
    pub workflow: String,
    /// The definition it started with and keeps.
    pub definition: ContentHash,
    /// The other contents it started from: input, conversation.
    pub contents: Vec<ContentHash>,
    /// The version of the machines that stepped it.
    pub semantics: u32,
    /// The session it belongs to.
    pub session: Option<String>,
    /// The run and step that it was forked at. Up to there their journals are one.
    pub base: Option<Base>,
    /// Its status.
    pub status: RunStatus,
    /// In milliseconds since 1970.
    pub started_at: u64,
    /// The time of its last record, or of its start.
    pub updated_at: u64,
    /// The number of its last record, its base's included; 0 before the first.
    pub steps: u64,
}

/// The place of a run among others: by the time at which it began, and by its id.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RunPlace {
    /// In milliseconds since 1970.
    pub started_at: u64,
    /// Its id.
    pub id: String,
}

impl Run {
    /// Its place among others.
    pub fn place(&self) -> RunPlace {
        RunPlace {
            started_at: self.started_at,
            id: self.id.clone(),
        }
    }
}

/// The place where a run was forked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Base {
    /// The run it was forked from.
    pub run: String,
    /// The last step they share.
    pub step: u64,
}

/// The status of a run, as far as its store was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RunStatus {
    /// It has begun and not ended. Where no process carries it, it waits to be resumed.
    Unfinished,
    /// Nothing of it is under way until something comes, whether a process carries it or not.
    Waiting(WaitingFor),
    /// Its main thread completed.
    Completed,
    /// Its main thread failed.
    Failed,
    /// It was cancelled.
    Cancelled,
    /// Its time was up.
    TimedOut,
}

/// The thing a run waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WaitingFor {
    /// A person's answer.
    Interaction,
    /// An event.
    Event,
    /// A timer.
    Timer,
}

impl RunStatus {
    /// Every status, in the order of their codes.
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

    /// Nothing changes it any more.
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

    /// The thing it waits for.
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

/// The runs that are asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunFilter {
    /// As [`RunStatus::as_str`] says it.
    pub status: Option<String>,
    /// Of this session.
    pub session: Option<String>,
    /// Of this workflow.
    pub workflow: Option<String>,
    /// Only those that have not ended.
    pub live: bool,
    /// The one that began last comes first.
    pub youngest_first: bool,
}

impl RunFilter {
    /// Those that have not ended.
    pub fn live() -> Self {
        Self {
            live: true,
            ..Self::default()
        }
    }

    /// `run` is one of those asked for.
    pub fn has(&self, run: &Run) -> bool {
        let is_of_workflow = self.workflow.as_ref().is_none_or(|workflow| *workflow == run.workflow);
        self.has_status(run.status) && is_of_workflow && (self.session.is_none() || self.session == run.session)
    }

    /// A run of this status may be one of those asked for.
    pub fn has_status(&self, status: RunStatus) -> bool {
        let is_asked = self.status.as_deref().is_none_or(|asked| asked == status.as_str());
        is_asked && !(self.live && status.is_final())
    }
}

/// The data that the runs of a session hand to the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// Its id.
    pub id: String,
    /// The number of runs that have left something in it.
    pub version: u64,
    /// JSON, as the engine reads it.
    pub body: String,
    /// The contents that the body names.
    pub contents: Vec<ContentHash>,
    /// The run that left it.
    pub run: String,
    /// In milliseconds since 1970.
    pub updated_at: u64,
}

/// A time at which a run that has left memory is to come back.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timer {
    /// In milliseconds since 1970.
    pub due: u64,
    /// The run.
    pub run: String,
    /// The effect that waits.
    pub effect: String,
}

/// A run's machine as it was after a step: saves replaying what is before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The step.
    pub step: u64,
    /// As the machine writes itself.
    pub body: String,
}
