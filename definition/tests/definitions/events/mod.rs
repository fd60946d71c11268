//! Events, the triggers and schedules that react to them, and triggered sub-workflows.
//!
//! Not here: the graph of a workflow ([`graphs`](super::graphs)).

mod event_fields;
#[cfg(feature = "schedule")]
mod schedules;
mod triggered;
mod triggers;
