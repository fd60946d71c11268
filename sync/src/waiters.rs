//! The wakers of the tasks that wait for one thing. Lives inside a primitive's lock and runs nothing foreign there:
//! wakers come in cloned, and go out to be woken or dropped by the caller after unlocking.

use std::collections::BTreeMap;
use std::task::Waker;

/// Wakers by the key of the future they belong to.
#[derive(Default)]
pub(crate) struct Waiters {
    wakers: BTreeMap<u64, Waker>,
    next: u64,
}

impl Waiters {
    /// Puts a future's waker in, under its key or a new one. What it displaces is for the caller to drop, unlocked.
    #[must_use]
    pub(crate) fn put(&mut self, key: &mut Option<u64>, waker: Waker) -> Option<Waker> {
        let key = *key.get_or_insert_with(|| {
            self.next += 1;
            self.next
        });
        self.wakers.insert(key, waker)
    }

    /// Takes a future's waker out; for the caller to drop, unlocked.
    #[must_use]
    pub(crate) fn take(&mut self, key: u64) -> Option<Waker> {
        self.wakers.remove(&key)
    }

    /// Takes all out, oldest first; for the caller to wake, unlocked.
    #[must_use]
    pub(crate) fn take_all(&mut self) -> Vec<Waker> {
        std::mem::take(&mut self.wakers).into_values().collect()
    }
}
