//! Stop request to work on another thread, which polls it.
//!
//! Invariants:
//! 1. A stop is final.
//! 2. A thread that sees the stop also sees all writes before it (release and acquire).

use std::fmt;

use crate::prim::{Arc, AtomicBool, Ordering};

/// Flag that is set once. Clones share it.
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
    /// Sets the flag.
    pub fn stop(&self) {
        let order = if mutant!("stop flag: raised without what came before") {
            Ordering::Relaxed
        } else {
            Ordering::Release
        };
        self.0.store(true, order);
    }

    /// Returns true if the flag is set.
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
