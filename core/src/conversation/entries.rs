//! A conversation's messages in order, with what they cost: what snapshots share, and what only their holder has.
//!
//! 1. A clone costs the same for 10 messages and for 1,000,000, and counts up one holder.
//! 2. What is added stays beside what is shared until there is a little more of it: a branch that adds a message neither
//!    copies a part of its parent's history nor looks at it.
//! 3. Nothing is ever removed.

use std::sync::Arc;

use imbl::Vector;

use super::Counted;
use crate::message::Message;

/// Messages that a holder has of its own before it shares them: a clone copies them.
const OWN: usize = 16;

/// A message, its cost, and the cost of all up to and including it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Entry {
    pub(super) counted: Counted,
    running_total: u64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Entries {
    /// None: nothing was shared yet.
    shared: Option<Arc<Vector<Entry>>>,
    /// The entries after it.
    own: Vec<Entry>,
    /// Tokens of all of them.
    total: u64,
    /// Bytes of memory that they take; a message that was held by others when it was added counts where it was new.
    memory: u64,
    /// The entries of which it is a snapshot, and the bytes of those: they are its origin's.
    base: Option<(Arc<Vector<Entry>>, u64)>,
}

/// Bytes of an entry, its message aside.
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
            Some(own) => self.own.get(own),
            None => self.shared.as_ref()?.get(index),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.shared.iter().flat_map(|shared| shared.iter()).chain(&self.own)
    }

    pub(super) fn push(&mut self, counted: Counted) {
        if self.own.len() == OWN {
            self.share();
        }
        self.total = self.total.saturating_add(counted.tokens);
        self.memory += ENTRY;
        if Arc::strong_count(&counted.message) == 1 {
            self.memory += counted.message.memory();
        }
        self.own.push(Entry {
            counted,
            running_total: self.total,
        });
    }

    /// The first `length`, with nothing copied that is shared. Their memory is for the caller to say.
    pub(super) fn first(&self, length: usize) -> Self {
        if length >= self.len() {
            return self.clone();
        }
        let own = length.saturating_sub(self.shared_len());
        let shared = self.shared.as_ref().map(|shared| {
            if length < shared.len() {
                Arc::new(shared.take(length))
            } else {
                Arc::clone(shared)
            }
        });
        Self {
            shared,
            own: self.own[..own].to_vec(),
            total: self.total_of(length),
            memory: 0,
            base: None,
        }
    }

    /// Shares all, as a holder's that has them from nobody.
    pub(super) fn detach(&mut self) {
        self.share();
        self.base = None;
    }

    /// Tokens of the first `length`.
    pub(super) fn total_of(&self, length: usize) -> u64 {
        if length >= self.len() {
            return self.total;
        }
        let last = length.checked_sub(1).and_then(|last| self.get(last));
        last.map_or(0, |entry| entry.running_total)
    }

    /// Shares all, so that a clone copies none. Costs what was added since the last time.
    pub(super) fn share(&mut self) {
        if !self.own.is_empty() {
            let shared = Arc::make_mut(self.shared.get_or_insert_default());
            for entry in self.own.drain(..) {
                shared.push_back(entry);
            }
        }
    }

    /// The same entries with shared nodes and no shared holder: where these are kept, and so whose memory they are, does
    /// not depend on how long the copy is held.
    pub(super) fn apart(&self) -> Self {
        Self {
            shared: self.shared.as_deref().map(|shared| Arc::new(shared.clone())),
            own: self.own.clone(),
            total: self.total,
            memory: self.memory,
            base: None,
        }
    }

    /// Bytes of memory that entries of these messages take, where nobody else holds one.
    pub(super) fn memory_of(messages: &[Arc<Message>]) -> u64 {
        messages.iter().map(|message| ENTRY + message.memory()).sum()
    }

    /// Bytes of memory that all entries take.
    pub(super) fn memory(&self) -> u64 {
        self.memory
    }

    /// Sets that, where it is known from another process.
    pub(super) fn set_memory(&mut self, bytes: u64) {
        self.memory = bytes;
    }

    /// Shares all, for a holder whose entries so far are this one's.
    pub(super) fn snapshot(&mut self) -> Self {
        self.share();
        let base = self.shared.as_ref().map(|shared| (Arc::clone(shared), self.memory));
        Self { base, ..self.clone() }
    }

    /// Bytes that are its own, and the address and the bytes of what it shares with its origin; the address of what may be
    /// the base of others.
    pub(super) fn own_memory(&self) -> (u64, Option<(usize, u64)>, Option<usize>) {
        let address = |shared: &Arc<Vector<Entry>>| Arc::as_ptr(shared) as usize;
        let base = self.base.as_ref().map(|(base, bytes)| (address(base), *bytes));
        let own = self.memory.saturating_sub(base.map_or(0, |(_, bytes)| bytes));
        (own, base, self.shared.as_ref().map(address))
    }

    /// True if the two share all they have. Compares no message.
    pub(super) fn ptr_eq(&self, other: &Self) -> bool {
        let are_the_same = match (&self.shared, &other.shared) {
            (Some(own), Some(other)) => Arc::ptr_eq(own, other),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        are_the_same && self.own.is_empty() && other.own.is_empty()
    }

    fn shared_len(&self) -> usize {
        self.shared.as_ref().map_or(0, |shared| shared.len())
    }
}

/// Compares the entries alone: which of them are shared does not matter.
impl PartialEq for Entries {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Role;
    use proptest::prelude::*;

    fn counted(tokens: u64) -> Counted {
        Counted {
            message: Arc::new(Message::new(Role::User, tokens.to_string())),
            tokens,
        }
    }

    fn tokens(entries: &Entries) -> Vec<u64> {
        entries.iter().map(|entry| entry.counted.tokens).collect()
    }

    proptest! {
        /// Against plain lists: snapshots of snapshots, each added to, shared or left alone.
        #[test]
        fn what_is_added_to_a_clone_is_in_no_other(steps in prop::collection::vec((0..3_u8, 0..6_usize, 0..9_u64), 0..200)) {
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
    fn where_messages_are_kept_makes_no_difference() {
        let mut own = Entries::default();
        (0..3).for_each(|n| own.push(counted(n)));
        let mut shared = own.clone();
        shared.share();
        assert_eq!(own, shared);
        assert!(!own.ptr_eq(&shared));
        assert!(shared.ptr_eq(&shared.clone()));
        shared.push(counted(3));
        assert_ne!(own, shared);
    }
}
