//! Real time, which script limits are about also under a virtual clock: a loop that never ends takes no virtual time at all.

use std::time::Instant;

/// Now.
#[allow(clippy::disallowed_methods)] // real time on purpose
pub(super) fn now() -> Instant {
    Instant::now()
}
