//! The port.

use std::sync::Arc;

use crate::claims::Claims;
use crate::commit::Commit;
use crate::content::ContentHash;
use crate::figures::StoreFigures;
use crate::pending::Pending;
use crate::record::Record;
use crate::run::{Run, RunFilter, RunPlace, Session, Snapshot, Timer};

/// Storage of runs. A command is given when its method is called, in the order of the calls; the future only waits for
/// the answer. Whatever has been answered is durable.
///
/// A durable engine's journal has six verbs, and each is one of these: *claim* is [`Claims::claim`] (of a store that one process
/// holds, the hold itself), *append* is [`Store::commit`], *read* is [`Store::journal`], *park until* and *park for* are a
/// commit with a timer or with [`RunStatus::Waiting`](crate::RunStatus::Waiting) and the claim's release, *complete* is one with
/// a final status.
pub trait Store: Send + Sync + 'static {
    /// The file or place, for errors.
    fn location(&self) -> &Arc<str>;

    /// The claims on its runs, where several processes share it. None: one process has it, and carries every run.
    fn claims(&self) -> Option<&dyn Claims> {
        None
    }

    /// The figures of its writes since it was opened. None: it does not count them.
    fn figures(&self) -> Option<StoreFigures> {
        None
    }

    /// Makes all of it durable, or nothing. The answer is the run's last step.
    fn commit(&self, commit: Commit) -> Pending<u64>;

    /// The run of this id.
    fn run(&self, id: &str) -> Pending<Option<Run>>;

    /// The runs that `filter` has, in the order in which they began, from the first after `after`; `limit` of them.
    fn runs(&self, filter: RunFilter, after: Option<RunPlace>, limit: usize) -> Pending<Vec<Run>>;

    /// The run's records from the first after step `after`, with those that it shares with its base; `limit` of them.
    fn journal(&self, id: &str, after: u64, limit: usize) -> Pending<Vec<Record>>;

    /// The texts with these hashes, in this order. [`StoreError::NoSuchContent`](crate::StoreError::NoSuchContent) where one is not kept.
    fn contents(&self, hashes: Vec<ContentHash>) -> Pending<Vec<Arc<str>>>;

    /// The content with this hash, then the one that it follows, then the one that this follows, and so on; `limit` of them.
    /// [`StoreError::NoSuchContent`](crate::StoreError::NoSuchContent) where the first is not kept.
    fn chain(&self, last: ContentHash, limit: usize) -> Pending<Vec<ContentHash>>;

    /// The run's last snapshot, if it is of step `at_most` or before.
    fn snapshot(&self, id: &str, at_most: u64) -> Pending<Option<Snapshot>>;

    /// The timers due until then, the earliest first; `limit` of them.
    fn timers(&self, until: u64, limit: usize) -> Pending<Vec<Timer>>;

    /// The sessions, by their id from the first after `after`; `limit` of them.
    fn sessions(&self, after: Option<String>, limit: usize) -> Pending<Vec<Session>>;

    /// The session of this id.
    fn session(&self, id: &str) -> Pending<Option<Session>>;

    /// Keeps a text under a name, for the engine itself; none removes it.
    fn set_meta(&self, name: &str, value: Option<String>) -> Pending<()>;

    /// The text under this name.
    fn meta(&self, name: &str) -> Pending<Option<String>>;

    /// Removes runs with what belongs to them alone. A run that others were forked from disappears, and its journal with the
    /// last of them. Ids of no run are passed over. With `dry_run` nothing is removed, and the answer is the same.
    fn remove(&self, ids: Vec<String>, dry_run: bool) -> Pending<Removed>;

    /// Gives the room of what was removed back to the system, with all copies of it, and waits for that. `rewrites`: also where a
    /// large file is to be written anew for that. A store that leaves this to its server has nothing to do. Returns the bytes
    /// that it is smaller by.
    fn shrink(&self, _rewrites: bool) -> Pending<u64> {
        Box::pin(std::future::ready(Ok(0)))
    }

    /// Removes a session. False where there is none.
    fn remove_session(&self, id: &str) -> Pending<bool>;
}

/// The amount that [`Store::remove`] has removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// Number of the named runs that there were.
    pub runs: u64,
    /// The bytes of records, snapshots and contents that went with them.
    pub bytes: u64,
}
