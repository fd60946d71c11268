//! Stops something that runs on another thread, where that looks now and then.
//!
//! Invariants:
//! 1. Once stopped, always stopped.
//! 2. Who sees that it is stopped sees what was done before the stop.

use std::fmt;

use crate::prim::{Arc, AtomicBool, Ordering};

/// A flag that is raised once; clones are the same flag.
///
/// ```
/// let flag = pirn_sync::StopFlag::default();
/// let seen = flag.clone();
/// flag.stop();
/// assert!(seen.is_stopped());
/// ```
#[derive(Clone)]
pub struct StopFlag(Arc<AtomicBool>);

impl StopFlag {
    /// Raises it.
    pub fn stop(&self) {
        let order = if mutant!("stop flag: raised without what came before") {
            Ordering::Relaxed
        } else {
            Ordering::Release
        };
        self.0.store(true, order);
    }

    /// True if it was raised.
    pub fn is_stopped(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

impl Default for StopFlag {
    fn default() -> Self {
        Self(Arc::new(AtomicBool::new(false)))
    }
}

impl fmt::Debug for StopFlag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StopFlag").finish_non_exhaustive()
    }
}
