//! The errors of a store.

use std::fmt::{self, Display};
use std::sync::Arc;

use crate::content::ContentHash;
use crate::run::MAX_FORKS;

/// Why a command was not carried out. [`StoreError::code`] is stable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreError {
    /// Another process has the store. Wait for its end, or talk to it.
    Held {
        /// The store's file.
        file: Arc<str>,
        /// The process that has it, where the system tells.
        pid: Option<u32>,
    },
    /// The file is no store, or one that this version can not read. Nothing was changed in it.
    Unreadable {
        /// The file.
        file: Arc<str>,
        /// The reason.
        why: String,
    },
    /// The system refused to read or write: a full disk, a device that fails. The command had no effect, or, where the failure
    /// came while it was made durable, perhaps one that shows when the store is opened again.
    Failed {
        /// The store's file.
        file: Arc<str>,
        /// The run it was for.
        run: Option<String>,
        /// The system's words.
        why: String,
    },
    /// The kept data is not what was written.
    Damaged {
        /// The store's file.
        file: Arc<str>,
        /// The run it belongs to, where that is known.
        run: Option<String>,
        /// The thing that is damaged, and how it shows.
        why: String,
    },
    /// An earlier write failed in a way that leaves open what is on the disk, so this process writes and reads no more. Open the
    /// store again.
    Stopped {
        /// The store's file.
        file: Arc<str>,
        /// The first failure.
        why: String,
    },
    /// A run of this id exists.
    RunExists {
        /// The id.
        run: String,
    },
    /// No run has this id.
    NoSuchRun {
        /// The id.
        run: String,
    },
    /// The run's journal does not end where the commit goes on: somebody else wrote to it.
    Moved {
        /// The run.
        run: String,
        /// The step the commit follows.
        expected: u64,
        /// The run's last step.
        found: u64,
    },
    /// Another process carries the run.
    RunHeld {
        /// The run.
        run: String,
        /// The process, as it calls itself.
        by: String,
    },
    /// This process carried the run and was away for longer than its claim lasts: another goes on with it, or may.
    RunLost {
        /// The run.
        run: String,
    },
    /// The session is not at the version that the commit goes on from.
    SessionMoved {
        /// The session.
        session: String,
        /// The version the commit follows.
        expected: u64,
        /// The session's version.
        found: u64,
    },
    /// A content that a run or a session names was neither kept nor given.
    NoSuchContent {
        /// Its hash.
        hash: ContentHash,
    },
    /// One of the store's limits.
    TooLarge {
        /// The thing that is too large, and the limit.
        what: String,
    },
}

impl StoreError {
    /// The code that is shown to users: `STORE_HELD`; `STORE_ERROR` for whatever the system or damage is the cause of;
    /// `RUN_ID_TAKEN`, `NO_SUCH_RUN`, `STORE_CONFLICT` and `STORE_LIMIT` for what the caller is; `RUN_HELD` and `RUN_LOST` where
    /// another process carries the run.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Held { .. } => "STORE_HELD",
            Self::Unreadable { .. } | Self::Failed { .. } | Self::Damaged { .. } | Self::Stopped { .. } => {
                "STORE_ERROR"
            }
            Self::RunExists { .. } => "RUN_ID_TAKEN",
            Self::NoSuchRun { .. } => "NO_SUCH_RUN",
            Self::RunHeld { .. } => "RUN_HELD",
            Self::RunLost { .. } => "RUN_LOST",
            Self::Moved { .. } | Self::SessionMoved { .. } | Self::NoSuchContent { .. } => "STORE_CONFLICT",
            Self::TooLarge { .. } => "STORE_LIMIT",
        }
    }

    /// The refusal of a fork of a fork of a fork.
    pub fn too_many_forks() -> Self {
        Self::TooLarge {
            what: format!("a run can be a fork of a fork at most {MAX_FORKS} deep"),
        }
    }

    #[cfg(feature = "sqlite")]
    /// The same error, told of `run` where it named none.
    pub(crate) fn of_run(mut self, id: &str) -> Self {
        if let Self::Failed { run, .. } | Self::Damaged { run, .. } = &mut self
            && run.is_none()
        {
            *run = Some(id.to_owned());
        }
        self
    }
}

impl Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = |run: &Option<String>| run.as_ref().map(|run| format!(", run {run}")).unwrap_or_default();
        match self {
            Self::Held { file, pid: Some(pid) } => write!(f, "{file}: held by process {pid}"),
            Self::Held { file, pid: None } => write!(f, "{file}: held by another process"),
            Self::Unreadable { file, why } => write!(f, "{file}: {why}"),
            Self::Failed { file, run, why } => write!(f, "{file}{}: {why}", of(run)),
            Self::Damaged { file, run, why } => write!(f, "{file}{}: damaged: {why}", of(run)),
            Self::Stopped { file, why } => {
                write!(f, "{file}: nothing more is written or read after a failure: {why}")
            }
            Self::RunExists { run } => write!(f, "there is a run {run} already"),
            Self::NoSuchRun { run } => write!(f, "no run {run}"),
            Self::Moved { run, expected, found } => {
                write!(
                    f,
                    "run {run} is at step {found}, not {expected}: somebody else has gone on with it"
                )
            }
            Self::RunHeld { run, by } => write!(f, "run {run} is carried by {by}"),
            Self::RunLost { run } => write!(
                f,
                "run {run} is not carried here any more: its claim ran out, and another process goes on with it"
            ),
            Self::SessionMoved {
                session,
                expected,
                found,
            } => write!(f, "session {session} is at version {found}, not {expected}"),
            Self::NoSuchContent { hash } => write!(f, "no content {hash}"),
            Self::TooLarge { what } => f.write_str(what),
        }
    }
}

impl std::error::Error for StoreError {}
