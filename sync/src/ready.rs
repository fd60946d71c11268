//! What is ready for one reader: pushed from any thread, taken in order, and the reader is woken only where it rests.
//!
//! Invariants:
//! 1. What is pushed is taken once, in the order of the pushes.
//! 2. The reader looks whether there is something and leaves its waker under one lock; a push puts in and takes the waker
//!    under the same lock. So nothing is pushed past a reader that rests.
//! 3. A reader that does not rest is not woken: it looks before it rests.
//! 4. Who raises a [`WakeFlag`] that is up already adds nothing, and what it did before is seen by whoever lowers it next.
//!
//! No deadlock: one lock, held for a few instructions; wakers are woken and dropped outside it.

use std::collections::VecDeque;
use std::fmt;
use std::task::Waker;

use crate::prim::{AtomicBool, Mutex, Ordering, lock};

/// A queue with one reader, which is a task.
///
/// ```
/// # use std::collections::VecDeque;
/// let queue = pirn_sync::ReadyQueue::new();
/// queue.push(7);
/// let mut taken = VecDeque::new();
/// queue.take(&mut taken);
/// assert_eq!(taken, [7]);
/// assert!(queue.rest(std::task::Waker::noop()), "nothing is left");
/// ```
pub struct ReadyQueue<T> {
    state: Mutex<State<T>>,
}

struct State<T> {
    items: VecDeque<T>,
    resting: Option<Waker>,
}

impl<T> ReadyQueue<T> {
    /// An empty queue whose reader does not rest.
    pub fn new() -> Self {
        let state = State {
            items: VecDeque::new(),
            resting: None,
        };
        Self {
            state: Mutex::new(state),
        }
    }

    /// Puts something in, and wakes the reader where it rests.
    pub fn push(&self, item: T) {
        let resting = {
            let mut state = lock(&self.state);
            state.items.push_back(item);
            state.resting.take()
        };
        if let Some(waker) = resting
            && !mutant!("ready queue: lets the reader sleep")
        {
            waker.wake();
        }
    }

    /// The reader: takes all there is, behind what `into` holds already. From here on it does not rest.
    pub fn take(&self, into: &mut VecDeque<T>) {
        let resting = {
            let mut state = lock(&self.state);
            if into.is_empty() {
                // Each keeps the other's buffer.
                std::mem::swap(&mut state.items, into);
            } else {
                into.append(&mut state.items);
            }
            state.resting.take()
        };
        drop(resting);
    }

    /// The reader: rests until something is pushed, which wakes `waker`; false, and it does not rest, where there is
    /// something already.
    pub fn rest(&self, waker: &Waker) -> bool {
        let waker = waker.clone();
        let mut state = lock(&self.state);
        if !state.items.is_empty() {
            drop(state);
            return false;
        }
        if mutant!("ready queue: looks, then rests") {
            drop(state);
            state = lock(&self.state);
        }
        let before = state.resting.replace(waker);
        drop(state);
        drop(before);
        true
    }
}

impl<T> Default for ReadyQueue<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> fmt::Debug for ReadyQueue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadyQueue").finish_non_exhaustive()
    }
}

/// Whether something is in a [`ReadyQueue`] already, so that it is there once however often it is woken.
#[derive(Debug)]
pub struct WakeFlag {
    is_up: AtomicBool,
}

impl WakeFlag {
    /// A flag that is up, or down.
    pub fn new(is_up: bool) -> Self {
        Self {
            is_up: AtomicBool::new(is_up),
        }
    }

    /// Raises it; whether it was down, so that the caller is the one to push.
    pub fn raise(&self) -> bool {
        !self.is_up.swap(true, Ordering::AcqRel)
    }

    /// Lowers it, before what it stands for is looked at.
    pub fn lower(&self) {
        if mutant!("wake flag: lowers without looking") {
            self.is_up.store(false, Ordering::Release);
        } else {
            // Not only a store: what the last to raise it did before must be seen from here on.
            self.is_up.swap(false, Ordering::AcqRel);
        }
    }
}
