//! Numbers of agents that submitted workflows have started.
//!
//! The threads of a submitted workflow are its own and those of its forks' paths. A workflow that one of its agents submits is nested in
//! it: an agent counts for both.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::tree::{Origin, ThreadLookup};
use crate::run::ThreadNo;

/// Number of started agents, by the first thread of the submitted workflow.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(in crate::run) struct AgentCounts(BTreeMap<ThreadNo, u64>);

impl AgentCounts {
    /// Returns the number of agents that a thread may still start; `None` if its workflow was not submitted.
    pub(in crate::run) fn left(&self, thread: ThreadNo, threads: ThreadLookup<'_>) -> Option<u64> {
        let left = |(first, limit): (ThreadNo, u64)| limit.saturating_sub(self.0.get(&first).copied().unwrap_or(0));
        submitted(thread, threads).map(left).min()
    }

    /// Counts the agents that a thread has started.
    pub(in crate::run) fn add(&mut self, thread: ThreadNo, count: u64, threads: ThreadLookup<'_>) {
        for (first, _) in submitted(thread, threads) {
            *self.0.entry(first).or_default() += count;
        }
    }
}

/// Returns the first threads of the submitted workflows that contain a thread, from the innermost one, and their limits.
fn submitted(thread: ThreadNo, threads: ThreadLookup<'_>) -> impl Iterator<Item = (ThreadNo, u64)> {
    let ThreadLookup { tree, graphs } = threads;
    let mut next = Some(thread);
    std::iter::from_fn(move || {
        let mut first = next?;
        let mut at = tree.get(first)?;
        while matches!(at.origin, Origin::Branch { .. }) {
            first = at.parent?;
            at = tree.get(first)?;
        }
        next = at.parent;
        Some((first, graphs.get(at.graph).config.max_agents?))
    })
}
