//! The messages to the objects, and their answers, as JSON.

use pirn_store::{Commit, ContentHash, Follows, Record, RunStatus, StoreError, TimerChange};
use serde::{Deserialize, Serialize};

/// A process's right to write for a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ticket {
    pub(crate) process: String,
    /// Grows with every claim on the run.
    pub(crate) epoch: u64,
}

/// One of a run's records.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct KeptRecord {
    pub(crate) at: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) effect: Option<String>,
    pub(crate) body: String,
}

impl From<KeptRecord> for Record {
    fn from(KeptRecord { at, effect, body }: KeptRecord) -> Self {
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

/// A text, or only its hash where it was kept before.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct GivenText {
    pub(crate) hash: String,
    pub(crate) text: String,
    /// The text that it follows.
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
    /// The process that carries it from the start.
    pub(crate) carrier: Option<String>,
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

/// The key of a call, the same when it is sent again for want of an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CallKey {
    pub(crate) writer: String,
    /// Grows with each call of the writer.
    pub(crate) number: u64,
}

impl std::fmt::Display for CallKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.writer, self.number)
    }
}

/// [`Commit`], on its way.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct CommitCall {
    pub(crate) key: CallKey,
    pub(crate) ticket: Option<Ticket>,
    pub(crate) start: Option<StartCall>,
    /// The step that it goes on from, unless it starts the run.
    pub(crate) follows: u64,
    pub(crate) records: Vec<KeptRecord>,
    pub(crate) contents: Vec<GivenText>,
    pub(crate) names: Vec<String>,
    pub(crate) status: Option<usize>,
    pub(crate) timers: Vec<TimerCall>,
    pub(crate) session: Option<SessionCall>,
    pub(crate) snapshot: Option<KeptSnapshot>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum CommitReply {
    /// The run's last step; the claim's epoch, where it was carried from the start.
    Done {
        steps: u64,
        epoch: Option<u64>,
    },
    Refused(Refusal),
}

/// Why a command changed nothing.
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

/// Why a process has no claim on a run.
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
    /// Others are to go on with it.
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

/// A content comes to be named, by `run ID` or `session ID`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct NameCall {
    /// Kept where it is not there yet; none: it is named only if it is there.
    pub(crate) text: Option<String>,
    /// The text that it follows, which is named by it from then on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) follows: Option<String>,
    pub(crate) by: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum NameReply {
    Missing,
    /// It was named by the same before.
    Known,
    Named,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct UnnameCall {
    pub(crate) by: String,
    /// It goes where nobody else names it.
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
    /// The contents that it named before.
    Done(Vec<String>),
    Moved(u64),
}

/// A run that waits for its turn.
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

/// The time is up that a process had after one of its words.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ExpireCall {
    /// The number of the word.
    pub(crate) beats: u64,
    /// It has so long to say another; 0: no more.
    pub(crate) grace_ms: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct InboxCall {
    pub(crate) promise: String,
    /// Everything up to this number was taken.
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
    /// So often it is asked whether the process still carries the run.
    pub(crate) every_ms: u64,
}

/// A run that nobody carries.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct OfferCall {
    pub(crate) run: String,
    /// So little is kept of it that all of it comes with a call.
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
    /// Names that have a value, at most.
    pub(crate) most: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct UnsettleCall {
    pub(crate) name: String,
    pub(crate) value: String,
}

/// The name by which a run or a session names contents.
pub(crate) fn by_run(run: &str) -> String {
    format!("run {run}")
}

/// See [`by_run`].
pub(crate) fn by_content(hash: &str) -> String {
    format!("content {hash}")
}

/// True for the names that [`by_content`] gives.
pub(crate) fn is_by_content(by: &str) -> bool {
    by.starts_with("content ")
}

/// See [`by_run`].
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

impl CommitCall {
    /// The parts of a commit. `carrier` is the process that gives it; texts that `is_kept` knows are left out.
    pub(crate) fn of(commit: &Commit, key: CallKey, carrier: &str, is_kept: impl Fn(&ContentHash) -> bool) -> Self {
        let (start, follows) = match &commit.follows {
            Follows::Step(step) => (None, *step),
            Follows::Start(new) => {
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
                };
                (Some(start), 0)
            }
        };
        let records = commit.records.iter().map(|record| KeptRecord {
            at: record.at,
            effect: record.effect.clone(),
            body: record.body.clone(),
        });
        let given = commit.contents.iter().filter(|content| !is_kept(&content.hash()));
        let given = given.map(|content| GivenText {
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
    /// As a command for `run` answers it.
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
                hash: ContentHash::parse(&hash).unwrap_or_else(|| ContentHash::of("")),
            },
            Self::TooManyForks => StoreError::too_many_forks(),
            Self::Held(by) => StoreError::RunHeld { run, by },
            Self::Lost => StoreError::RunLost { run },
        }
    }
}
