//! The wakers of the tasks that wait for one thing. Lives inside a primitive's lock and runs nothing foreign there:
//! wakers come in cloned, and go out to be woken or dropped by the caller after unlocking.

use std::task::Waker;

/// Wakers by the key of the future they belong to. Nearly always one: a list costs it one small allocation.
#[derive(Default)]
pub(crate) struct Waiters {
    /// By ascending keys.
    wakers: Vec<(u64, Waker)>,
    next: u64,
}

impl Waiters {
    /// Puts a future's waker in, under its key or a new one. What it displaces is for the caller to drop, unlocked.
    #[must_use]
    pub(crate) fn put(&mut self, key: &mut Option<u64>, waker: Waker) -> Option<Waker> {
        let Some(key) = *key else {
            self.next += 1;
            *key = Some(self.next);
            self.wakers.push((self.next, waker));
            return None;
        };
        match self.place(key) {
            Ok(place) => Some(std::mem::replace(&mut self.wakers[place].1, waker)),
            Err(place) => {
                self.wakers.insert(place, (key, waker));
                None
            }
        }
    }

    /// Takes a future's waker out; for the caller to drop, unlocked.
    #[must_use]
    pub(crate) fn take(&mut self, key: u64) -> Option<Waker> {
        let place = self.place(key).ok()?;
        Some(self.wakers.remove(place).1)
    }

    /// Takes all out, oldest first; for the caller to wake, unlocked.
    #[must_use]
    pub(crate) fn take_all(&mut self) -> Vec<Waker> {
        std::mem::take(&mut self.wakers)
            .into_iter()
            .map(|(_, waker)| waker)
            .collect()
    }

    /// The place of a key's waker, or the one that it would have.
    fn place(&self, key: u64) -> Result<usize, usize> {
        self.wakers.binary_search_by_key(&key, |(key, _)| *key)
    }
}
