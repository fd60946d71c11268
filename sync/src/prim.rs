//! External types of the primitives. `loom-tests` has a module with equal items.

use std::sync::PoisonError;
use std::time::Duration;

pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
pub(crate) use std::sync::{Arc, Condvar, Mutex, MutexGuard};

/// Always false. In `loom-tests` it is true for the mutant that a test selects by name: a seeded mistake that shows that the
/// model can fail.
macro_rules! mutant {
    ($name:literal) => {
        false
    };
}

/// Locks a mutex, poisoned or not (rule 4 of the crate).
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits while `condition` holds.
pub(crate) fn wait_while<'a, T>(
    condvar: &Condvar,
    guard: MutexGuard<'a, T>,
    condition: impl FnMut(&mut T) -> bool,
) -> MutexGuard<'a, T> {
    condvar
        .wait_while(guard, condition)
        .unwrap_or_else(PoisonError::into_inner)
}

/// Waits while `condition` holds, at most for `timeout`. The caller checks the condition again.
pub(crate) fn wait_timeout_while<'a, T>(
    condvar: &Condvar,
    guard: MutexGuard<'a, T>,
    timeout: Duration,
    condition: impl FnMut(&mut T) -> bool,
) -> MutexGuard<'a, T> {
    condvar
        .wait_timeout_while(guard, timeout, condition)
        .unwrap_or_else(PoisonError::into_inner)
        .0
}
