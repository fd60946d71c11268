//! Bounded admission, and waiting until all permits are released.
//!
//! Invariants:
//! 1. The number of permits never exceeds the limit, and none is issued after [`close`](DrainGate::close).
//! 2. Every entry holds a [`Permit`], which is released on drop, also by a panic. Permits cannot be cloned.
//! 3. *Drained* means closed and empty. This state is final and decided under the lock that entering takes: no entry is
//!    possible between the last release and its notification.
//! 4. A waiter checks the state and registers under one lock; a close or a release takes the registered waiters under that lock.
//!
//! No deadlock: one lock, held for a few instructions; wakers are woken and dropped outside it.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::prim::{Arc, Condvar, Mutex, lock, wait_timeout_while};
use crate::waiters::Waiters;

/// Issues up to `limit` permits at a time, until it is closed. Clones share the gate.
#[derive(Clone)]
pub struct DrainGate {
    inner: Arc<Inner>,
}

struct Inner {
    limit: usize,
    state: Mutex<State>,
    drained: Condvar,
}

struct State {
    inside: usize,
    closed: bool,
    waiters: Waiters,
}

impl State {
    fn is_drained(&self) -> bool {
        self.closed && self.inside == 0
    }

    /// Takes the wakers to notify, if the gate is drained now.
    fn take_drained(&mut self) -> Option<Vec<Waker>> {
        self.is_drained().then(|| self.waiters.take_all())
    }
}

/// Reason why no permit was issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// All permits are issued. Try again when one is released.
    Full {
        /// Maximum number of permits.
        limit: usize,
    },
    /// The gate is closed. This is final.
    Closed,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full { limit } => write!(f, "all {limit} permits are in use"),
            Self::Closed => f.write_str("closed"),
        }
    }
}

impl std::error::Error for Refused {}

impl DrainGate {
    /// Creates an open gate with `limit` permits.
    pub fn new(limit: usize) -> Self {
        let state = State {
            inside: 0,
            closed: false,
            waiters: Waiters::default(),
        };
        let inner = Inner {
            limit,
            state: Mutex::new(state),
            drained: Condvar::new(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Issues a permit without waiting. Dropping it releases it.
    ///
    /// # Errors
    /// [`Refused`]. The call is not queued.
    pub fn try_enter(&self) -> Result<Permit, Refused> {
        let limit = self.inner.limit;
        let mut state = lock(&self.inner.state);
        if state.closed && !mutant!("drain gate: a closed one lets in") {
            return Err(Refused::Closed);
        }
        if state.inside >= limit {
            return Err(Refused::Full { limit });
        }
        if mutant!("drain gate: looks, then enters") {
            drop(state);
            state = lock(&self.inner.state);
        }
        state.inside += 1;
        drop(state);
        let gate = self.clone();
        Ok(Permit { gate })
    }

    /// Closes the gate: no more permits are issued. Idempotent.
    pub fn close(&self) {
        let wakers = {
            let mut state = lock(&self.inner.state);
            state.closed = true;
            state.take_drained()
        };
        if !mutant!("drain gate: closing an empty one does not wake") {
            self.wake(wakers);
        }
    }

    /// Returns true if the gate is closed.
    pub fn is_closed(&self) -> bool {
        lock(&self.inner.state).closed
    }

    /// Returns the number of issued permits.
    pub fn inside(&self) -> usize {
        lock(&self.inner.state).inside
    }

    /// Returns a future that completes when the gate is closed and empty. Cancel safe: dropping it has no other effect.
    pub fn drained(&self) -> Drained {
        let gate = self.clone();
        Drained { gate, key: None }
    }

    /// Blocks this thread until the gate is closed and empty, or the timeout has passed. Returns true if it is. Must not be called
    /// by a thread that holds a permit.
    pub fn wait_drained(&self, timeout: Duration) -> bool {
        let state = lock(&self.inner.state);
        wait_timeout_while(&self.inner.drained, state, timeout, |state| !state.is_drained()).is_drained()
    }

    fn wake(&self, wakers: Option<Vec<Waker>>) {
        let Some(wakers) = wakers else { return };
        self.inner.drained.notify_all();
        for waker in wakers {
            waker.wake();
        }
    }
}

impl fmt::Debug for DrainGate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DrainGate")
            .field("limit", &self.inner.limit)
            .field("inside", &self.inside())
            .finish_non_exhaustive()
    }
}

/// Admission to a [`DrainGate`].
#[must_use = "dropping the permit is leaving"]
#[derive(Debug)]
pub struct Permit {
    gate: DrainGate,
}

impl Drop for Permit {
    fn drop(&mut self) {
        let wakers = {
            let mut state = lock(&self.gate.inner.state);
            state.inside -= 1;
            state.take_drained()
        };
        if !mutant!("drain gate: the last one out does not wake") {
            self.gate.wake(wakers);
        }
    }
}

/// Future of [`DrainGate::drained`].
#[must_use = "a future does nothing unless it is awaited"]
pub struct Drained {
    gate: DrainGate,
    key: Option<u64>,
}

impl Future for Drained {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        // Cloned before the lock, because a waker's clone is foreign code (rule 2 of the crate).
        let waker = context.waker().clone();
        let mut state = lock(&this.gate.inner.state);
        if state.is_drained() {
            return Poll::Ready(());
        }
        if mutant!("drain gate: looks, then registers") {
            drop(state);
            state = lock(&this.gate.inner.state);
        }
        let displaced = state.waiters.put(&mut this.key, waker);
        drop(state);
        drop(displaced);
        Poll::Pending
    }
}

impl Drop for Drained {
    fn drop(&mut self) {
        let Some(key) = self.key else { return };
        let displaced = lock(&self.gate.inner.state).waiters.take(key);
        drop(displaced);
    }
}
