//! One holder per key; everybody else is told that it is in flight.
//!
//! Invariants:
//! 1. At most one [`Flight`] per key exists at any time: looking and entering are one step under the lock.
//! 2. Dropping the flight, also by a panic, frees the key, and no other.
//!
//! No deadlock: one lock, and nobody waits for a key. Only the key's own `Ord` runs in it; keys are dropped outside.

use std::collections::BTreeSet;
use std::fmt;

use crate::prim::{Arc, Mutex, lock};

/// The keys in flight. Clones are the same gate; `SingleFlight<()>` is a gate for one.
pub struct SingleFlight<K: Ord> {
    keys: Arc<Mutex<BTreeSet<K>>>,
}

/// Somebody else holds the key; here it is back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InFlight<K>(pub K);

impl<K: fmt::Debug> fmt::Display for InFlight<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is in flight already", self.0)
    }
}

impl<K: fmt::Debug> std::error::Error for InFlight<K> {}

impl<K: Ord + Clone> SingleFlight<K> {
    /// A gate with nothing in flight.
    pub fn new() -> Self {
        let keys = Arc::new(Mutex::new(BTreeSet::new()));
        Self { keys }
    }

    /// Takes the key, or says at once that somebody has it.
    ///
    /// # Errors
    /// [`InFlight`] gives the key back.
    pub fn try_begin(&self, key: K) -> Result<Flight<K>, InFlight<K>> {
        let held = key.clone();
        let mut keys = lock(&self.keys);
        if keys.contains(&key) {
            drop(keys);
            return Err(InFlight(key));
        }
        if mutant!("single flight: looks, then takes") {
            drop(keys);
            keys = lock(&self.keys);
        }
        keys.insert(held);
        drop(keys);
        let gate = self.clone();
        Ok(Flight { gate, key })
    }

    /// Whether somebody holds the key.
    pub fn is_in_flight(&self, key: &K) -> bool {
        lock(&self.keys).contains(key)
    }
}

impl<K: Ord + Clone> Default for SingleFlight<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Ord> Clone for SingleFlight<K> {
    fn clone(&self) -> Self {
        let keys = Arc::clone(&self.keys);
        Self { keys }
    }
}

impl<K: Ord> fmt::Debug for SingleFlight<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SingleFlight")
            .field("in_flight", &lock(&self.keys).len())
            .finish()
    }
}

/// The one holder of a key. Drop it to let the next one have it.
#[must_use = "dropping the flight ends it"]
pub struct Flight<K: Ord> {
    gate: SingleFlight<K>,
    key: K,
}

impl<K: Ord> Flight<K> {
    /// What is held.
    pub fn key(&self) -> &K {
        &self.key
    }
}

impl<K: Ord> Drop for Flight<K> {
    fn drop(&mut self) {
        if mutant!("single flight: the key stays taken") {
            return;
        }
        let freed = lock(&self.gate.keys).take(&self.key);
        drop(freed);
    }
}

impl<K: Ord + fmt::Debug> fmt::Debug for Flight<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Flight").field(&self.key).finish()
    }
}
