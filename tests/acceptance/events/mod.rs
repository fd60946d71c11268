//! Events of runs: listeners, triggers, triggered sub-workflows, and waits for events.
//!
//! Not here: random cascades of triggers, which are in `triggers`.

mod listeners;
mod triggered;
mod triggers;
mod waits;
