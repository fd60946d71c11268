//! Engines of this process that use one store object.
//!
//! A store without [`Claims`](pirn_store::Claims) does not know the owners of its runs. The engines that were built with the same
//! `Arc` of such a store therefore share this registry: a run that one of them executes is not resumed by another.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use pirn_actors::engine::{EngineShared, StartedRun};
use pirn_store::{Store, StoreError};

use super::run_locks::{RunLock, RunLocks};

/// Engines that use one store object, with the locks of its runs.
#[derive(Default)]
pub(crate) struct Peers {
    run_locks: RunLocks,
    engines: Mutex<Vec<Weak<EngineShared>>>,
}

/// Peers by the address of their store, which is unique as long as one of the engines holds the store.
static BY_STORE: Mutex<BTreeMap<usize, Weak<Peers>>> = Mutex::new(BTreeMap::new());

impl Peers {
    /// Returns the peers of a store object. The caller must hold both for the same time.
    pub(super) fn of(store: &Arc<dyn Store>) -> Arc<Self> {
        let mut by_store = entered(&BY_STORE);
        // An entry of a dropped store is removed, because another store may get its address.
        by_store.retain(|_, peers| peers.strong_count() > 0);
        let address = Arc::as_ptr(store).cast::<()>().addr();
        if let Some(peers) = by_store.get(&address).and_then(Weak::upgrade) {
            return peers;
        }
        let peers = Arc::new(Self::default());
        by_store.insert(address, Arc::downgrade(&peers));
        peers
    }

    /// Adds an engine.
    pub(crate) fn join(&self, engine: &Arc<EngineShared>) {
        let mut engines = entered(&self.engines);
        engines.retain(|engine| engine.strong_count() > 0);
        engines.push(Arc::downgrade(engine));
    }

    /// Waits until no engine of this process changes the stored run.
    pub(super) async fn lock(&self, run_id: &str) -> RunLock<'_> {
        self.run_locks.enter(run_id).await
    }

    /// Fails with [`StoreError::RunHeld`] if an engine executes the run.
    pub(super) fn check_unowned(&self, run_id: &str) -> Result<(), StoreError> {
        if self.owner_of(run_id).is_some() {
            return Err(StoreError::RunHeld {
                run: run_id.to_owned(),
                by: "another engine of this process".to_owned(),
            });
        }
        Ok(())
    }

    /// Returns the engine that executes the run.
    pub(super) fn owner_of(&self, run_id: &str) -> Option<Arc<EngineShared>> {
        // Copied, because dropping an engine's last handle under the lock would stop the engine there.
        let engines: Vec<_> = entered(&self.engines).iter().filter_map(Weak::upgrade).collect();
        engines.into_iter().find(|engine| engine.carries(run_id))
    }

    /// Returns the run, if an engine executes it.
    pub(super) fn find(&self, run_id: &str) -> Option<StartedRun> {
        self.owner_of(run_id)?.find(run_id)
    }
}

fn entered<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every change is one statement, so a poisoned lock is usable.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
