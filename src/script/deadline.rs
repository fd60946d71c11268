//! Real time, which script limits are about also under a virtual clock: a loop that never ends takes no virtual time at all.

use std::time::Instant;

/// Now.
#[allow(clippy::disallowed_methods)] // real time on purpose
pub(super) fn now() -> Instant {
    Instant::now()
}

/// The time that this thread has been computing, where the system counts that.
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
