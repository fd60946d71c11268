//! A store with commits that wait at a gate, like those of a slow disk.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pirn::store::{Claims, Commit, MemoryStore, Pending, Store, StoreError, forward_to_store};
use tokio::sync::Semaphore;

/// A store in memory that needs a permit for each answer to a commit.
pub(crate) struct GatedStore {
    store: MemoryStore,
    gate: Arc<Semaphore>,
    is_broken: Arc<AtomicBool>,
    is_full: Arc<AtomicBool>,
}

impl GatedStore {
    /// A store with a closed gate, and the gate.
    pub(crate) fn new() -> (Self, Arc<Semaphore>) {
        let gate = Arc::new(Semaphore::new(0));
        let store = MemoryStore::new();
        let gated = Self {
            store,
            gate: Arc::clone(&gate),
            is_broken: Arc::default(),
            is_full: Arc::default(),
        };
        (gated, gate)
    }

    /// Returns the flag that makes reading of metadata fail.
    pub(crate) fn is_broken(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_broken)
    }

    /// Returns the flag that makes commits fail.
    pub(crate) fn is_full(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_full)
    }
}

impl Store for GatedStore {
    forward_to_store!(store: location run runs journal contents chain snapshot timers sessions session set_meta remove remove_session);
    fn claims(&self) -> Option<&dyn Claims> {
        None
    }
    fn commit(&self, commit: Commit) -> Pending<u64> {
        if self.is_full.load(Ordering::SeqCst) {
            let error = StoreError::Failed {
                file: "gated".into(),
                run: None,
                why: "the disk is full".to_owned(),
            };
            return Box::pin(async move { Err(error) });
        }
        let (kept, gate) = (self.store.commit(commit), Arc::clone(&self.gate));
        Box::pin(async move {
            gate.acquire().await.expect("it is never closed").forget();
            kept.await
        })
    }
    fn meta(&self, name: &str) -> Pending<Option<String>> {
        if self.is_broken.load(Ordering::SeqCst) {
            let error = StoreError::NoSuchRun { run: name.to_owned() };
            return Box::pin(async move { Err(error) });
        }
        self.store.meta(name)
    }
}
