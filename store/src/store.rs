//! `Store` trait.

use std::path::Path;
use std::sync::Arc;

use crate::claims::Claims;
use crate::commit::Commit;
use crate::content::ContentHash;
use crate::error::{Pending, StoreError};
use crate::figures::StoreFigures;
use crate::run::{Record, Run, RunFilter, RunPlace, Session, Snapshot, Timer};

/// Storage of runs. Commands are given by the method call, in the order of the calls: the future only waits for
/// the answer. An answered command is durable.
///
/// The six operations of a durable engine's journal map to this trait: *claim* is [`Claims::claim`] (or opening a store that
/// one process locks), *append* is [`Store::commit`], *read* is [`Store::journal`], *park until* and *park for* are a
/// commit with a timer or with [`RunStatus::Waiting`](crate::RunStatus::Waiting) followed by a release of the claim,
/// *complete* is a commit with a final status.
pub trait Store: Send + Sync + 'static {
    /// Returns the path or URL, for errors.
    fn location(&self) -> &Arc<str>;

    /// Returns the claims of a store that several processes share. None: one process has locked the store and owns all runs.
    fn claims(&self) -> Option<&dyn Claims> {
        None
    }

    /// Returns the write counters; none if the store has no counters.
    fn figures(&self) -> Option<StoreFigures> {
        None
    }

    /// Executes a commit atomically. Returns the number of the run's last step.
    fn commit(&self, commit: Commit) -> Pending<u64>;

    /// Returns the run with this id.
    fn run(&self, id: &str) -> Pending<Option<Run>>;

    /// Returns up to `limit` runs that match `filter`, in the order of their start, after the position `after`.
    fn runs(&self, filter: RunFilter, after: Option<RunPlace>, limit: usize) -> Pending<Vec<Run>>;

    /// Returns up to `limit` records of a run after step `after`, including those shared with its base.
    fn journal(&self, id: &str, after: u64, limit: usize) -> Pending<Vec<Record>>;

    /// Returns the contents with these hashes, in this order.
    /// [`StoreError::NoSuchContent`](crate::StoreError::NoSuchContent) if one is missing.
    fn contents(&self, hashes: Vec<ContentHash>) -> Pending<Vec<Arc<str>>>;

    /// Returns up to `limit` hashes of a chain: this content, its predecessor, and so on.
    /// [`StoreError::NoSuchContent`](crate::StoreError::NoSuchContent) if the first is missing.
    fn chain(&self, last: ContentHash, limit: usize) -> Pending<Vec<ContentHash>>;

    /// Returns the run's snapshot, if its step is at most `at_most`.
    fn snapshot(&self, id: &str, at_most: u64) -> Pending<Option<Snapshot>>;

    /// Returns up to `limit` timers due at or before `until`, earliest first.
    fn timers(&self, until: u64, limit: usize) -> Pending<Vec<Timer>>;

    /// Returns up to `limit` sessions in the order of their ids, after the id `after`.
    fn sessions(&self, after: Option<String>, limit: usize) -> Pending<Vec<Session>>;

    /// Returns the session with this id.
    fn session(&self, id: &str) -> Pending<Option<Session>>;

    /// Sets or deletes a metadata text of the engine.
    fn set_meta(&self, name: &str, value: Option<String>) -> Pending<()>;

    /// Returns a metadata text.
    fn meta(&self, name: &str) -> Pending<Option<String>>;

    /// Removes runs and all data that only they use. A run that is the base of others is hidden, and its journal deleted together
    /// with the last of them. Unknown ids are ignored. With `dry_run` nothing is removed and the answer is computed.
    fn remove(&self, ids: Vec<String>, dry_run: bool) -> Pending<Removed>;

    /// Replaces a run by the one that `commit` starts under the same id, atomically: removes the run as [`remove`](Self::remove) does, and
    /// executes the commit. Returns the number of the new run's last step. Stores on a server refuse.
    /// [`StoreError::RunExists`](crate::StoreError::RunExists) if forks share the journal of the run,
    /// [`StoreError::NoSuchRun`](crate::StoreError::NoSuchRun) if it is missing.
    fn replace(&self, _commit: Commit) -> Pending<u64> {
        let file = Arc::clone(self.location());
        let why = "a store on a server cannot replace a run".to_owned();
        Box::pin(std::future::ready(Err(StoreError::Failed { file, run: None, why })))
    }

    /// Returns free space of the store to the system, erases copies of removed data, and waits for both. `rewrites`: also
    /// rewrites a large file. Stores on a server do nothing. Returns the number of bytes by which the store has shrunk.
    fn shrink(&self, _rewrites: bool) -> Pending<u64> {
        Box::pin(std::future::ready(Ok(0)))
    }

    /// Writes a copy of the store, as it is at one moment of the call, to a file that does not exist yet. Other commands are executed
    /// meanwhile. The file has its name only once it is complete and durable. Stores on a server refuse: the server's programs
    /// make their backups.
    fn back_up(&self, _to: &Path) -> Pending<()> {
        let file = Arc::clone(self.location());
        let why = "a store on a server is backed up by the programs of that server, such as pg_dump".to_owned();
        Box::pin(std::future::ready(Err(StoreError::Failed { file, run: None, why })))
    }

    /// Removes a session. Returns false if there is none.
    fn remove_session(&self, id: &str) -> Pending<bool>;
}

/// Result of [`Store::remove`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// Number of the given runs that existed.
    pub runs: u64,
    /// Size of the deleted records, snapshots and contents in bytes.
    pub bytes: u64,
}
