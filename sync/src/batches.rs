//! Batching of items that many threads send as messages, with the order of single messages.
//!
//! The first item is sent as a batch. Items that are put before the batch is received are added to it, without a message.
//!
//! Invariants:
//! 1. An item is received once, with its batch, or dropped with it: a dropped batch retains no items.
//! 2. A batch is open only while it is the last message of the queue, to the knowledge of the putting threads: from the end of its
//!    sending until it is received, full or sealed. A thread that sends another message to the queue must call
//!    [`Batches::seal`] afterwards. So no item overtakes an earlier message of its thread.
//! 3. If batches are sent concurrently, their order in the queue is unknown. Neither of them is opened.
//!
//! No deadlock: one lock, held for a few instructions; sending and dropping happen outside of it.

use std::fmt;

use crate::prim::{Arc, Mutex, lock};

/// Collects items into batches.
///
/// ```
/// let batches = pirn_sync::Batches::new(100);
/// let mut sent = Vec::new();
/// for item in 0..3 {
///     batches.put(item, |batch| sent.push(batch));
/// }
/// assert_eq!(sent.len(), 1);
/// assert_eq!(sent.remove(0).take(), [0, 1, 2]);
/// ```
pub struct Batches<T> {
    shared: Arc<Mutex<State<T>>>,
    most: usize,
}

struct State<T> {
    /// Number of the newest batch.
    last: u64,
    /// True if the newest batch accepts items.
    is_open: bool,
    being_sent: usize,
    /// Another message was sent while a batch is being sent, so that batch may not be the last message.
    is_crossed: bool,
    /// Batches that were not received yet, newest last.
    untaken: Vec<(u64, Vec<T>)>,
    /// Number of items in the last received batch: capacity of the next one.
    usual: usize,
}

impl<T> Batches<T> {
    /// Creates a collector for batches of at most `most` items.
    pub fn new(most: usize) -> Self {
        let state = State {
            last: 0,
            is_open: false,
            being_sent: 0,
            is_crossed: false,
            untaken: Vec::new(),
            usual: 1,
        };
        Self {
            shared: Arc::new(Mutex::new(state)),
            most,
        }
    }

    /// Adds an item to the open batch. If there is none, creates a batch and sends it with `send`.
    pub fn put(&self, item: T, send: impl FnOnce(Batch<T>)) {
        let number = {
            let mut state = lock(&self.shared);
            if state.is_open
                && let Some((_, items)) = state.untaken.last_mut()
            {
                items.push(item);
                state.is_open = items.len() < self.most;
                return;
            }
            state.last += 1;
            state.is_crossed |= state.being_sent > 0;
            state.being_sent += 1;
            let number = state.last;
            let mut items = Vec::with_capacity(state.usual.max(1));
            items.push(item);
            state.untaken.push((number, items));
            if mutant!("batches: open before it is sent") {
                state.is_open = true;
            }
            number
        };
        let end = SendGuard { batches: self, number };
        send(Batch {
            shared: Arc::clone(&self.shared),
            number,
        });
        // The batch opens only here, when it is in the queue: a thread that adds an item and then sends a message must have
        // the item ahead of the message.
        drop(end);
    }

    /// Closes the open batch. Must be called after another message was sent to the queue of the batches.
    pub fn seal(&self) {
        let mut state = lock(&self.shared);
        state.is_open = false;
        state.is_crossed = state.being_sent > 0 && !mutant!("batches: a batch in flight is not sealed");
    }
}

impl<T> fmt::Debug for Batches<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let untaken = lock(&self.shared).untaken.len();
        f.debug_struct("Batches")
            .field("untaken", &untaken)
            .finish_non_exhaustive()
    }
}

/// Guard that marks the end of the sending, also if `send` panics.
struct SendGuard<'a, T> {
    batches: &'a Batches<T>,
    number: u64,
}

impl<T> Drop for SendGuard<'_, T> {
    fn drop(&mut self) {
        let mut state = lock(&self.batches.shared);
        state.being_sent -= 1;
        let is_last = !state.is_crossed || mutant!("batches: opens what another one may follow");
        if is_last && state.last == self.number {
            let newest = state.untaken.last().filter(|(number, _)| *number == self.number);
            state.is_open = newest.is_some_and(|(_, items)| items.len() < self.batches.most);
        }
        if state.being_sent == 0 {
            state.is_crossed = false;
        }
    }
}

/// Sent batch. Dropping it drops its items.
#[must_use = "a batch that is dropped drops its items"]
pub struct Batch<T> {
    shared: Arc<Mutex<State<T>>>,
    number: u64,
}

impl<T> Batch<T> {
    /// Closes the batch and returns its items in the order in which they were put.
    pub fn take(self) -> Vec<T> {
        self.empty()
    }

    fn empty(&self) -> Vec<T> {
        let mut state = lock(&self.shared);
        if state.last == self.number {
            state.is_open = false;
        }
        let place = state.untaken.iter().position(|(number, _)| *number == self.number);
        let items = place.map_or_else(Vec::new, |place| state.untaken.remove(place).1);
        if place.is_some() {
            state.usual = items.len();
        }
        items
    }
}

impl<T> Drop for Batch<T> {
    fn drop(&mut self) {
        drop(self.empty());
    }
}

impl<T> fmt::Debug for Batch<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch")
            .field("number", &self.number)
            .finish_non_exhaustive()
    }
}
