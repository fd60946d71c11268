//! Items that many threads put into few messages, each item as if it were a message of its own.
//!
//! Whoever puts the first item sends the batch; items that come before it is taken join it without a message.
//!
//! Invariants:
//! 1. An item is handed out once, by its batch, or dropped with it: a batch that nobody takes keeps nothing.
//! 2. A batch takes items only while nothing was sent after it, as far as those who put know: it is open from the moment
//!    when it has been sent until it is taken, full or sealed. Whoever sends something else to the same place seals
//!    afterwards. So nothing that a thread puts overtakes what that thread sent before.
//! 3. Of batches that are sent at the same moment nobody knows which is last. None of them is opened.
//!
//! No deadlock: one lock, held for a few instructions; sending and dropping happen outside of it.

use std::fmt;

use crate::prim::{Arc, Mutex, lock};

/// Gathers items into batches.
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
    /// The newest batch's number.
    last: u64,
    /// True if the newest one takes more.
    is_open: bool,
    being_sent: usize,
    /// Something else was sent meanwhile: what is being sent now may not be the last.
    is_crossed: bool,
    /// The newest is the last.
    untaken: Vec<(u64, Vec<T>)>,
    /// Number of items in the batch that was taken last: the next one has room for as many from the start.
    usual: usize,
}

impl<T> Batches<T> {
    /// Batches of at most so many items.
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

    /// Puts an item into the open batch; where there is none, into a new one that `send` sends.
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
        let end = BeingSent { batches: self, number };
        send(Batch {
            shared: Arc::clone(&self.shared),
            number,
        });
        drop(end);
    }

    /// The open batch takes no more. To be called after something else was sent to where the batches go.
    pub fn seal(&self) {
        let mut state = lock(&self.shared);
        state.is_open = false;
        state.is_crossed = state.being_sent > 0 && !mutant!("batches: what is being sent is not sealed");
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

/// Says when a batch has been sent, also where sending panics.
struct BeingSent<'a, T> {
    batches: &'a Batches<T>,
    number: u64,
}

impl<T> Drop for BeingSent<'_, T> {
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

/// A batch on its way. Dropping it drops its items.
#[must_use = "a batch that is dropped drops its items"]
pub struct Batch<T> {
    shared: Arc<Mutex<State<T>>>,
    number: u64,
}

impl<T> Batch<T> {
    /// Its items, in the order in which they were put; it takes no more.
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
