//! Actions of triggers: events that they watch, functions that they call, workflows that they start.
//!
//! Not here: the order of the firings of a thread (`parts/firing.rs`), and the matching of events (`pirn_events::trigger`).

pub(super) mod events;
pub(super) mod trigger_calls;
pub(super) mod triggered;
