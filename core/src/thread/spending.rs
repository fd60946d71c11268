//! The tokens that a thread's own model calls cost, by node.

use serde::{Deserialize, Serialize};

use crate::conversation::Spent;
use crate::graph::NodeIx;

/// A sum for each node that has spent something, by ascending node: most threads have few.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spending(Vec<(NodeIx, Spent)>);

impl Spending {
    /// Adds what a call of `node` cost.
    pub(super) fn add(&mut self, node: NodeIx, spent: Spent) {
        if spent.is_nothing() {
            return;
        }
        match self.0.binary_search_by_key(&node, |(known, _)| *known) {
            Ok(place) => self.0[place].1.add(spent),
            Err(place) => {
                if self.0.is_empty() {
                    self.0.reserve_exact(1);
                }
                self.0.insert(place, (node, spent));
            }
        }
    }

    /// True if no call has cost anything.
    pub fn is_nothing(&self) -> bool {
        self.0.is_empty()
    }

    /// By node.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeIx, Spent)> {
        self.0.iter().copied()
    }
}
