//! Real time, which script limits use even under a virtual clock, because an endless loop takes no virtual time.

use std::time::Instant;

/// Returns the current real time.
#[allow(clippy::disallowed_methods)] // real time on purpose
pub(super) fn now() -> Instant {
    Instant::now()
}

/// Returns the CPU time of this thread, if the system measures it.
#[cfg(feature = "javascript")]
pub(super) fn computed() -> Option<std::time::Duration> {
    #[cfg(any(target_os = "linux", target_os = "macos"))]
    {
        use rustix::time::{ClockId, clock_gettime};
        std::time::Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).ok()
    }
    #[cfg(not(any(target_os = "linux", target_os = "macos")))]
    None
}
