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
    pub(super) fn enter(&mut self, node: NodeIx) {
        let entered = NodeRecord {
            node,
            status: NodeStatus::Running,
            attempts: 1,
        };
        if let Some(left) = self.last.replace(entered) {
            if self.before.capacity() == 0 {
                // A run that waits in its second node, as many do, has room for the first.
                self.before.reserve_exact(1);
            }
            self.before.push(left);
        }
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
