//! Loom's types under the names of `sync/src/prim.rs`, and the switch for mutants.

use std::sync::{OnceLock, PoisonError};
use std::time::Duration;

pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
pub(crate) use loom::sync::{Arc, Condvar, Mutex, MutexGuard};

/// Environment variable that selects the mutant of this process.
pub const MUTANT: &str = "PIRN_LOOM_MUTANT";

/// True for the selected mutant.
macro_rules! mutant {
    ($name:literal) => {
        crate::prim::is_mutant($name)
    };
}

pub(crate) fn is_mutant(name: &str) -> bool {
    static ASKED: OnceLock<Option<String>> = OnceLock::new();
    ASKED.get_or_init(|| std::env::var(MUTANT).ok()).as_deref() == Some(name)
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn wait_while<'a, T>(
    condvar: &Condvar,
    mut guard: MutexGuard<'a, T>,
    mut condition: impl FnMut(&mut T) -> bool,
) -> MutexGuard<'a, T> {
    while condition(&mut guard) {
        guard = condvar.wait(guard).unwrap_or_else(PoisonError::into_inner);
    }
    guard
}

/// Ignores the timeout, because loom has no clock. So a lost wake is a deadlock, which loom reports.
pub(crate) fn wait_timeout_while<'a, T>(
    condvar: &Condvar,
    guard: MutexGuard<'a, T>,
    _timeout: Duration,
    condition: impl FnMut(&mut T) -> bool,
) -> MutexGuard<'a, T> {
    wait_while(condvar, guard, condition)
}
