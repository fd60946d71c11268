//! Who keeps what runs are told.
//!
//! A run is what it began with and what it was told, in that order: its machine does the same when it is told the same. What
//! is evaluated or called in place is not told it: that is done again.

use std::sync::Arc;

use pirn_core::run::{Begun, Effect, Told};

/// Keeps what the runs of an engine are told. Called on the run's own thread, in order; must not block.
pub trait Journal: Send + Sync + 'static {
    /// A run begins.
    fn begun(&self, begun: &Begun);
    /// It was told something.
    fn told(&self, run_id: &Arc<str>, told: &Told);
    /// It wants something done outside.
    fn did(&self, run_id: &Arc<str>, effect: &Effect);
}
