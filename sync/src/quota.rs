//! A limit on how often something may be done, counted by many threads.
//!
//! Invariants:
//! 1. [`Quota::claim`] succeeds `limit` times over all threads, never more.
//! 2. Every claim that succeeds has a number of its own: 1 to `limit`.
//! 3. What is refused is not counted.
//!
//! No lock: one number, changed by compare and exchange. It guards no other memory, so its order is relaxed.

use crate::prim::{AtomicU64, Ordering};

/// A number of times that something may be done, for all threads together.
///
/// ```
/// let quota = pirn_sync::Quota::new(2);
/// assert_eq!([quota.claim(), quota.claim(), quota.claim()], [Some(1), Some(2), None]);
/// ```
#[derive(Debug)]
pub struct Quota {
    limit: u64,
    claimed: AtomicU64,
}

impl Quota {
    /// A quota of `limit` times.
    pub fn new(limit: u64) -> Self {
        Self {
            limit,
            claimed: AtomicU64::new(0),
        }
    }

    /// Claims one time: which it is, from 1; none where all are claimed.
    pub fn claim(&self) -> Option<u64> {
        if mutant!("quota: counts before it looks") {
            let before = self.claimed.fetch_add(1, Ordering::Relaxed);
            return (before < self.limit).then_some(before + 1);
        }
        let mut claimed = self.claimed.load(Ordering::Relaxed);
        while claimed < self.limit {
            if mutant!("quota: looks, then claims") {
                self.claimed.store(claimed + 1, Ordering::Relaxed);
                return Some(claimed + 1);
            }
            let exchanged =
                self.claimed
                    .compare_exchange_weak(claimed, claimed + 1, Ordering::Relaxed, Ordering::Relaxed);
            match exchanged {
                Ok(_) => return Some(claimed + 1),
                Err(now) => claimed = now,
            }
        }
        None
    }

    /// The number of claims allowed in all.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// The number of claims made; never more than the limit.
    pub fn claimed(&self) -> u64 {
        self.claimed.load(Ordering::Relaxed)
    }
}
