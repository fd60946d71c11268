//! Parts of the state of a run that have rules of their own: tree of threads, queue, workflows, global variables, budget, memory,
//! firings, and termination.
//!
//! Not here: functions that need the whole run. They are methods of [`RunMachine`](super::RunMachine) in the other folders.

pub(super) mod agents;
pub(super) mod amount;
pub(super) mod firing;
pub(super) mod globals;
pub(super) mod graphs;
pub(super) mod ledger;
pub(super) mod mailbox;
pub(super) mod memory;
pub(super) mod quiescence;
pub(super) mod tree;
