//! Actions of triggers: events and runs that they cause, functions that they call, and calls of the embedding program.
//!
//! Not here: the decision which triggers fire, which is in `trigger_matcher`, and firings in a run, which are in `pirn-core`.

pub(crate) mod firing;
pub(crate) mod follow_up;
pub(crate) mod function_table;
pub(crate) mod trigger_call;
