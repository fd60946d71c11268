//! The runs of an engine that are known, which any thread may read without a hop.

use std::sync::Arc;

use dashmap::DashMap;
use foldhash::fast::RandomState;
use pirn_sync::Registry;

use crate::protocol::supervisor::SupervisorHandle;

/// The supervisors by run id. No reference into the map leaves this file.
#[derive(Default)]
pub(super) struct Runs(DashMap<Arc<str>, Arc<SupervisorHandle>, RandomState>);

impl Runs {
    /// The supervisor of a run.
    pub(super) fn find(&self, run_id: &str) -> Option<Arc<SupervisorHandle>> {
        self.0.get(run_id).map(|run| run.value().clone())
    }

    /// Number of messages that wait for any of them.
    pub(super) fn waiting(&self) -> u64 {
        self.0.iter().map(|run| u64::from(run.value().waiting())).sum()
    }
}

impl Registry for Runs {
    type Key = Arc<str>;
    type Run = Arc<SupervisorHandle>;

    fn insert(&self, run_id: &Arc<str>, supervisor: Arc<SupervisorHandle>) {
        self.0.insert(Arc::clone(run_id), supervisor);
    }

    fn remove(&self, run_id: &Arc<str>) {
        self.0.remove(run_id);
    }

    fn list(&self) -> Vec<Arc<SupervisorHandle>> {
        self.0.iter().map(|run| run.value().clone()).collect()
    }
}
