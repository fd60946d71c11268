//! The nodes a thread entered.

use serde::{Deserialize, Serialize};

use super::machine::{NodeRecord, NodeStatus};
use crate::graph::NodeIx;

/// Every entered node, in order; the last one apart, so that a branch of one node needs no list.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct History {
    before: Vec<NodeRecord>,
    last: Option<NodeRecord>,
}

impl History {
    /// The thread enters a node of a graph that has so many.
    pub(super) fn enter(&mut self, node: NodeIx, of: usize) {
        let entered = NodeRecord {
            node,
            status: NodeStatus::Running,
            attempts: 1,
            finish_reason: None,
        };
        if let Some(left) = self.last.replace(entered) {
            make_room(&mut self.before, of);
            self.before.push(left);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.before.len() + usize::from(self.last.is_some())
    }

    /// Keeps the first nodes, and the last one.
    pub(super) fn truncate(&mut self, len: usize) {
        self.before.truncate(len.saturating_sub(1));
    }

    pub(super) fn last_mut(&mut self) -> Option<&mut NodeRecord> {
        self.last.as_mut()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &NodeRecord> {
        self.before.iter().chain(&self.last)
    }

    pub(super) fn take(&mut self) -> Vec<NodeRecord> {
        let mut all = std::mem::take(&mut self.before);
        all.extend(self.last.take());
        all
    }
}

/// Makes room in a list that a thread fills: for one at first, as a run that waits in its second node, as many do,
/// needs no more. Then for the whole way through a small graph, once.
pub(super) fn make_room<T>(list: &mut Vec<T>, nodes: usize) {
    /// A graph of more nodes is not small.
    const SMALL: usize = 16;
    if list.len() < list.capacity() {
        return;
    }
    match list.len() {
        0 => list.reserve_exact(1),
        1 => list.reserve_exact(nodes.clamp(2, SMALL) - 1),
        _ => list.reserve(1),
    }
}
