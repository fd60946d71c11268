//! A store that fails at one of its commits and is left in the state of a process that was killed at that commit.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use pirn::store::{Commit, Pending, Record, Store, StoreError, forward_to_store};

/// The point at which the process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Crash {
    Never,
    /// Before the commit with this number takes effect; the first has number 0.
    Before(u64),
    /// After the commit took effect, and before its result is returned.
    After(u64),
}

/// A store that writes no data after its failure.
pub(crate) struct Failing<S> {
    pub(crate) kept: Arc<S>,
    crash: Crash,
    commits: Arc<AtomicU64>,
    /// Number of reads of each run's journal.
    reads: Arc<Mutex<BTreeMap<String, usize>>>,
    fails_reads: Arc<AtomicBool>,
    /// True if every commit conflicts with one of another process.
    conflicts: Arc<AtomicBool>,
}

impl<S> Clone for Failing<S> {
    fn clone(&self) -> Self {
        Self {
            kept: Arc::clone(&self.kept),
            crash: self.crash,
            commits: Arc::clone(&self.commits),
            reads: Arc::clone(&self.reads),
            fails_reads: Arc::clone(&self.fails_reads),
            conflicts: Arc::clone(&self.conflicts),
        }
    }
}

impl<S: Store> Failing<S> {
    pub(crate) fn new(kept: S, crash: Crash) -> Self {
        Self {
            kept: Arc::new(kept),
            crash,
            commits: Arc::default(),
            reads: Arc::default(),
            fails_reads: Arc::default(),
            conflicts: Arc::default(),
        }
    }

    /// Returns the number of times that a run's journal was read.
    pub(crate) fn reads(&self, run: &str) -> usize {
        let reads = self.reads.lock().unwrap_or_else(PoisonError::into_inner);
        reads.get(run).copied().unwrap_or_default()
    }

    /// Makes every later commit conflict with one of another process.
    pub(crate) fn conflict(&self) {
        self.conflicts.store(true, Ordering::Relaxed);
    }

    /// Makes every later read of a journal fail.
    pub(crate) fn fail_reads(&self) {
        self.fails_reads.store(true, Ordering::Relaxed);
    }

    pub(crate) fn commits(&self) -> u64 {
        self.commits.load(Ordering::Relaxed)
    }
}

/// The answer of a store that fails on purpose.
pub(crate) fn fails<T: Send + 'static>() -> Pending<T> {
    let error = StoreError::Failed {
        file: "memory".into(),
        run: None,
        why: "on purpose".into(),
    };
    Box::pin(std::future::ready(Err(error)))
}

impl<S: Store> Store for Failing<S> {
    forward_to_store!(kept: location claims run runs contents chain snapshot timers sessions session set_meta meta remove remove_session);

    fn commit(&self, commit: Commit) -> Pending<u64> {
        let number = self.commits.fetch_add(1, Ordering::Relaxed);
        if self.conflicts.load(Ordering::Relaxed) {
            return Box::pin(std::future::ready(Err(StoreError::Moved {
                run: commit.run,
                expected: 1,
                found: 2,
            })));
        }
        match self.crash {
            Crash::Before(at) if number >= at => fails(),
            Crash::After(at) if number > at => fails(),
            Crash::After(at) if number == at => {
                drop(self.kept.commit(commit));
                fails()
            }
            Crash::Never | Crash::Before(_) | Crash::After(_) => self.kept.commit(commit),
        }
    }
    fn journal(&self, id: &str, after: u64, limit: usize) -> Pending<Vec<Record>> {
        let mut reads = self.reads.lock().unwrap_or_else(PoisonError::into_inner);
        *reads.entry(id.to_owned()).or_default() += 1;
        if self.fails_reads.load(Ordering::Relaxed) {
            return fails();
        }
        self.kept.journal(id, after, limit)
    }
}
