//! The large results of a run.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Bytes of large results that a run keeps where its workflow says nothing; of more, those go that were kept longest ago.
pub const DEFAULT_KEPT_BYTES: usize = 64 << 20;

/// The digits of an id: the first of the result's SHA-256, all of them where another result begins with the same.
const DIGITS: usize = 16;

/// The large results of a run, by id. Each is there once, however often tools give it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LargeResults {
    texts: BTreeMap<Arc<str>, Kept>,
    /// Ids in the order in which they were last kept.
    order: BTreeMap<u64, Arc<str>>,
    next: u64,
    bytes: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Kept {
    text: Arc<str>,
    place: u64,
}

/// A result that is no longer kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DroppedResult {
    /// Its id.
    pub id: Arc<str>,
    /// Its length.
    pub bytes: usize,
}

impl LargeResults {
    /// Keeps a result under the id that [`LargeResults::id_of`] gives it. Those that go for it, while there are more than
    /// `max_bytes`: the oldest ones.
    pub fn keep(&mut self, id: &Arc<str>, text: &str, max_bytes: usize) -> Vec<DroppedResult> {
        let place = self.next;
        self.next += 1;
        self.order.insert(place, Arc::clone(id));
        if let Some(kept) = self.texts.get_mut(id) {
            self.order.remove(&std::mem::replace(&mut kept.place, place));
            return Vec::new();
        }
        self.bytes += text.len();
        let text = Arc::from(text);
        self.texts.insert(Arc::clone(id), Kept { text, place });
        let mut dropped = Vec::new();
        while self.bytes > max_bytes {
            let Some((_, id)) = self.order.pop_first() else { break };
            let bytes = self.texts.remove(&id).map_or(0, |kept| kept.text.len());
            self.bytes -= bytes;
            dropped.push(DroppedResult { id, bytes });
        }
        dropped
    }

    /// Bytes of all of them.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The result of this id.
    pub fn get(&self, id: &str) -> Option<&Arc<str>> {
        self.texts.get(id).map(|kept| &kept.text)
    }

    /// The ids, those that were kept last first.
    pub fn ids(&self) -> impl Iterator<Item = &Arc<str>> {
        self.order.values().rev()
    }

    /// The id of a result.
    pub fn id_of(&self, text: &str) -> Arc<str> {
        use std::fmt::Write;
        let mut digits = String::new();
        for byte in Sha256::digest(text.as_bytes()) {
            // Writing to a String does not fail.
            let _ = write!(digits, "{byte:02x}");
        }
        let short = &digits[..DIGITS];
        match self.get(short) {
            Some(kept) if **kept != *text => digits.into(),
            Some(_) | None => short.into(),
        }
    }
}
