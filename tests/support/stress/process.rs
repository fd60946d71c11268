//! Resource usage of this process, if the operating system reports it.

use std::time::Duration;

use crossbeam_channel::never;

/// Returns the resident memory in KiB, or `None` on a system without `/proc`.
pub fn resident_kib() -> Option<u64> {
    status("VmRSS:")
}

/// Number of threads.
pub(super) fn threads() -> Option<u64> {
    status("Threads:")
}

/// True if the number of threads falls to `wanted` within `patience`: the system reports an ended thread with a delay.
pub(super) fn thread_count_falls_to(wanted: u64, patience: Duration) -> bool {
    let step = Duration::from_millis(10);
    let mut left = patience;
    while threads().is_some_and(|now| now > wanted) {
        if left.is_zero() {
            return false;
        }
        let _ = never::<()>().recv_timeout(step);
        left = left.saturating_sub(step);
    }
    true
}

fn status(key: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with(key))?;
    line.split_whitespace().nth(1)?.parse().ok()
}
