//! Wakers of the tasks that wait for one event. Used under a primitive's lock, so it never wakes or drops a waker: wakers
//! are passed in cloned, and returned for the caller to wake or drop after unlocking.

use std::task::Waker;

/// Wakers by the key of their future. Nearly always one: a list costs one small allocation.
#[derive(Default)]
pub(crate) struct Waiters {
    /// In ascending order of keys.
    wakers: Vec<(u64, Waker)>,
    next: u64,
}

impl Waiters {
    /// Stores a future's waker, under its key or a new one. Returns the replaced waker, to be dropped after unlocking.
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

    /// Removes a future's waker. Returns it, to be dropped after unlocking.
    #[must_use]
    pub(crate) fn take(&mut self, key: u64) -> Option<Waker> {
        let place = self.place(key).ok()?;
        Some(self.wakers.remove(place).1)
    }

    /// Removes all wakers, oldest first. Returns them, to be woken after unlocking.
    #[must_use]
    pub(crate) fn take_all(&mut self) -> Vec<Waker> {
        std::mem::take(&mut self.wakers)
            .into_iter()
            .map(|(_, waker)| waker)
            .collect()
    }

    /// Returns the index of a key's waker, or the index at which it would be inserted.
    fn place(&self, key: u64) -> Result<usize, usize> {
        self.wakers.binary_search_by_key(&key, |(key, _)| *key)
    }
}
