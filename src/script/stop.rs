//! Stops a script from outside.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Stops a running script from another thread; every clone stops the same script.
#[derive(Clone, Debug, Default)]
pub struct StopFlag(Arc<AtomicBool>);

impl StopFlag {
    /// Stops the script within milliseconds.
    pub fn stop(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Whether it was stopped.
    pub fn is_stopped(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}
