//! A plain thread waits here until others have counted down.
//!
//! Invariants:
//! 1. The count only falls, one at a time, and stays at zero.
//! 2. Whoever takes it to zero wakes every waiter; a waiter looks at the count and goes to sleep under one lock, so it
//!    cannot sleep through that.
//! 3. Everything a thread did before it counted down is seen by whoever waited.
//!
//! No deadlock: one lock, held for a few instructions; nothing foreign runs in it.

use std::fmt;
use std::time::Duration;

use crate::prim::{Arc, Condvar, Mutex, lock, wait_timeout_while, wait_while};

/// Opens when it has been counted down as often as it was told. Clones are the same latch.
#[derive(Clone)]
pub struct Latch {
    inner: Arc<Inner>,
}

struct Inner {
    count: Mutex<usize>,
    open: Condvar,
}

impl Latch {
    /// A latch that opens after `count` calls of [`count_down`](Self::count_down); 0 is open.
    pub fn new(count: usize) -> Self {
        let inner = Inner {
            count: Mutex::new(count),
            open: Condvar::new(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// One less to wait for. Once open, calls change nothing.
    pub fn count_down(&self) {
        let mut count = lock(&self.inner.count);
        let left = count.saturating_sub(1);
        if mutant!("latch: reads and writes the count apart") {
            drop(count);
            count = lock(&self.inner.count);
        }
        *count = left;
        drop(count);
        if left == 0 && !mutant!("latch: opens without a word") {
            self.inner.open.notify_all();
        }
    }

    /// How many are still to count down.
    pub fn remaining(&self) -> usize {
        *lock(&self.inner.count)
    }

    /// Blocks this thread until the latch is open. Not for a thread that has to count down itself.
    pub fn wait(&self) {
        let count = lock(&self.inner.count);
        drop(wait_while(&self.inner.open, count, |count| *count > 0));
    }

    /// Blocks this thread at most for `timeout`; whether the latch is open.
    pub fn wait_timeout(&self, timeout: Duration) -> bool {
        let count = lock(&self.inner.count);
        *wait_timeout_while(&self.inner.open, count, timeout, |count| *count > 0) == 0
    }
}

impl fmt::Debug for Latch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Latch").field("remaining", &self.remaining()).finish()
    }
}
