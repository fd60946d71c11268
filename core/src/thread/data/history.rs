//! History of the nodes that a thread entered.

use pirn_definition::graph::NodeIx;
use serde::{Deserialize, Serialize};

use super::records::{NodeRecord, NodeStatus};

/// Entered nodes in order. The last one is stored inline, so that a branch of one node allocates no list.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(in crate::thread) struct History {
    before: Vec<NodeRecord>,
    last: Option<NodeRecord>,
}

impl History {
    /// Adds a node of a graph with `of` nodes.
    pub(in crate::thread) fn enter(&mut self, node: NodeIx, of: usize) {
        let entered = NodeRecord {
            node,
            status: NodeStatus::Running,
            attempts: 1,
            finish_reason: None,
        };
        // The record left before moves to the list only now, so that one-node branches never allocate.
        if let Some(left) = self.last.replace(entered) {
            make_room(&mut self.before, of);
            self.before.push(left);
        }
    }

    pub(in crate::thread) fn len(&self) -> usize {
        self.before.len() + usize::from(self.last.is_some())
    }

    /// Retains the first `len` nodes and the last one.
    pub(in crate::thread) fn truncate(&mut self, len: usize) {
        // One less, because the last node is not in the list. Saturates for an empty history.
        self.before.truncate(len.saturating_sub(1));
    }

    pub(in crate::thread) fn last_mut(&mut self) -> Option<&mut NodeRecord> {
        self.last.as_mut()
    }

    pub(in crate::thread) fn iter(&self) -> impl Iterator<Item = &NodeRecord> {
        self.before.iter().chain(&self.last)
    }

    pub(in crate::thread) fn take(&mut self) -> Vec<NodeRecord> {
        // Takes the allocation of the list: the thread has ended and needs it no more.
        let mut all = std::mem::take(&mut self.before);
        all.extend(self.last.take());
        all
    }
}

/// Reserves space in a list that grows along a thread's path. First for one element, because many runs wait in their second node;
/// then once for all nodes of a small graph.
pub(in crate::thread) fn make_room<T>(list: &mut Vec<T>, nodes: usize) {
    /// Maximum number of nodes of a small graph.
    const SMALL: usize = 16;
    // Room is left from an earlier reservation.
    if list.len() < list.capacity() {
        return;
    }
    match list.len() {
        0 => list.reserve_exact(1),
        // One element exists. The bound limits the waste of threads that enter only a few nodes of a large graph.
        1 => list.reserve_exact(nodes.clamp(2, SMALL) - 1),
        // Long paths double the capacity as usual: the cost of an append stays constant on average.
        _ => list.reserve(1),
    }
}
