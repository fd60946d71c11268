//! Token usage of a run by thread, node and path. Each is a sum over all calls.
//!
//! A call counts for its node, its thread, and every path around the thread: that of the thread if it is a branch, and those of its
//! ancestors.

use std::collections::BTreeMap;

use pirn_conversation::conversation::TokenUsage;

use crate::run::data::report::{NodeUsage, PathUsage, UsageReport};
use crate::run::data::thread_state::Slot;
use crate::run::parts::tree::Origin;
use crate::run::state::RunMachine;
use crate::run::{ForkNo, ThreadNo};
use crate::thread::UsageByNode;

/// Token usage of a run so far.
#[derive(Debug, Default)]
pub(in crate::run) struct RunUsage {
    /// Sum over all threads.
    pub(in crate::run) total: TokenUsage,
    /// Sums by node and by path.
    pub(in crate::run) usage: UsageReport,
    /// Usage of each thread alone, and with everything that it started. Empty if nothing was spent.
    pub(in crate::run) threads: Vec<(TokenUsage, TokenUsage)>,
}

impl RunMachine {
    pub(in crate::run) fn spending(&self) -> RunUsage {
        let has_spent = |slot: &Slot| own(slot).is_some_and(|spending| !spending.is_nothing());
        // Runs without model calls, such as large forks of functions, build no maps.
        if !self.slots.iter().any(has_spent) {
            return RunUsage::default();
        }
        // Ordered by workflow and node, so that equal runs have equal reports.
        let mut nodes: BTreeMap<_, TokenUsage> = BTreeMap::new();
        let mut total = TokenUsage::default();
        let mut threads = Vec::with_capacity(self.slots.len());
        for (slot, at) in self.slots.iter().zip(self.tree.iter()) {
            let mut sum = TokenUsage::default();
            for (node, spent) in own(slot).into_iter().flat_map(UsageByNode::nodes) {
                nodes.entry((at.graph, node)).or_default().add(spent);
                sum.add(spent);
            }
            total.add(sum);
            threads.push((sum, sum));
        }
        // In reverse order: a thread has a higher number than its starter, so that its sum is final when it is added there.
        for (thread, at) in self.tree.iter().enumerate().rev() {
            let below = threads.get(thread).map(|(_, with_started)| *with_started);
            let parent = at.parent.and_then(|parent| threads.get_mut(parent as usize));
            if let (Some(below), Some((_, parent))) = (below, parent) {
                parent.add(below);
            }
        }
        RunUsage {
            total,
            usage: UsageReport {
                nodes: nodes
                    .into_iter()
                    .map(|((graph, node), usage)| {
                        let graph = self.graphs.get(graph);
                        NodeUsage {
                            workflow_id: graph.workflow_id.clone(),
                            node_id: graph.node(node).id.clone(),
                            usage,
                        }
                    })
                    .collect(),
                paths: self.paths(&threads),
                cache: self.cache.clone(),
            },
            threads,
        }
    }

    /// Returns the usage of fork paths by path id. Items of a MAP are listed among the threads only.
    fn paths(&self, threads: &[(TokenUsage, TokenUsage)]) -> Vec<PathUsage> {
        // The key has no fork number: a FORK in a loop starts several instances, whose usage is added.
        let mut paths: BTreeMap<_, TokenUsage> = BTreeMap::new();
        for ((_, spent), at) in threads.iter().zip(self.tree.iter()) {
            if let Origin::Branch { ix, path, .. } = at.origin
                && !spent.is_nothing()
            {
                paths.entry((at.graph, ix, path)).or_default().add(*spent);
            }
        }
        let row = |((graph, ix, path), usage): ((_, _, u32), TokenUsage)| {
            let graph = self.graphs.get(graph);
            Some(PathUsage {
                workflow_id: graph.workflow_id.clone(),
                path_id: graph.fork(ix).paths.get(path as usize)?.id.clone(),
                usage,
            })
        };
        paths.into_iter().filter_map(row).collect()
    }

    /// Returns the thread for which a thread of this origin runs.
    pub(in crate::run) fn parent_of(&self, origin: Origin) -> Option<ThreadNo> {
        let of_fork = |fork: ForkNo| self.forks.get(&fork).map(|run| run.parent);
        match origin {
            Origin::Main => None,
            Origin::Branch { fork, .. } | Origin::Item { fork, .. } => of_fork(fork),
            Origin::Called { parent, .. } => Some(parent),
            Origin::Triggered { firing } => self.firings.get(firing).map(|run| run.main),
        }
    }
}

/// Returns the usage of a thread's calls by node.
fn own(slot: &Slot) -> Option<&UsageByNode> {
    match slot {
        Slot::Live(live) => Some(live.machine.spent()),
        Slot::Ended(ended) => Some(&ended.spent),
        Slot::NotStarted(_) => None,
    }
}
