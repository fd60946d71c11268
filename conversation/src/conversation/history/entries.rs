//! Messages of a conversation in order, with running token totals: a shared part, and a private part of each holder.
//!
//! 1. A clone takes constant time: it copies at most 16 entries and increments a reference count.
//! 2. New entries are added to the private part, which is moved to the shared one when it is full. A branch that adds a message
//!    neither
//!    copies nor reads its parent's history.
//! 3. Nothing is ever removed.

use std::sync::Arc;

use imbl::Vector;
use pirn_definition::message::Message;

use crate::conversation::CountedMessage;

/// Maximum length of the private part. Small, because a clone copies it.
const OWN: usize = 16;

/// A message with its tokens, and the sum of the tokens up to and including it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Entry {
    pub(super) counted: CountedMessage,
    running_total: u64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Entries {
    /// Shared part; `None` if it is empty.
    shared: Option<Arc<Vector<Entry>>>,
    /// Private part, which follows the shared one.
    own: Vec<Entry>,
    /// Sum of the tokens.
    total: u64,
    /// Memory in bytes. A message with other owners at the time of its append is not counted: its first owner counted it.
    memory: u64,
    /// For a snapshot: the entries shared with its origin, and their bytes, which the origin counts.
    base: Option<(Arc<Vector<Entry>>, u64)>,
}

/// Bytes of an entry without its message.
const ENTRY: u64 = 64;

impl Entries {
    pub(super) fn len(&self) -> usize {
        self.shared_len() + self.own.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn get(&self, index: usize) -> Option<&Entry> {
        match index.checked_sub(self.shared_len()) {
            // The subtraction succeeds only at or behind the end of the shared part.
            Some(own) => self.own.get(own),
            None => self.shared.as_ref()?.get(index),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.shared.iter().flat_map(|shared| shared.iter()).chain(&self.own)
    }

    pub(super) fn push(&mut self, counted: CountedMessage) {
        // The bound on the copy that a clone makes.
        if self.own.len() == OWN {
            self.share();
        }
        // Counts may come from a host's tokenizer: a huge one must not wrap around.
        self.total = self.total.saturating_add(counted.tokens);
        self.memory += ENTRY;
        // A message of a session, a branch or a replaced batch is counted by the conversation that had it first.
        if Arc::strong_count(&counted.message) == 1 {
            self.memory += counted.message.memory();
        }
        self.own.push(Entry {
            counted,
            running_total: self.total,
        });
    }

    /// Returns the first `length` entries without copying shared ones. The caller sets the memory.
    pub(super) fn first(&self, length: usize) -> Self {
        if length >= self.len() {
            // The whole log is a clone in constant time.
            return self.clone();
        }
        // 0 if the prefix ends in the shared part.
        let own = length.saturating_sub(self.shared_len());
        let shared = self.shared.as_ref().map(|shared| {
            if length < shared.len() {
                // The tree nodes stay shared: only the path to the cut is copied.
                Arc::new(shared.take(length))
            } else {
                Arc::clone(shared)
            }
        });
        Self {
            shared,
            // At most 16 entries.
            own: self.own[..own].to_vec(),
            total: self.total_of(length),
            memory: 0,
            base: None,
        }
    }

    /// Moves all entries to the shared part and forgets the origin.
    pub(super) fn detach(&mut self) {
        self.share();
        self.base = None;
    }

    /// Returns the tokens of the first `length` entries.
    pub(super) fn total_of(&self, length: usize) -> u64 {
        if length >= self.len() {
            return self.total;
        }
        // The total up to an index is stored with the entry before it.
        let last = length.checked_sub(1).and_then(|last| self.get(last));
        last.map_or(0, |entry| entry.running_total)
    }

    /// Moves all entries to the shared part, so that a clone copies none. The cost is proportional to the private part.
    pub(super) fn share(&mut self) {
        // Without private entries the shared part must stay at its address: see `own_memory`.
        if !self.own.is_empty() {
            // Copies the root only if a snapshot shares it. The tree nodes stay shared.
            let shared = Arc::make_mut(self.shared.get_or_insert_default());
            // Drained, so that the list keeps its allocation.
            for entry in self.own.drain(..) {
                shared.push_back(entry);
            }
        }
    }

    /// Returns a copy that shares the tree nodes but has a separate root. [`Self::share`] moves a root with other holders to a new
    /// address, and addresses identify the owner of memory. With a shared root the measured memory would depend on how long the
    /// copy is held.
    pub(in crate::conversation) fn apart(&self) -> Self {
        Self {
            shared: self.shared.as_deref().map(|shared| Arc::new(shared.clone())),
            own: self.own.clone(),
            total: self.total,
            memory: self.memory,
            base: None,
        }
    }

    /// Returns the memory of entries for these messages, if they have no other owner.
    pub(super) fn memory_of(messages: &[Arc<Message>]) -> u64 {
        messages.iter().map(|message| ENTRY + message.memory()).sum()
    }

    /// Returns the memory of all entries in bytes.
    pub(super) fn memory(&self) -> u64 {
        self.memory
    }

    /// Sets the memory, if another process has measured it.
    pub(super) fn set_memory(&mut self, bytes: u64) {
        self.memory = bytes;
    }

    /// Returns a snapshot whose entries so far are counted by this holder.
    pub(super) fn snapshot(&mut self) -> Self {
        // Before the clone: all branches then share one allocation, and each starts without private entries.
        self.share();
        // A strong reference: the address must not be reused while a snapshot names it.
        let base = self.shared.as_ref().map(|shared| (Arc::clone(shared), self.memory));
        Self { base, ..self.clone() }
    }

    /// Returns the private bytes, the address and bytes of the part shared with the origin, and the address by which snapshots
    /// identify this holder as their origin.
    pub(super) fn own_memory(&self) -> (u64, Option<(usize, u64)>, Option<usize>) {
        let address = |shared: &Arc<Vector<Entry>>| Arc::as_ptr(shared) as usize;
        let base = self.base.as_ref().map(|(base, bytes)| (address(base), *bytes));
        // The memory is set from outside for a stored conversation and may then be less than the base's.
        let own = self.memory.saturating_sub(base.map_or(0, |(_, bytes)| bytes));
        (own, base, self.shared.as_ref().map(address))
    }

    fn shared_len(&self) -> usize {
        self.shared.as_ref().map_or(0, |shared| shared.len())
    }
}

/// Compares the entries only, not how they are shared.
impl PartialEq for Entries {
    fn eq(&self, other: &Self) -> bool {
        // The lengths first, in constant time.
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}

#[cfg(test)]
mod tests {
    use pirn_definition::message::Role;

    use super::*;
    use proptest::prelude::*;

    fn counted(tokens: u64) -> CountedMessage {
        CountedMessage {
            message: Arc::new(Message::new(Role::User, tokens.to_string())),
            tokens,
        }
    }

    fn tokens(entries: &Entries) -> Vec<u64> {
        entries.iter().map(|entry| entry.counted.tokens).collect()
    }

    proptest! {
        /// Against plain lists: snapshots of snapshots, each appended to, shared or unchanged.
        #[test]
        fn an_entry_appended_to_a_clone_is_in_no_other_clone(steps in prop::collection::vec((0..3_u8, 0..6_usize, 0..9_u64), 0..200)) {
            let mut held = vec![(Entries::default(), Vec::new())];
            for (what, at, cost) in steps {
                let at = at % held.len();
                match what {
                    0 => {
                        let copy = held[at].clone();
                        held.push(copy);
                    }
                    1 => held[at].0.share(),
                    _ => for n in 0..5 {
                        held[at].0.push(counted(cost + n));
                        held[at].1.push(cost + n);
                    }
                }
                for (entries, plain) in &held {
                    prop_assert_eq!(&tokens(entries), plain);
                    prop_assert_eq!(entries.len(), plain.len());
                    prop_assert_eq!(entries.is_empty(), plain.is_empty());
                    let length = at.min(plain.len());
                    prop_assert_eq!(tokens(&entries.first(length)), &plain[..length]);
                    prop_assert_eq!(entries.first(length).total_of(length), entries.total_of(length));
                    prop_assert_eq!(entries.total_of(length), plain[..length].iter().sum::<u64>());
                    prop_assert_eq!(entries.total_of(plain.len()), plain.iter().sum::<u64>());
                    for (index, cost) in plain.iter().enumerate() {
                        prop_assert_eq!(entries.get(index).map(|entry| entry.counted.tokens), Some(*cost));
                    }
                    prop_assert!(entries.get(plain.len()).is_none());
                }
            }
        }
    }

    #[test]
    fn equality_does_not_depend_on_sharing() {
        let mut own = Entries::default();
        (0..3).for_each(|n| own.push(counted(n)));
        let mut shared = own.clone();
        shared.share();
        assert_eq!(own, shared);
        shared.push(counted(3));
        assert_ne!(own, shared);
    }
}
