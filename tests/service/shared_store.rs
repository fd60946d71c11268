//! A store in memory that several services share, as processes share a server.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::FutureExt;
use futures::future::{pending, ready};
use pirn::store::{Assignment, Claims, Commit, MemoryStore, Pending, Record, Store, StoreError, forward_to_store};

/// The store of one process. Clones are of this process too.
#[derive(Clone)]
pub(crate) struct SharedStore {
    store: MemoryStore,
    /// Processes that have claimed the runs, by run. A run is claimed until its claim is taken or released.
    owners: Arc<Mutex<BTreeMap<String, u32>>>,
    process: u32,
    /// Base URLs of the services, by process.
    addresses: Arc<Mutex<BTreeMap<u32, String>>>,
    /// Number of journal records that this process has read.
    pub(crate) records: Arc<AtomicU32>,
}

impl SharedStore {
    pub(crate) fn new() -> Self {
        Self {
            store: MemoryStore::new(),
            owners: Arc::default(),
            process: 1,
            addresses: Arc::default(),
            records: Arc::default(),
        }
    }

    /// Returns the store of another process.
    pub(crate) fn of_process(&self, process: u32) -> Self {
        Self {
            store: self.store.clone(),
            owners: Arc::clone(&self.owners),
            process,
            addresses: Arc::clone(&self.addresses),
            records: Arc::default(),
        }
    }

    /// Transfers all claims to this process, as if the others were killed.
    pub(crate) fn take_over(&self) {
        for owner in self.owners().values_mut() {
            *owner = self.process;
        }
    }

    /// Sets the base URL of the service of this process.
    pub(crate) fn advertise(&self, url: &str) {
        let mut addresses = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        addresses.insert(self.process, url.to_owned());
    }

    fn owners(&self) -> MutexGuard<'_, BTreeMap<String, u32>> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Claims a run, or returns the process that has claimed it.
    fn take(&self, run: &str) -> Result<(), u32> {
        let owner = *self.owners().entry(run.to_owned()).or_insert(self.process);
        if owner == self.process { Ok(()) } else { Err(owner) }
    }
}

impl Store for SharedStore {
    forward_to_store!(store: location run runs contents chain snapshot timers sessions session set_meta meta remove remove_session);

    fn claims(&self) -> Option<&dyn Claims> {
        Some(self)
    }

    fn commit(&self, commit: Commit) -> Pending<u64> {
        match self.take(&commit.run) {
            Ok(()) => self.store.commit(commit),
            Err(_) => ready(Err(StoreError::RunLost { run: commit.run })).boxed(),
        }
    }

    fn journal(&self, id: &str, after: u64, limit: usize) -> Pending<Vec<Record>> {
        let (journal, records) = (self.store.journal(id, after, limit), Arc::clone(&self.records));
        let counted = journal.inspect(move |read| {
            let read = read.as_ref().map_or(0, Vec::len);
            records.fetch_add(u32::try_from(read).unwrap_or(u32::MAX), Ordering::SeqCst);
        });
        counted.boxed()
    }
}

impl Claims for SharedStore {
    fn claim(&self, run: &str) -> Pending<()> {
        let held = |owner: u32| StoreError::RunHeld {
            run: run.to_owned(),
            by: format!("process {owner}"),
        };
        ready(self.take(run).map_err(held)).boxed()
    }

    fn release(&self, run: &str, _after_ms: u64) {
        let mut owners = self.owners();
        if owners.get(run) == Some(&self.process) {
            owners.remove(run);
        }
    }

    fn carry(&self, _at_most: usize) {}

    fn assigned(&self) -> Pending<Assignment> {
        pending().boxed()
    }

    fn turn(&self, _session: &str, _run: &str) -> Pending<()> {
        ready(Ok(())).boxed()
    }

    fn ended(&self, _run: &str) -> Pending<()> {
        pending().boxed()
    }

    fn tell(&self, _run: &str, _request: String) -> Pending<Option<String>> {
        ready(Ok(None)).boxed()
    }

    fn owner_address(&self, run: &str) -> Pending<Option<String>> {
        let owner = self.owners().get(run).copied().filter(|owner| *owner != self.process);
        let addresses = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        ready(Ok(owner.and_then(|owner| addresses.get(&owner).cloned()))).boxed()
    }

    fn answer(&self, _request: u64, _answer: String) {}
}
