//! Real time, which script limits are about also under a virtual clock: a loop that never ends takes no virtual time at all.

use std::time::{Duration, Instant};

/// Now.
#[allow(clippy::disallowed_methods)] // real time on purpose
pub(super) fn now() -> Instant {
    Instant::now()
}

/// What is left until `deadline`.
pub(super) fn left_until(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(now())
}
