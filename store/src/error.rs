//! Errors of a store, and the answers that may be one.

use std::fmt::{self, Display};
use std::sync::Arc;

use futures::future::BoxFuture;

use crate::content::ContentHash;
use crate::run::MAX_FORKS;

/// Answer to a command. The command is executed even if the future is dropped.
pub type Pending<T> = BoxFuture<'static, Result<T, StoreError>>;

/// Reason why a command failed. [`StoreError::code`] is stable.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreError {
    /// Another process has locked the store. Wait until it ends, or send commands to it.
    Held {
        /// Path of the store.
        file: Arc<str>,
        /// Id of the process, if the system reports it.
        pid: Option<u32>,
    },
    /// The file is not a store, or has a layout that this version cannot read. Nothing was changed.
    Unreadable {
        /// Path of the file.
        file: Arc<str>,
        /// The reason.
        why: String,
    },
    /// The store is encrypted, and a key that it needs was not given. Nothing was changed.
    KeyRefused {
        /// Path of the file.
        file: Arc<str>,
        /// The reason.
        why: String,
    },
    /// A read or write failed in the system: a full disk, a failing device. The command had no effect, unless the failure came
    /// while the write was made durable: then reopening the store shows whether it took effect.
    Failed {
        /// Path or URL of the store.
        file: Arc<str>,
        /// Run of the command.
        run: Option<String>,
        /// Message of the system.
        why: String,
    },
    /// Stored data is not what was written.
    Damaged {
        /// Path or URL of the store.
        file: Arc<str>,
        /// Affected run, if known.
        run: Option<String>,
        /// Description of the damage.
        why: String,
    },
    /// An earlier failed write left the state of the disk unknown: this process neither writes nor reads the store. Open the store
    /// again.
    Stopped {
        /// Path or URL of the store.
        file: Arc<str>,
        /// First failure.
        why: String,
    },
    /// The run id is taken.
    RunExists {
        /// Run id.
        run: String,
    },
    /// No run has this id.
    NoSuchRun {
        /// Run id.
        run: String,
    },
    /// The commit does not follow the run's last step: another writer has continued the run.
    Moved {
        /// Run id.
        run: String,
        /// Step that the commit follows.
        expected: u64,
        /// Last step of the run.
        found: u64,
    },
    /// Another process owns the run.
    RunHeld {
        /// Run id.
        run: String,
        /// Label of the owner.
        by: String,
    },
    /// The claim of this process has expired: another process has claimed the run, or may do so.
    RunLost {
        /// Run id.
        run: String,
    },
    /// The commit does not follow the session's current version.
    SessionMoved {
        /// Session id.
        session: String,
        /// Version that the commit follows.
        expected: u64,
        /// Version of the session.
        found: u64,
    },
    /// A named content is neither stored nor part of the commit.
    NoSuchContent {
        /// Hash of the content.
        hash: ContentHash,
    },
    /// A limit of the store is exceeded.
    TooLarge {
        /// Description of the value and the limit.
        what: String,
    },
}

impl StoreError {
    /// Returns the code that is shown to users: `STORE_HELD`; `STORE_KEY` for a missing key of an encrypted store; `STORE_ERROR` for
    /// failures of the system and for damage; `RUN_ID_TAKEN`, `NO_SUCH_RUN`, `STORE_CONFLICT` and `STORE_LIMIT` for errors of the
    /// caller; `RUN_HELD` and `RUN_LOST` if another process owns the run.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Held { .. } => "STORE_HELD",
            Self::KeyRefused { .. } => "STORE_KEY",
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

    /// Returns the error for a chain of more than [`MAX_FORKS`] forks.
    pub fn too_many_forks() -> Self {
        Self::TooLarge {
            what: format!("a run can be a fork of a fork at most {MAX_FORKS} deep"),
        }
    }

    #[cfg(feature = "sqlite")]
    /// Adds a run id to an error without one.
    pub(crate) fn of_run(mut self, id: &str) -> Self {
        if let Self::Failed { run, .. } | Self::Damaged { run, .. } = &mut self
            // An error from a deeper place names the damaged run itself, which may be the base of a fork.
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
            Self::Unreadable { file, why } | Self::KeyRefused { file, why } => write!(f, "{file}: {why}"),
            Self::Failed { file, run, why } => write!(f, "{file}{}: {why}", of(run)),
            Self::Damaged { file, run, why } => write!(f, "{file}{}: damaged: {why}", of(run)),
            Self::Stopped { file, why } => {
                write!(f, "{file}: nothing more is written or read after a failure: {why}")
            }
            Self::RunExists { run } => write!(f, "run {run} exists already"),
            Self::NoSuchRun { run } => write!(f, "no run {run}"),
            Self::Moved { run, expected, found } => {
                write!(
                    f,
                    "run {run} is at step {found}, not {expected}: another writer has appended to it"
                )
            }
            Self::RunHeld { run, by } => write!(f, "run {run} is owned by {by}"),
            Self::RunLost { run } => write!(
                f,
                "this process lost run {run}: its claim expired and another process continues it"
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
