//! Locks that serialize changes of a run without an owner: its inputs and its resumption.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::lock::{Mutex as AsyncMutex, OwnedMutexGuard};

/// Locks of the runs that are being changed, by run id.
#[derive(Default)]
pub(crate) struct RunLocks(Mutex<BTreeMap<String, Arc<AsyncMutex<()>>>>);

/// Excludes other changes of a run until it is dropped.
pub(super) struct RunLock<'a> {
    locks: &'a RunLocks,
    run_id: String,
    held: Option<OwnedMutexGuard<()>>,
}

impl RunLocks {
    /// Waits for exclusive access to the run.
    pub(super) async fn enter(&self, run_id: &str) -> RunLock<'_> {
        let lock = Arc::clone(self.all().entry(run_id.to_owned()).or_default());
        // Created before the wait, so that dropping this future removes the entry too.
        let mut entered = RunLock {
            locks: self,
            run_id: run_id.to_owned(),
            held: None,
        };
        entered.held = Some(lock.lock_owned().await);
        entered
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<String, Arc<AsyncMutex<()>>>> {
        // The map is consistent after every statement, so a poisoned lock is usable.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for RunLock<'_> {
    fn drop(&mut self) {
        self.held = None;
        let mut all = self.locks.all();
        // A waiter holds a clone of the lock: remove the entry only if there is none.
        if all.get(&self.run_id).is_some_and(|lock| Arc::strong_count(lock) == 1) {
            all.remove(&self.run_id);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use futures::executor::block_on;

    use super::*;

    #[test]
    fn the_lock_of_a_run_is_exclusive_and_removed_after_use() {
        let locks = RunLocks::default();
        let first = block_on(locks.enter("a"));
        let mut second = Box::pin(locks.enter("a"));
        assert!((&mut second).now_or_never().is_none(), "it waits");
        drop(block_on(locks.enter("b")));
        drop(locks.enter("a").now_or_never());
        drop(first);
        let second = second.now_or_never().expect("its turn");
        assert_eq!(locks.all().len(), 1);
        drop(second);
        assert!(locks.all().is_empty());
    }
}
