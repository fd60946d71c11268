//! The runs of other processes whose events streams of this service read. All streams of a run share one log.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::http::problem::{Problem, ProblemCode};
use crate::runs::Run;

/// Runs of other processes, by id. A run is dropped with its last stream.
pub(crate) struct FollowedRuns {
    runs: Mutex<BTreeMap<String, Weak<Run>>>,
    limit: usize,
}

impl FollowedRuns {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            runs: Mutex::default(),
            limit,
        }
    }

    /// Returns the run with this id if it is open, or else adds the run that `make` returns. True: the run was added, and its log
    /// must be filled.
    pub(crate) fn open(&self, id: &str, make: impl FnOnce() -> Run) -> Result<(Arc<Run>, bool), Problem> {
        let mut runs = self.state();
        // A closed log receives no events: its run moved to this process, and left it since.
        let known = runs.get(id).and_then(Weak::upgrade).filter(|run| !run.log.is_closed());
        if let Some(run) = known {
            return Ok((run, false));
        }
        if runs.len() >= self.limit && !runs.contains_key(id) {
            let detail = format!(
                "the events of {} runs of other processes are read, no more are admitted",
                self.limit
            );
            return Err(Problem::new(ProblemCode::TooManyStreams, detail).retry_after(1));
        }
        let run = Arc::new(make());
        runs.insert(id.to_owned(), Arc::downgrade(&run));
        Ok((run, true))
    }

    /// Removes a run, unless another one was added under its id.
    pub(crate) fn close(&self, id: &str, run: &Weak<Run>) {
        let mut runs = self.state();
        if runs.get(id).is_some_and(|known| known.ptr_eq(run)) {
            runs.remove(id);
        }
    }

    fn state(&self) -> MutexGuard<'_, BTreeMap<String, Weak<Run>>> {
        // Ignore poisoning: every critical section preserves the invariants.
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
