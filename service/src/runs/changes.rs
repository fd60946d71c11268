//! The latest change of each run in memory, for streams of the changes of all runs.
//!
//! 1. A run has one entry, which a later change moves to the end. So the log has at most as many entries as there are runs in
//!    memory, and [`MAX_LEFT`] more.
//! 2. The log stores no state for a reader: a reader has the number of the last change that it read. So no reader can delay
//!    another, and a slow one skips changes that later ones have replaced.
//! 3. Entries have no state of the run: it is read when the entry is sent.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use crate::runs::store::archive::RunSummary;

/// Maximum number of entries of runs that left the memory of this process before they ended.
const MAX_LEFT: usize = 1_000;

/// See the module.
pub(crate) struct Changes {
    /// Start of the numbers: those of another process are not comparable.
    epoch: u64,
    state: Mutex<State>,
    /// True once no change follows.
    changed: watch::Sender<bool>,
}

#[derive(Default)]
struct State {
    last: u64,
    by_number: BTreeMap<u64, Change>,
    numbers: HashMap<Arc<str>, u64>,
    /// Numbers of the entries with a summary, in their order; some were replaced.
    left: VecDeque<u64>,
}

/// A change of a run.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) number: u64,
    pub(crate) run_id: Arc<str>,
    /// Last state of a run that is not in memory any more.
    pub(crate) left: Option<Arc<RunSummary>>,
}

impl State {
    fn put(&mut self, run_id: &str, left: Option<RunSummary>) {
        self.last += 1;
        let number = self.last;
        let run_id: Arc<str> = run_id.into();
        if let Some(before) = self.numbers.insert(Arc::clone(&run_id), number) {
            self.by_number.remove(&before);
        }
        if left.is_some() {
            self.left.push_back(number);
            if self.left.len() > MAX_LEFT
                && let Some(oldest) = self.left.pop_front()
                && let Some(change) = self.by_number.remove(&oldest)
            {
                self.numbers.remove(&change.run_id);
            }
        }
        let left = left.map(Arc::new);
        self.by_number.insert(number, Change { number, run_id, left });
    }
}

impl Changes {
    pub(crate) fn new(epoch: u64) -> Self {
        Self {
            epoch,
            state: Mutex::default(),
            changed: watch::Sender::new(false),
        }
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Records that a run in memory has changed.
    pub(crate) fn add(&self, run_id: &str) {
        self.state().put(run_id, None);
        self.notify();
    }

    /// Records that a run has left the memory before its end, with its last state here.
    pub(crate) fn leave(&self, summary: RunSummary) {
        let run_id = summary.run_id.clone();
        self.state().put(&run_id, Some(summary));
        self.notify();
    }

    /// True if a run has left the memory before its end, and the entry of that change is still in the log.
    pub(crate) fn has_left(&self, run_id: &str) -> bool {
        let state = self.state();
        let change = state.numbers.get(run_id).and_then(|number| state.by_number.get(number));
        change.is_some_and(|change| change.left.is_some())
    }

    /// Removes the entry of a run that is forgotten.
    pub(crate) fn forget(&self, run_id: &str) {
        let mut state = self.state();
        if let Some(number) = state.numbers.remove(run_id) {
            state.by_number.remove(&number);
        }
    }

    /// Returns the changes after a number, oldest first, at most `limit`.
    pub(in crate::runs) fn after(&self, number: u64, limit: usize) -> Vec<Change> {
        let state = self.state();
        let later = state.by_number.range(number.saturating_add(1)..);
        later.take(limit).map(|(_, change)| change.clone()).collect()
    }

    /// True if a reader may have read up to this number of this epoch.
    pub(crate) fn has_reached(&self, epoch: u64, number: u64) -> bool {
        epoch == self.epoch && number <= self.state().last
    }

    /// Ends all readers after the present changes.
    pub(crate) fn close(&self) {
        self.changed.send_replace(true);
    }

    /// True if no change follows, because the service has shut down.
    pub(crate) fn is_closed(&self) -> bool {
        *self.changed.borrow()
    }

    /// Returns a receiver that is notified of every change; its value is true once no change follows.
    pub(crate) fn watch(&self) -> watch::Receiver<bool> {
        self.changed.subscribe()
    }

    fn notify(&self) {
        // The value stays; receivers are marked as changed.
        self.changed.send_modify(|_| {});
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Ignore poisoning: every critical section preserves the invariants.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(changes: &Changes, after: u64) -> Vec<String> {
        let later = changes.after(after, usize::MAX);
        later.iter().map(|change| change.run_id.to_string()).collect()
    }

    #[test]
    fn a_run_has_one_entry_however_often_it_changes() {
        let changes = Changes::new(7);
        for _ in 0..10_000 {
            for id in ["a", "b"] {
                changes.add(id);
            }
        }
        assert_eq!(ids(&changes, 0), ["a", "b"]);
        assert_eq!(changes.state().by_number.len(), 2);
        changes.add("a");
        assert_eq!(ids(&changes, 0), ["b", "a"]);
        assert_eq!(ids(&changes, 20_000), ["a"]);
        changes.forget("a");
        assert_eq!(ids(&changes, 0), ["b"]);
        assert_eq!(changes.state().numbers.len(), 1);
    }

    #[test]
    fn entries_of_runs_that_left_are_limited() {
        let changes = Changes::new(7);
        let summary = |number: usize| RunSummary {
            run_id: format!("run-{number}"),
            ..RunSummary::default()
        };
        changes.add("here");
        for number in 0..3 * MAX_LEFT {
            changes.leave(summary(number % (2 * MAX_LEFT)));
        }
        let state = changes.state();
        assert_eq!(state.by_number.len(), MAX_LEFT + 1);
        assert_eq!((state.numbers.len(), state.left.len()), (MAX_LEFT + 1, MAX_LEFT));
    }

    #[test]
    fn a_position_of_another_process_is_unknown() {
        let changes = Changes::new(7);
        changes.add("a");
        assert!(changes.has_reached(7, 1));
        assert!(!changes.has_reached(6, 1) && !changes.has_reached(7, 2));
    }
}
