//! A result that is set once and delivered to all waiters, tasks and threads, early and late.
//!
//! Invariants:
//! 1. The outcome changes from none to some once, under the lock, and never again.
//! 2. A waiter checks the outcome and registers under one lock; the setter stores the outcome and takes the registered
//!    waiters under that lock. So a waiter either sees the outcome or is woken. Threads register too: without a
//!    waiting thread, the setter makes no system call.
//! 3. A setter that is dropped without a result, also by a panic, resolves to [`Lost`], so that no waiter hangs.
//! 4. A dropped future unregisters its waker.
//!
//! No deadlock: one lock, held for a few instructions; wakers, clones and drops of the value happen outside it.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::prim::{Arc, Condvar, Mutex, lock, wait_timeout_while, wait_while};
use crate::waiters::Waiters;

/// Creates a cell, and returns its setter and its waiting side.
///
/// ```
/// let (setter, completion) = pirn_sync::completion();
/// setter.set(7);
/// assert_eq!(completion.wait_blocking(), Ok(7));
/// ```
pub fn completion<T>() -> (Setter<T>, Completion<T>) {
    let cell = Arc::new(Cell {
        state: Mutex::new(State {
            outcome: None,
            waiters: Waiters::default(),
            has_threads: false,
        }),
        ready: Condvar::new(),
    });
    let setter = Setter {
        cell: Some(Arc::clone(&cell)),
    };
    (setter, Completion { cell })
}

/// Error: the setter was dropped without a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost;

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the setter was dropped without a result")
    }
}

impl std::error::Error for Lost {}

struct Cell<T> {
    state: Mutex<State<T>>,
    ready: Condvar,
}

struct State<T> {
    outcome: Option<Arc<Result<T, Lost>>>,
    waiters: Waiters,
    /// True if a thread waits, or has waited.
    has_threads: bool,
}

impl<T> Cell<T> {
    fn resolve(&self, outcome: Result<T, Lost>) {
        // Allocated before the lock; the wakers run after it (rule 2 of the crate).
        let outcome = Arc::new(outcome);
        let (wakers, has_threads) = {
            let mut state = lock(&self.state);
            state.outcome = Some(outcome);
            (state.waiters.take_all(), state.has_threads)
        };
        if mutant!("completion: sets without a word") {
            return;
        }
        if has_threads && !mutant!("completion: lets plain threads sleep") {
            self.ready.notify_all();
        }
        let woken = if mutant!("completion: wakes one task only") {
            1
        } else {
            usize::MAX
        };
        for waker in wakers.into_iter().take(woken) {
            waker.wake();
        }
    }
}

/// Sets the result. Dropping it without one resolves the cell to [`Lost`].
pub struct Setter<T> {
    /// None once the result is set.
    cell: Option<Arc<Cell<T>>>,
}

impl<T> Setter<T> {
    /// Sets the result and wakes all waiters.
    pub fn set(mut self, value: T) {
        if let Some(cell) = self.cell.take() {
            cell.resolve(Ok(value));
        }
    }
}

impl<T> Drop for Setter<T> {
    fn drop(&mut self) {
        let Some(cell) = self.cell.take() else { return };
        if mutant!("completion: a dropped setter does not wake") {
            return;
        }
        cell.resolve(Err(Lost));
    }
}

impl<T> fmt::Debug for Setter<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Setter").finish_non_exhaustive()
    }
}

/// Waits for the result. Clones share the cell.
pub struct Completion<T> {
    cell: Arc<Cell<T>>,
}

impl<T> Clone for Completion<T> {
    fn clone(&self) -> Self {
        let cell = Arc::clone(&self.cell);
        Self { cell }
    }
}

impl<T: Clone> Completion<T> {
    /// Returns the result, if it is set.
    pub fn peek(&self) -> Option<Result<T, Lost>> {
        let outcome = lock(&self.cell.state).outcome.clone();
        outcome.map(|outcome| (*outcome).clone())
    }

    /// Returns a future of the result. Cancel safe: dropping it has no other effect.
    pub fn wait(&self) -> Wait<T> {
        let completion = self.clone();
        Wait { completion, key: None }
    }

    /// Blocks until the result is set. Must not be called on a thread that the result depends on.
    pub fn wait_blocking(&self) -> Result<T, Lost> {
        loop {
            let mut state = lock(&self.cell.state);
            state.has_threads = true;
            let state = wait_while(&self.cell.ready, state, |state| state.outcome.is_none());
            let outcome = state.outcome.clone();
            drop(state);
            if let Some(outcome) = outcome {
                return (*outcome).clone();
            }
        }
    }

    /// Blocks until the result is set, or the timeout has passed.
    pub fn wait_timeout(&self, timeout: Duration) -> Option<Result<T, Lost>> {
        let mut state = lock(&self.cell.state);
        state.has_threads = true;
        let state = wait_timeout_while(&self.cell.ready, state, timeout, |state| state.outcome.is_none());
        let outcome = state.outcome.clone();
        drop(state);
        outcome.map(|outcome| (*outcome).clone())
    }
}

impl<T> fmt::Debug for Completion<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Completion").finish_non_exhaustive()
    }
}

/// Future of [`Completion::wait`].
#[must_use = "a future does nothing unless it is awaited"]
pub struct Wait<T> {
    completion: Completion<T>,
    key: Option<u64>,
}

impl<T: Clone> Future for Wait<T> {
    type Output = Result<T, Lost>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        // Cloned before the lock, because a waker's clone is foreign code (rule 2 of the crate).
        let waker = context.waker().clone();
        let mut state = lock(&this.completion.cell.state);
        if let Some(outcome) = state.outcome.clone() {
            drop(state);
            return Poll::Ready((*outcome).clone());
        }
        if mutant!("completion: looks, then registers") {
            drop(state);
            state = lock(&this.completion.cell.state);
        }
        let displaced = state.waiters.put(&mut this.key, waker);
        drop(state);
        drop(displaced);
        Poll::Pending
    }
}

impl<T> Drop for Wait<T> {
    fn drop(&mut self) {
        let Some(key) = self.key else { return };
        let displaced = lock(&self.completion.cell.state).waiters.take(key);
        drop(displaced);
    }
}
