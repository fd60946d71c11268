//! What is made once for a size and used in every round.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// By size; a clone shares them.
#[derive(Clone)]
pub(super) struct Kept<T>(Arc<Mutex<BTreeMap<usize, T>>>);

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T: Clone> Kept<T> {
    /// The one of this size, made where it is asked for first: before the clock starts.
    pub(super) fn of(&self, size: usize, make: impl FnOnce(usize) -> T) -> T {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.entry(size).or_insert_with(|| make(size)).clone()
    }
}
