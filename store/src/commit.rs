//! Atomic changes of a store.

use crate::content::{Content, ContentHash};
use crate::error::StoreError;
use crate::run::{Base, Record, Run, RunStatus, Snapshot};

/// Maximum length of the id of a run, a session, an effect or a workflow, in bytes.
// Ids are keys of several indexes, and every entry repeats them.
const MAX_ID: usize = 512;
/// Maximum length of a record, content, session or snapshot, in bytes.
// Below the limits of the databases (1 GB for a value of SQLite and PostgreSQL), with room for an encoding.
const MAX_TEXT: usize = 256 << 20;

/// Atomic change of one run and its session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    /// Id of the run.
    pub run: String,
    /// Start of the run, or its last step before this commit.
    pub follows: Precondition,
    /// Records to append, in order.
    pub records: Vec<Record>,
    /// Contents to store if they are missing.
    pub contents: Vec<Content>,
    /// Further contents that the run names: they are retained until the run is removed. Each must be stored, or in `contents`.
    pub names: Vec<ContentHash>,
    /// New status of the run.
    pub status: Option<RunStatus>,
    /// Timers to set and clear.
    pub timers: Vec<TimerChange>,
    /// Write to the run's session.
    pub session: Option<SessionWrite>,
    /// Snapshot of the machine after one of the run's steps. Replaces the last snapshot.
    pub snapshot: Option<Snapshot>,
}

/// State that a commit follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Precondition {
    /// None: the commit starts the run.
    Start(Box<NewRun>),
    /// The run's last step.
    Step(u64),
}

/// Run to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewRun {
    /// Id of the workflow.
    pub workflow: String,
    /// Workflow definition: stored, or in the commit's contents.
    pub definition: ContentHash,
    /// Other contents of the start (input, conversation): stored, or in the commit's contents.
    pub contents: Vec<ContentHash>,
    /// Semantics version of the state machines.
    pub semantics: u32,
    /// Session of the run.
    pub session: Option<String>,
    /// For a fork: run and step that it continues. The first record of the fork follows that step.
    pub base: Option<Base>,
    /// Start time in milliseconds since 1970.
    pub started_at: u64,
    /// The starting process owns the run: in a shared store it receives the claim with the start.
    pub is_carried: bool,
}

/// Change of a timer of the commit's run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TimerChange {
    /// Sets a timer.
    Set {
        /// Due time in milliseconds since 1970.
        due: u64,
        /// Effect that waits for the timer.
        effect: String,
    },
    /// Clears a timer. Does nothing if there is no such timer.
    Clear {
        /// Due time with which the timer was set.
        due: u64,
        /// Effect that waited for the timer.
        effect: String,
    },
}

/// Write of a run to its session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionWrite {
    /// Id of the session.
    pub id: String,
    /// Version that the run started from; 0 for a new session.
    pub follows: u64,
    /// State of the session: JSON of the engine.
    pub body: String,
    /// Contents that the body names: stored, or in the commit's contents.
    pub contents: Vec<ContentHash>,
    /// Time of the write in milliseconds since 1970.
    pub at: u64,
}

impl NewRun {
    /// Creates a run with semantics version 1, without a session or a base.
    pub fn new(workflow: impl Into<String>, definition: ContentHash, started_at: u64) -> Self {
        Self {
            workflow: workflow.into(),
            definition,
            contents: Vec::new(),
            semantics: 1,
            session: None,
            base: None,
            started_at,
            is_carried: false,
        }
    }

    /// Converts to the stored run. `steps` is the number of steps shared with the base.
    pub(crate) fn begun(&self, id: &str, steps: u64) -> Run {
        Run {
            id: id.to_owned(),
            workflow: self.workflow.clone(),
            definition: self.definition,
            contents: self.contents.clone(),
            semantics: self.semantics,
            session: self.session.clone(),
            base: self.base.clone(),
            // The status of the same commit is applied afterwards, as for any other commit.
            status: RunStatus::Unfinished,
            started_at: self.started_at,
            // Replaced by the time of the first record.
            updated_at: self.started_at,
            steps,
        }
    }
}

impl Commit {
    /// Starts a run.
    pub fn start(run: impl Into<String>, new: NewRun) -> Self {
        Self::new(run.into(), Precondition::Start(Box::new(new)))
    }

    /// Continues a run after its last step.
    pub fn after(run: impl Into<String>, step: u64) -> Self {
        Self::new(run.into(), Precondition::Step(step))
    }

    fn new(run: String, follows: Precondition) -> Self {
        Self {
            run,
            follows,
            records: Vec::new(),
            contents: Vec::new(),
            names: Vec::new(),
            status: None,
            timers: Vec::new(),
            session: None,
            snapshot: None,
        }
    }

    /// Appends a record.
    #[must_use]
    pub fn record(mut self, record: Record) -> Self {
        self.records.push(record);
        self
    }

    /// Adds a content.
    #[must_use]
    pub fn content(mut self, content: Content) -> Self {
        self.contents.push(content);
        self
    }

    /// Adds a content and names it for the run: it is retained until the run is removed.
    #[must_use]
    pub fn name(mut self, content: Content) -> Self {
        self.names.push(content.hash());
        self.content(content)
    }

    /// Sets the status.
    #[must_use]
    pub fn status(mut self, status: RunStatus) -> Self {
        self.status = Some(status);
        self
    }

    /// Sets a timer.
    #[must_use]
    pub fn timer(mut self, due: u64, effect: impl Into<String>) -> Self {
        self.timers.push(TimerChange::Set {
            due,
            effect: effect.into(),
        });
        self
    }

    /// Clears a timer.
    #[must_use]
    pub fn clear_timer(mut self, due: u64, effect: impl Into<String>) -> Self {
        self.timers.push(TimerChange::Clear {
            due,
            effect: effect.into(),
        });
        self
    }

    /// Writes the session.
    #[must_use]
    pub fn session(mut self, session: SessionWrite) -> Self {
        self.session = Some(session);
        self
    }

    /// Replaces the snapshot.
    #[must_use]
    pub fn snapshot(mut self, step: u64, body: impl Into<String>) -> Self {
        self.snapshot = Some(Snapshot {
            step,
            body: body.into(),
        });
        self
    }

    /// Checks the limits that apply to every store.
    ///
    /// # Errors
    /// [`StoreError::TooLarge`], for the first limit that is exceeded.
    pub fn check(&self) -> Result<(), StoreError> {
        id("run", &self.run)?;
        if let Precondition::Start(new) = &self.follows {
            id("workflow", &new.workflow)?;
            new.session.iter().try_for_each(|session| id("session", session))?;
        }
        for record in &self.records {
            record.effect.iter().try_for_each(|effect| id("effect", effect))?;
            text("record", &record.body)?;
        }
        for change in &self.timers {
            let (TimerChange::Set { effect, due } | TimerChange::Clear { effect, due }) = change;
            id("effect", effect)?;
            time(*due)?;
        }
        self.contents
            .iter()
            .try_for_each(|content| text("content", content.text()))?;
        if let Some(session) = &self.session {
            id("session", &session.id)?;
            text("session", &session.body)?;
        }
        self.snapshot
            .iter()
            .try_for_each(|snapshot| text("snapshot", &snapshot.body))
    }
}

fn id(what: &str, id: &str) -> Result<(), StoreError> {
    // A NUL separates the fields of checksums, and PostgreSQL cannot store one in a text.
    if id.is_empty() || id.len() > MAX_ID || id.contains('\0') {
        return Err(StoreError::TooLarge {
            what: format!(
                "the {what} id has {} bytes; 1 to {MAX_ID} bytes without NUL are allowed",
                id.len()
            ),
        });
    }
    Ok(())
}

fn text(what: &str, text: &str) -> Result<(), StoreError> {
    if text.len() > MAX_TEXT {
        return Err(StoreError::TooLarge {
            what: format!("a {what} has {} bytes; at most {MAX_TEXT} are allowed", text.len()),
        });
    }
    Ok(())
}

fn time(due: u64) -> Result<(), StoreError> {
    // The databases have signed 64-bit integers only, and the order of timers must be that of their numbers.
    if i64::try_from(due).is_err() {
        return Err(StoreError::TooLarge {
            what: format!("a timer is due at {due} ms, which exceeds the range of a store"),
        });
    }
    Ok(())
}
