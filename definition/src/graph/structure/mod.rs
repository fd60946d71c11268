//! Checks of the edges between nodes: pairs of FORK and JOIN, their regions, cycles, and calls between workflows.
//!
//! Not here: the configs of nodes ([`nodes`](super::nodes)).

pub(super) mod adjacency;
pub(super) mod pairing;
pub(super) mod references;
pub(super) mod regions;
pub(crate) mod scc;
