//! Token usage of a thread's model calls, by node.

use pirn_conversation::conversation::TokenUsage;
use pirn_definition::graph::NodeIx;
use serde::{Deserialize, Serialize};

/// Usage of each node with model calls, sorted by node. A list, because most threads have few such nodes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct UsageByNode(Vec<(NodeIx, TokenUsage)>);

impl UsageByNode {
    /// Adds the usage of a call of `node`.
    pub(in crate::thread) fn add(&mut self, node: NodeIx, spent: TokenUsage) {
        // An entry of zeros would make `is_nothing` false.
        if spent.is_nothing() {
            return;
        }
        // A loop calls the model of one node many times: its entry is updated, and the list stays as short as the graph.
        match self.0.binary_search_by_key(&node, |(known, _)| *known) {
            Ok(place) => self.0[place].1.add(spent),
            Err(place) => {
                if self.0.is_empty() {
                    // Most threads have one node with model calls, and a list would reserve four entries.
                    self.0.reserve_exact(1);
                }
                self.0.insert(place, (node, spent));
            }
        }
    }

    /// Returns true if no call used any tokens.
    pub fn is_nothing(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the usage by node.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeIx, TokenUsage)> {
        self.0.iter().copied()
    }
}
