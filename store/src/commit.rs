//! One atomic change of a store.

use crate::content::{Content, ContentHash};
use crate::error::StoreError;
use crate::record::Record;
use crate::run::{Base, Run, RunStatus, Snapshot};

/// The longest id of a run, a session, an effect or a workflow, in bytes.
const MAX_ID: usize = 512;
/// The longest text of a record, content, session or snapshot, in bytes.
const MAX_TEXT: usize = 256 << 20;

/// Everything that becomes durable at once, for one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    /// The run.
    pub run: String,
    /// Its beginning, or the step that this goes on from.
    pub follows: Follows,
    /// The next steps, in order.
    pub records: Vec<Record>,
    /// Texts to keep, if they are not kept yet.
    pub contents: Vec<Content>,
    /// Contents that the run names from now on, beside those it started from; kept, or given here.
    pub names: Vec<ContentHash>,
    /// The run's status now.
    pub status: Option<RunStatus>,
    /// Timers set and cleared.
    pub timers: Vec<TimerChange>,
    /// The run's write to its session.
    pub session: Option<SessionWrite>,
    /// The machine as it is after one of its steps, in place of the last snapshot.
    pub snapshot: Option<Snapshot>,
}

/// The place that a commit goes on from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Follows {
    /// Nothing: it begins the run.
    Start(Box<NewRun>),
    /// The step of this number, the run's last.
    Step(u64),
}

/// A run that begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewRun {
    /// Its workflow's id.
    pub workflow: String,
    /// Its definition; kept, or in the commit's contents.
    pub definition: ContentHash,
    /// The other contents it starts from; likewise.
    pub contents: Vec<ContentHash>,
    /// The version of the machines that step it.
    pub semantics: u32,
    /// The session it belongs to.
    pub session: Option<String>,
    /// The run and step it goes on from, for a fork: its first record follows that step.
    pub base: Option<Base>,
    /// In milliseconds since 1970.
    pub started_at: u64,
    /// The process that begins it goes on with it: where several share the store, it has the claim at once.
    pub is_carried: bool,
}

/// A timer of the commit's run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TimerChange {
    /// It is to be told at this time.
    Set {
        /// In milliseconds since 1970.
        due: u64,
        /// The effect that waits.
        effect: String,
    },
    /// It is not to be told any more. Nothing happens where there is no such timer.
    Clear {
        /// As it was set.
        due: u64,
        /// The effect that waited.
        effect: String,
    },
}

/// A run's write to its session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionWrite {
    /// The session.
    pub id: String,
    /// The version that the run started from; 0 where there was none.
    pub follows: u64,
    /// JSON, as the engine reads it.
    pub body: String,
    /// The contents that the body names; kept, or in the commit's contents.
    pub contents: Vec<ContentHash>,
    /// In milliseconds since 1970.
    pub at: u64,
}

impl NewRun {
    /// A run of this workflow, by the machines' first version, in no session, forked from none.
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

    /// The run as its store knows it from then on; `steps` are those that it shares with what it was forked from.
    pub(crate) fn begun(&self, id: &str, steps: u64) -> Run {
        Run {
            id: id.to_owned(),
            workflow: self.workflow.clone(),
            definition: self.definition,
            contents: self.contents.clone(),
            semantics: self.semantics,
            session: self.session.clone(),
            base: self.base.clone(),
            status: RunStatus::Unfinished,
            started_at: self.started_at,
            updated_at: self.started_at,
            steps,
        }
    }
}

impl Commit {
    /// Begins a run.
    pub fn start(run: impl Into<String>, new: NewRun) -> Self {
        Self::new(run.into(), Follows::Start(Box::new(new)))
    }

    /// Goes on after the run's last step.
    pub fn after(run: impl Into<String>, step: u64) -> Self {
        Self::new(run.into(), Follows::Step(step))
    }

    fn new(run: String, follows: Follows) -> Self {
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

    /// Adds a step.
    #[must_use]
    pub fn record(mut self, record: Record) -> Self {
        self.records.push(record);
        self
    }

    /// Keeps a text.
    #[must_use]
    pub fn content(mut self, content: Content) -> Self {
        self.contents.push(content);
        self
    }

    /// Keeps a text for as long as the run is kept.
    #[must_use]
    pub fn name(mut self, content: Content) -> Self {
        self.names.push(content.hash());
        self.content(content)
    }

    /// Says how the run stands.
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

    /// Leaves something to the session.
    #[must_use]
    pub fn session(mut self, session: SessionWrite) -> Self {
        self.session = Some(session);
        self
    }

    /// Keeps the machine as it is.
    #[must_use]
    pub fn snapshot(mut self, step: u64, body: impl Into<String>) -> Self {
        self.snapshot = Some(Snapshot {
            step,
            body: body.into(),
        });
        self
    }

    /// The limits that hold in every store.
    ///
    /// # Errors
    /// [`StoreError::TooLarge`], for the first of them.
    pub fn check(&self) -> Result<(), StoreError> {
        id("run", &self.run)?;
        if let Follows::Start(new) = &self.follows {
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
    if id.is_empty() || id.len() > MAX_ID || id.contains('\0') {
        return Err(StoreError::TooLarge {
            what: format!(
                "the {what} id has {} bytes; 1 to {MAX_ID} are allowed, none of them 0",
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
    if i64::try_from(due).is_err() {
        return Err(StoreError::TooLarge {
            what: format!("a timer is due at {due} ms, which is beyond what a store keeps"),
        });
    }
    Ok(())
}
