//! A store that fails from a commit on, like that of a process which was killed there.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use pirn_store::{Commit, MemoryStore, Pending, Store, StoreError, forward_to_store};

use super::plan::{FaultPlan, KillPoint};

/// The store of one process. Stores of later processes share its contents and its count of commits.
#[derive(Clone)]
pub(super) struct KilledStore {
    kept: MemoryStore,
    plan: Arc<FaultPlan>,
    commits: Arc<AtomicU64>,
    is_dead: Arc<AtomicBool>,
}

impl KilledStore {
    pub(super) fn new(plan: Arc<FaultPlan>) -> Self {
        Self {
            kept: MemoryStore::new(),
            plan,
            commits: Arc::default(),
            is_dead: Arc::default(),
        }
    }

    /// Returns the store of the next process.
    pub(super) fn next_process(&self) -> Self {
        Self {
            is_dead: Arc::default(),
            ..self.clone()
        }
    }

    /// Returns the number of commits so far.
    pub(super) fn commits(&self) -> u64 {
        self.commits.load(Ordering::Relaxed)
    }

    /// Returns whether the process was killed.
    pub(super) fn is_dead(&self) -> bool {
        self.is_dead.load(Ordering::Relaxed)
    }

    fn killed<T: Send + 'static>() -> Pending<T> {
        let error = StoreError::Failed {
            file: "memory".into(),
            run: None,
            why: "the process was killed".into(),
        };
        Box::pin(std::future::ready(Err(error)))
    }
}

impl Store for KilledStore {
    forward_to_store!(kept: location claims run runs journal contents chain snapshot timers sessions session set_meta meta remove remove_session);

    fn commit(&self, commit: Commit) -> Pending<u64> {
        if self.is_dead() {
            return Self::killed();
        }
        let number = self.commits.fetch_add(1, Ordering::Relaxed);
        match self.plan.kill_at(number) {
            None => self.kept.commit(commit),
            Some(point) => {
                self.is_dead.store(true, Ordering::Relaxed);
                if point == KillPoint::After {
                    // The memory store has written the commit when the call returns; only its result is lost.
                    drop(self.kept.commit(commit));
                }
                Self::killed()
            }
        }
    }
}
