//! The running runs of an engine, readable from any thread without a message.

use std::sync::Arc;

use dashmap::{DashMap, Entry};
use foldhash::fast::RandomState;
use pirn_sync::Registry;

use crate::protocol::supervisor::SupervisorHandle;

/// Run handles by run id. References into the map are never returned, because a held one would block writers of its shard.
#[derive(Default)]
pub(super) struct Runs(DashMap<Arc<str>, Arc<SupervisorHandle>, RandomState>);

impl Runs {
    /// Returns the handle of a run.
    pub(super) fn find(&self, run_id: &str) -> Option<Arc<SupervisorHandle>> {
        self.0.get(run_id).map(|run| run.value().clone())
    }

    /// Adds a run. Returns false if its id is in use.
    pub(super) fn claim(&self, run_id: &Arc<str>, run: &Arc<SupervisorHandle>) -> bool {
        // `entry` locks the shard, so of two concurrent claims one finds the id occupied.
        match self.0.entry(Arc::clone(run_id)) {
            Entry::Occupied(_) => false,
            Entry::Vacant(vacant) => {
                vacant.insert(Arc::clone(run));
                true
            }
        }
    }

    /// Removes a run. A later run with this id stays.
    pub(super) fn forget(&self, run_id: &Arc<str>, run: &Arc<SupervisorHandle>) {
        // First: afterwards a later run may have the id.
        run.leaves();
        self.0.remove_if(run_id, |_, known| Arc::ptr_eq(known, run));
    }

    /// Number of messages in the mailboxes of all runs.
    pub(super) fn waiting(&self) -> u64 {
        self.0.iter().map(|run| u64::from(run.value().waiting())).sum()
    }
}

impl Registry for Runs {
    type Key = Arc<str>;
    type Run = Arc<SupervisorHandle>;

    fn insert(&self, run_id: &Arc<str>, supervisor: Arc<SupervisorHandle>) {
        // `claim` has inserted this handle; `admit` inserts it again, before it enters the gate.
        self.0.insert(Arc::clone(run_id), supervisor);
    }

    fn remove(&self, run_id: &Arc<str>) {
        self.0.remove(run_id);
    }

    fn list(&self) -> Vec<Arc<SupervisorHandle>> {
        self.0.iter().map(|run| run.value().clone()).collect()
    }
}
