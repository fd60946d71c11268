//! Store of a run's large tool results.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Default capacity in bytes. Above it, the least recently stored results are dropped.
pub const DEFAULT_KEPT_BYTES: usize = 64 << 20;

/// Number of hex digits in an id: a prefix of the result's SHA-256. All digits if two results share the prefix.
// 64 bits: short enough for a model to repeat, and collisions are handled in `id_of`.
const DIGITS: usize = 16;

/// Large results of a run by id. Equal results are stored once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LargeResults {
    texts: BTreeMap<Arc<str>, StoredResult>,
    /// Ids by time of the last store.
    // Numbers instead of times, so that a replay drops the same results.
    order: BTreeMap<u64, Arc<str>>,
    next: u64,
    bytes: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct StoredResult {
    text: Arc<str>,
    place: u64,
}

/// A result that was dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DroppedResult {
    /// Id of the result.
    pub id: Arc<str>,
    /// Length in bytes.
    pub bytes: usize,
}

impl LargeResults {
    /// Stores a result under the id from [`LargeResults::id_of`]. Returns the results dropped for it, least recently stored first,
    /// while the total exceeds `max_bytes`.
    pub fn keep(&mut self, id: &Arc<str>, text: &str, max_bytes: usize) -> Vec<DroppedResult> {
        let place = self.next;
        self.next += 1;
        self.order.insert(place, Arc::clone(id));
        if let Some(kept) = self.texts.get_mut(id) {
            // Stored again: the result moves to the end of the order instead of being stored twice.
            self.order.remove(&std::mem::replace(&mut kept.place, place));
            return Vec::new();
        }
        self.bytes += text.len();
        let text = Arc::from(text);
        self.texts.insert(Arc::clone(id), StoredResult { text, place });
        let mut dropped = Vec::new();
        // After the insertion, so that the new result itself is dropped last.
        while self.bytes > max_bytes {
            // The new result alone fits: `shown_result` does not store larger ones.
            let Some((_, id)) = self.order.pop_first() else { break };
            let bytes = self.texts.remove(&id).map_or(0, |kept| kept.text.len());
            self.bytes -= bytes;
            dropped.push(DroppedResult { id, bytes });
        }
        dropped
    }

    /// Returns the total size in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the result with this id.
    pub fn get(&self, id: &str) -> Option<&Arc<str>> {
        self.texts.get(id).map(|kept| &kept.text)
    }

    /// Returns the ids, most recently stored first.
    pub fn ids(&self) -> impl Iterator<Item = &Arc<str>> {
        self.order.values().rev()
    }

    /// Returns the id of a result.
    pub fn id_of(&self, text: &str) -> Arc<str> {
        use std::fmt::Write;
        let mut digits = String::new();
        for byte in Sha256::digest(text.as_bytes()) {
            // Cannot fail: writing to a `String` is infallible.
            let _ = write!(digits, "{byte:02x}");
        }
        let short = &digits[..DIGITS];
        match self.get(short) {
            // Another text has this prefix. Messages may contain its id, so that the new text gets all digits.
            Some(kept) if **kept != *text => digits.into(),
            Some(_) | None => short.into(),
        }
    }
}
