//! A store with commits that wait at a gate, like those of a slow disk.

use std::sync::Arc;

use pirn::store::{
    Claims, Commit, ContentHash, MemoryStore, Pending, Record, Removed, Run, RunFilter, RunPlace, Session, Snapshot,
    Store, Timer,
};
use tokio::sync::Semaphore;

/// A store in memory that needs a permit for each answer to a commit.
pub(crate) struct GatedStore {
    store: MemoryStore,
    gate: Arc<Semaphore>,
}

impl GatedStore {
    /// A store with a closed gate, and the gate.
    pub(crate) fn new() -> (Self, Arc<Semaphore>) {
        let gate = Arc::new(Semaphore::new(0));
        let store = MemoryStore::new();
        let gated = Self {
            store,
            gate: Arc::clone(&gate),
        };
        (gated, gate)
    }
}

impl Store for GatedStore {
    fn location(&self) -> &Arc<str> {
        self.store.location()
    }
    fn claims(&self) -> Option<&dyn Claims> {
        None
    }
    fn commit(&self, commit: Commit) -> Pending<u64> {
        let (kept, gate) = (self.store.commit(commit), Arc::clone(&self.gate));
        Box::pin(async move {
            gate.acquire().await.expect("it is never closed").forget();
            kept.await
        })
    }
    fn run(&self, id: &str) -> Pending<Option<Run>> {
        self.store.run(id)
    }
    fn runs(&self, filter: RunFilter, after: Option<RunPlace>, limit: usize) -> Pending<Vec<Run>> {
        self.store.runs(filter, after, limit)
    }
    fn journal(&self, id: &str, after: u64, limit: usize) -> Pending<Vec<Record>> {
        self.store.journal(id, after, limit)
    }
    fn contents(&self, hashes: Vec<ContentHash>) -> Pending<Vec<Arc<str>>> {
        self.store.contents(hashes)
    }
    fn chain(&self, last: ContentHash, limit: usize) -> Pending<Vec<ContentHash>> {
        self.store.chain(last, limit)
    }
    fn snapshot(&self, id: &str, at_most: u64) -> Pending<Option<Snapshot>> {
        self.store.snapshot(id, at_most)
    }
    fn timers(&self, until: u64, limit: usize) -> Pending<Vec<Timer>> {
        self.store.timers(until, limit)
    }
    fn sessions(&self, after: Option<String>, limit: usize) -> Pending<Vec<Session>> {
        self.store.sessions(after, limit)
    }
    fn session(&self, id: &str) -> Pending<Option<Session>> {
        self.store.session(id)
    }
    fn set_meta(&self, name: &str, value: Option<String>) -> Pending<()> {
        self.store.set_meta(name, value)
    }
    fn meta(&self, name: &str) -> Pending<Option<String>> {
        self.store.meta(name)
    }
    fn remove(&self, ids: Vec<String>, dry_run: bool) -> Pending<Removed> {
        self.store.remove(ids, dry_run)
    }
    fn remove_session(&self, id: &str) -> Pending<bool> {
        self.store.remove_session(id)
    }
}
