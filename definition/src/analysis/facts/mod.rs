//! Facts about workflows that several checks use: reachable nodes, decided conditions, possible results of a JOIN, emitted events,
//! read variables.
//!
//! Not here: warnings.

pub(super) mod conditions;
pub(super) mod emitted_events;
pub(super) mod flow_facts;
pub(super) mod join_feasibility;
pub(super) mod reads;
