//! Bounded admission, and waiting until everybody has left.
//!
//! Invariants:
//! 1. Never more inside than the limit; nobody enters after [`close`](DrainGate::close).
//! 2. Who enters holds a [`Permit`]; dropping it, also by a panic, is leaving. Permits are not cloned.
//! 3. *Drained* means closed and empty. It is final, and decided under the lock that entering takes: nobody can slip in
//!    between the last one out and the news of it.
//! 4. A waiter looks and registers under one lock; who closes or leaves takes the registered under the same lock.
//!
//! No deadlock: one lock, held for a few instructions; wakers are woken and dropped outside it.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::prim::{Arc, Condvar, Mutex, lock, wait_timeout_while};
use crate::waiters::Waiters;

/// Lets at most so many in at once, until it is closed. Clones are the same gate.
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

    /// The tasks to tell, where this was the last step.
    fn told(&mut self) -> Option<Vec<Waker>> {
        self.is_drained().then(|| self.waiters.take_all())
    }
}

/// Why nobody was let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// As many as the limit are inside; try again when one has left.
    Full {
        /// The limit.
        limit: usize,
    },
    /// The gate is closed for ever.
    Closed,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full { limit } => write!(f, "all {limit} places are taken"),
            Self::Closed => f.write_str("closed"),
        }
    }
}

impl std::error::Error for Refused {}

impl DrainGate {
    /// An open gate with room for `limit` at once.
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

    /// Enters, or says at once why not. The permit is the place: drop it to leave.
    ///
    /// # Errors
    /// [`Refused`]; nothing was queued.
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

    /// Lets nobody in any more. Calling it again changes nothing.
    pub fn close(&self) {
        let told = {
            let mut state = lock(&self.inner.state);
            state.closed = true;
            state.told()
        };
        if !mutant!("drain gate: closing an empty one says nothing") {
            self.tell(told);
        }
    }

    /// True if it is closed.
    pub fn is_closed(&self) -> bool {
        lock(&self.inner.state).closed
    }

    /// Number of those inside.
    pub fn inside(&self) -> usize {
        lock(&self.inner.state).inside
    }

    /// A future of the gate being closed and empty. It may be dropped at any time.
    pub fn drained(&self) -> Drained {
        let gate = self.clone();
        Drained { gate, key: None }
    }

    /// Blocks this thread until the gate is closed and empty, at most for `timeout`; whether it is. Not for a thread
    /// that holds a permit.
    pub fn wait_drained(&self, timeout: Duration) -> bool {
        let state = lock(&self.inner.state);
        wait_timeout_while(&self.inner.drained, state, timeout, |state| !state.is_drained()).is_drained()
    }

    fn tell(&self, told: Option<Vec<Waker>>) {
        let Some(wakers) = told else { return };
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

/// A place inside a [`DrainGate`].
#[must_use = "dropping the permit is leaving"]
#[derive(Debug)]
pub struct Permit {
    gate: DrainGate,
}

impl Drop for Permit {
    fn drop(&mut self) {
        let told = {
            let mut state = lock(&self.gate.inner.state);
            state.inside -= 1;
            state.told()
        };
        if !mutant!("drain gate: the last one out says nothing") {
            self.gate.tell(told);
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
