//! Checks of triggers and of the events that fire them.
//!
//! Not here: which events a workflow emits ([`facts`](super::facts)).

pub(super) mod dead_triggers;
pub(super) mod token_limit;
pub(super) mod trigger_cycles;
