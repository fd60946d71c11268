//! Limit on the number of operations, across threads.
//!
//! Invariants:
//! 1. [`Quota::claim`] succeeds `limit` times over all threads, never more.
//! 2. Every successful claim has a unique number from 1 to `limit`.
//! 3. Refused claims are not counted.
//!
//! No lock: one number, changed by compare and exchange. It guards no other memory, so relaxed ordering suffices.

use crate::prim::{AtomicU64, Ordering};

/// Maximum number of operations, shared by threads.
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
    /// Creates a quota of `limit` claims.
    pub fn new(limit: u64) -> Self {
        Self {
            limit,
            claimed: AtomicU64::new(0),
        }
    }

    /// Claims one operation and returns its number, from 1; none if all are claimed.
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

    /// Returns the maximum number of claims.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns the number of claims made, at most the limit.
    pub fn claimed(&self) -> u64 {
        self.claimed.load(Ordering::Relaxed)
    }
}
