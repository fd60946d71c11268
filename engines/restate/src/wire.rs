//! JSON messages to the objects, and their replies.

use pirn_store::{Commit, ContentHash, Precondition, Record, RunStatus, StoreError, TimerChange};
use serde::{Deserialize, Serialize};

/// Claim of a process on a run, sent with each write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ticket {
    pub(crate) process: String,
    /// Number of the claim; increases with each claim on the run.
    pub(crate) epoch: u64,
}

/// Journal record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct JournalRecord {
    pub(crate) at: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) effect: Option<String>,
    pub(crate) body: String,
}

impl From<JournalRecord> for Record {
    fn from(JournalRecord { at, effect, body }: JournalRecord) -> Self {
        Self { at, effect, body }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct KeptSnapshot {
    pub(crate) step: u64,
    pub(crate) body: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct KeptBase {
    pub(crate) run: String,
    pub(crate) step: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct KeptSession {
    pub(crate) version: u64,
    pub(crate) body: String,
    pub(crate) contents: Vec<String>,
    pub(crate) run: String,
    pub(crate) updated_at: u64,
}

/// Content of a commit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct CommitContent {
    pub(crate) hash: String,
    pub(crate) text: String,
    /// Hash of the preceding content of the chain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) follows: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct StartCall {
    pub(crate) workflow: String,
    pub(crate) definition: String,
    pub(crate) contents: Vec<String>,
    pub(crate) semantics: u32,
    pub(crate) session: Option<String>,
    pub(crate) base: Option<KeptBase>,
    pub(crate) started_at: u64,
    /// Process that owns the run from the start.
    pub(crate) carrier: Option<String>,
    /// Name under which the process has named the definition and the contents before the start; none: the start names them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) namer: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct TimerCall {
    pub(crate) due: u64,
    pub(crate) effect: String,
    pub(crate) is_set: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SessionCall {
    pub(crate) id: String,
    pub(crate) follows: u64,
    pub(crate) body: String,
    pub(crate) contents: Vec<String>,
    pub(crate) at: u64,
}

/// Idempotency key of a call. A retry has an equal key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CallKey {
    pub(crate) writer: String,
    /// Number of the call; increases with each call of the writer.
    pub(crate) number: u64,
}

impl std::fmt::Display for CallKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.writer, self.number)
    }
}

/// [`Commit`] as a message.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct CommitCall {
    pub(crate) key: CallKey,
    pub(crate) ticket: Option<Ticket>,
    pub(crate) start: Option<StartCall>,
    /// Number of the preceding step, unless the commit starts the run.
    pub(crate) follows: u64,
    pub(crate) records: Vec<JournalRecord>,
    pub(crate) contents: Vec<CommitContent>,
    pub(crate) names: Vec<String>,
    pub(crate) status: Option<usize>,
    pub(crate) timers: Vec<TimerCall>,
    pub(crate) session: Option<SessionCall>,
    pub(crate) snapshot: Option<KeptSnapshot>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum CommitReply {
    /// Number of steps after the commit; epoch of the claim if the run was claimed at its start.
    Done {
        steps: u64,
        epoch: Option<u64>,
    },
    Refused(Refusal),
}

/// Reason why a command was refused. It changed nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Refusal {
    RunExists,
    NoSuchRun(String),
    Moved { run: String, expected: u64, found: u64 },
    SessionMoved { session: String, expected: u64, found: u64 },
    NoSuchContent(String),
    TooManyForks,
    Held(String),
    Lost,
}

/// Reason why a claim was refused.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum NotClaimed {
    Held(String),
    NoSuchRun,
    Ended,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ReleaseCall {
    pub(crate) ticket: Ticket,
    pub(crate) after_ms: u64,
    /// True if the run is offered to other processes.
    pub(crate) is_offered: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum ForkReply {
    Done { ancestors: usize },
    Refused(Refusal),
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct RemovedReply {
    pub(crate) runs: u64,
    pub(crate) bytes: u64,
}

/// Names a content for a run, a session or a content (see [`by_run`]).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct NameCall {
    /// Text to store if the content is missing; none: a missing content is an error.
    pub(crate) text: Option<String>,
    /// Hash of the preceding content, which is named by this content if it is stored now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) follows: Option<String>,
    pub(crate) by: Option<String>,
}

/// Names a content for several runs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct NameAllCall {
    /// Text to store if the content is missing; none: nothing is named then.
    pub(crate) text: Option<String>,
    pub(crate) by: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum NameReply {
    Missing,
    /// The content already had this name.
    Known,
    Named,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct UnnameCall {
    pub(crate) by: String,
    /// Deletes the content if no name remains.
    pub(crate) is_freed: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SessionWriteCall {
    pub(crate) write: SessionCall,
    pub(crate) run: String,
    pub(crate) is_only_checked: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum SessionWriteReply {
    /// Contents that the session named before.
    Done(Vec<String>),
    Moved(u64),
}

/// Waits for the turn of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct TurnCall {
    pub(crate) run: String,
    pub(crate) promise: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct BeatCall {
    pub(crate) is_first: bool,
    pub(crate) lasts_ms: u64,
}

/// Checks a process for a missed heartbeat.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ExpireCall {
    /// Number of the last heartbeat when the check was scheduled.
    pub(crate) beats: u64,
    /// Grace period before the process is dead; 0 once that has passed.
    pub(crate) grace_ms: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct InboxCall {
    pub(crate) promise: String,
    /// Number of the last message that the process has taken.
    pub(crate) taken: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct WaitMailCall {
    pub(crate) process: String,
    pub(crate) taken: u64,
    pub(crate) lasts_ms: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct WaitTurnCall {
    pub(crate) session: String,
    pub(crate) run: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct TellCall {
    pub(crate) run: String,
    pub(crate) body: String,
    /// Interval of checks whether the process still owns the run.
    pub(crate) every_ms: u64,
}

/// Run without an owner, in the queue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct OfferCall {
    pub(crate) run: String,
    /// True if the run is small: its state is sent with the assignment.
    pub(crate) is_little: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct WantsCall {
    pub(crate) process: String,
    pub(crate) runs: usize,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SettleCall {
    pub(crate) name: String,
    pub(crate) value: String,
    /// Maximum number of names that have a value.
    pub(crate) most: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct UnsettleCall {
    pub(crate) name: String,
    pub(crate) value: String,
}

/// Returns the name under which a run names contents.
pub(crate) fn by_run(run: &str) -> String {
    format!("run {run}")
}

/// Returns the name under which a content names the one that it follows.
pub(crate) fn by_content(hash: &str) -> String {
    format!("content {hash}")
}

/// True for a name made by [`by_content`].
pub(crate) fn is_by_content(by: &str) -> bool {
    // Ids of runs and sessions have prefixes, so they cannot be confused with a hash.
    by.starts_with("content ")
}

/// Returns the name under which a session names contents.
pub(crate) fn by_session(session: &str) -> String {
    format!("session {session}")
}

pub(crate) fn status_number(status: RunStatus) -> usize {
    RunStatus::ALL.iter().position(|known| *known == status).unwrap_or(0)
}

pub(crate) fn status_of(number: usize) -> RunStatus {
    RunStatus::ALL.get(number).copied().unwrap_or(RunStatus::Unfinished)
}

fn texts(hashes: &[ContentHash]) -> Vec<String> {
    hashes.iter().map(ToString::to_string).collect()
}

impl UnnameCall {
    /// Removes the name `by`, and deletes the content if no name remains.
    pub(crate) fn freeing(by: &str) -> Self {
        Self {
            by: by.to_owned(),
            is_freed: true,
        }
    }
}

impl StartCall {
    /// Returns the hashes of the contents that a start names.
    pub(crate) fn named(&self) -> impl Iterator<Item = &String> {
        std::iter::once(&self.definition).chain(&self.contents)
    }
}

impl CommitCall {
    /// Returns the size of the records and contents.
    pub(crate) fn bytes(&self) -> usize {
        let records = self.records.iter().map(|record| record.body.len());
        let contents = self.contents.iter().map(|content| content.text.len());
        records.chain(contents).sum()
    }

    /// Converts a commit by the process `carrier`, without the contents for which `is_kept` returns true.
    pub(crate) fn of(commit: &Commit, key: CallKey, carrier: &str, is_kept: impl Fn(&ContentHash) -> bool) -> Self {
        let (start, follows) = match &commit.follows {
            Precondition::Step(step) => (None, *step),
            Precondition::Start(new) => {
                let start = StartCall {
                    workflow: new.workflow.clone(),
                    definition: new.definition.to_string(),
                    contents: texts(&new.contents),
                    semantics: new.semantics,
                    session: new.session.clone(),
                    base: new.base.as_ref().map(|base| KeptBase {
                        run: base.run.clone(),
                        step: base.step,
                    }),
                    started_at: new.started_at,
                    carrier: new.is_carried.then(|| carrier.to_owned()),
                    namer: None,
                };
                // The preceding step of a start is not compared.
                (Some(start), 0)
            }
        };
        let records = commit.records.iter().map(|record| JournalRecord {
            at: record.at,
            effect: record.effect.clone(),
            body: record.body.clone(),
        });
        // The commit still names them, and the object refuses it if one is missing.
        let given = commit.contents.iter().filter(|content| !is_kept(&content.hash()));
        let given = given.map(|content| CommitContent {
            hash: content.hash().to_string(),
            text: content.text().to_string(),
            follows: content.follows().map(|hash| hash.to_string()),
        });
        let timers = commit.timers.iter().map(|change| {
            let is_set = matches!(change, TimerChange::Set { .. });
            let (TimerChange::Set { due, effect } | TimerChange::Clear { due, effect }) = change;
            TimerCall {
                due: *due,
                effect: effect.clone(),
                is_set,
            }
        });
        Self {
            key,
            // The caller adds the claim, which a start does not have yet.
            ticket: None,
            start,
            follows,
            records: records.collect(),
            contents: given.collect(),
            names: texts(&commit.names),
            status: commit.status.map(status_number),
            timers: timers.collect(),
            session: commit.session.as_ref().map(|session| SessionCall {
                id: session.id.clone(),
                follows: session.follows,
                body: session.body.clone(),
                contents: texts(&session.contents),
                at: session.at,
            }),
            snapshot: commit.snapshot.as_ref().map(|snapshot| KeptSnapshot {
                step: snapshot.step,
                body: snapshot.body.clone(),
            }),
        }
    }
}

impl Refusal {
    /// Converts the refusal of a command for `run`.
    pub(crate) fn error(self, run: &str) -> StoreError {
        let run = run.to_owned();
        match self {
            Self::RunExists => StoreError::RunExists { run },
            Self::NoSuchRun(run) => StoreError::NoSuchRun { run },
            Self::Moved { run, expected, found } => StoreError::Moved { run, expected, found },
            Self::SessionMoved {
                session,
                expected,
                found,
            } => StoreError::SessionMoved {
                session,
                expected,
                found,
            },
            Self::NoSuchContent(hash) => StoreError::NoSuchContent {
                // The hash was sent by this process, so it can be parsed.
                hash: ContentHash::parse(&hash).unwrap_or_else(|| ContentHash::of("")),
            },
            Self::TooManyForks => StoreError::too_many_forks(),
            Self::Held(by) => StoreError::RunHeld { run, by },
            Self::Lost => StoreError::RunLost { run },
        }
    }
}
