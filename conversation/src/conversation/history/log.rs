//! A conversation: an append-only log, the visible part of it, and a version.
//!
//! Invariants:
//! 1. Nothing is removed from the log. A batch hides messages, a rollback sets them aside.
//! 2. Every change increments the version by one.
//! 3. A clone is a snapshot, in constant time: see [`Entries`].
//! 4. The tokens of a message are counted once, before it is added. Sums are differences of running totals.

use std::ops::Range;
use std::sync::{Arc, LazyLock};

use pirn_definition::message::Message;
use serde::{Deserialize, Serialize};

use super::entries::Entries;
use crate::conversation::{ConversationError, CountedMessage, MarkMap, Visible};

/// The history of one thread. `clone` is the O(1) snapshot that FORK gives its branches.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(try_from = "Stored", into = "Stored")]
pub struct Conversation {
    log: Entries,
    /// `None` until a second batch starts: all messages are visible.
    marks: Option<Arc<MarkMap>>,
    version: u64,
    /// Version after the last change that was not an append.
    reshaped: u64,
    /// Number of leading messages from the run's session. Unchanged by appends; a restored snapshot replaces it.
    inherited: usize,
}

impl PartialEq for Conversation {
    fn eq(&self, other: &Self) -> bool {
        self.version == other.version
            && self.reshaped == other.reshaped
            && self.mark_map() == other.mark_map()
            && self.log == other.log
    }
}

/// State of a conversation to which a later replacement refers (compare and swap).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Basis {
    /// Version in that state.
    pub version: u64,
    /// Length of the complete history in that state.
    pub length: usize,
}

impl Conversation {
    /// Creates an empty conversation.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a conversation with these messages, all visible.
    pub fn from_messages(messages: impl IntoIterator<Item = CountedMessage>) -> Self {
        let mut conversation = Self::new();
        conversation.extend(messages);
        conversation
    }

    /// Creates a conversation from a complete history and its mark map, as in the JSON form.
    ///
    /// # Errors
    /// Returns [`ConversationError::InvalidMarkMap`] if the map does not fit the history.
    pub fn from_parts(
        messages: impl IntoIterator<Item = CountedMessage>,
        marks: MarkMap,
    ) -> Result<Self, ConversationError> {
        let mut conversation = Self::from_messages(messages);
        // Before the marks are stored: all later code uses them as indices without checks.
        marks.check(conversation.len())?;
        conversation.marks = Some(Arc::new(marks));
        Ok(conversation)
    }

    /// Returns the number of messages in the complete history, including archived ones.
    pub fn len(&self) -> usize {
        self.log.len()
    }

    /// Returns true if nothing was ever appended.
    pub fn is_empty(&self) -> bool {
        self.log.is_empty()
    }

    /// Returns the number of leading messages from the run's session.
    pub fn inherited(&self) -> usize {
        self.inherited
    }

    /// Marks the first messages as coming from a session.
    #[must_use]
    pub fn inheriting(self, inherited: usize) -> Self {
        Self {
            // A stored count is not trusted to fit the messages.
            inherited: inherited.min(self.len()),
            ..self
        }
    }

    /// Returns the first `length` messages followed by `messages`, with these marks: a conversation stored in parts. Its memory is
    /// set with
    /// [`Self::stored`].
    ///
    /// # Errors
    /// Returns [`ConversationError::InvalidMarkMap`] if the marks do not fit.
    pub fn continued(
        &self,
        length: usize,
        messages: impl IntoIterator<Item = CountedMessage>,
        marks: MarkMap,
        (version, reshaped): (u64, u64),
    ) -> Result<Self, ConversationError> {
        let mut log = self.log.first(length);
        messages.into_iter().for_each(|message| log.push(message));
        marks.check(log.len())?;
        let continued = Self {
            log,
            // Normalized to `None`, so that a continued conversation without batches allocates no marks.
            marks: Some(Arc::new(marks)).filter(|marks| **marks != MarkMap::default()),
            // The two come from the store: `only_appended_since` relies on this order.
            version: version.max(reshaped),
            reshaped,
            inherited: 0,
        };
        // The caller sets the measured memory: what was counted above depends on who else holds the messages.
        Ok(continued.stored(0))
    }

    /// Converts to the form of a stored conversation: no messages are shared with an origin, and they take `memory` bytes. The
    /// result is equal whether the conversation was read from the store or was still in memory.
    #[must_use]
    pub fn stored(mut self, memory: u64) -> Self {
        self.log.detach();
        self.log.set_memory(memory);
        self.inheriting(0)
    }

    /// Returns the version after the last change that was not an append.
    pub fn reshaped(&self) -> u64 {
        self.reshaped
    }

    /// Returns the version. Every change increments it.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Returns the marks, which determine the visible part.
    pub fn mark_map(&self) -> &MarkMap {
        // One map for all conversations without marks, so that the method can return a reference.
        static FIRST_BATCH: LazyLock<MarkMap> = LazyLock::new(MarkMap::default);
        self.marks.as_deref().unwrap_or(&FIRST_BATCH)
    }

    fn marks_mut(&mut self) -> &mut MarkMap {
        // Copies the marks if a snapshot shares them: a snapshot never changes.
        Arc::make_mut(self.marks.get_or_insert_default())
    }

    /// Returns a snapshot for many branches. It and its clones share all messages with this conversation.
    #[must_use]
    pub fn snapshot(&mut self) -> Self {
        Self {
            log: self.log.snapshot(),
            // After `snapshot`, which has moved the private entries: the discarded clone of the log copies none.
            ..self.clone()
        }
    }

    /// Returns a copy for a reader that retains it. It does not affect how this conversation's memory is attributed: see
    /// [`Entries::apart`].
    #[must_use]
    pub(in crate::conversation) fn apart(&self) -> Self {
        Self {
            log: self.log.apart(),
            marks: self.marks.clone(),
            ..*self
        }
    }

    /// Returns the memory of the messages in bytes, including archived ones.
    pub fn memory_total(&self) -> u64 {
        self.log.memory()
    }

    /// Returns that memory in parts: the bytes of messages of this conversation alone, the address and bytes of the messages shared
    /// with its origin, and the address by which snapshots of this conversation identify it as their origin.
    pub fn memory(&self) -> (u64, Option<(usize, u64)>, Option<usize>) {
        self.log.own_memory()
    }

    /// Returns the messages that the model may see: the current batch.
    pub fn visible(&self) -> Visible<'_> {
        Visible::new(&self.log, self.mark_map().visible(self.log.len()))
    }

    /// Returns the complete history, including archived messages.
    pub fn complete(&self) -> Visible<'_> {
        let stretch = 0..self.log.len();
        Visible::new(&self.log, if stretch.is_empty() { Vec::new() } else { vec![stretch] })
    }

    /// Returns the archived messages with their indices in the complete history, without those that a rollback set aside.
    pub fn archived(&self) -> impl Iterator<Item = (usize, &CountedMessage)> {
        let marks = self.mark_map();
        // Linear in the rollbacks, of which there are few.
        let is_set_aside = |index| {
            marks
                .set_aside
                .iter()
                .any(|(start, end)| (*start..*end).contains(&index))
        };
        let older = (0..marks.boundary()).filter(move |index| !is_set_aside(*index));
        older.filter_map(|index| self.log.get(index).map(|entry| (index, &entry.counted)))
    }

    /// Returns the messages from `index` of the complete history on, including archived ones. The cost is proportional to their
    /// number.
    pub fn since(&self, index: usize) -> impl Iterator<Item = &CountedMessage> {
        (index..self.log.len()).filter_map(|index| self.log.get(index).map(|entry| &entry.counted))
    }

    /// Returns the message at an index of the complete history.
    pub(in crate::conversation) fn counted_at(&self, index: usize) -> Option<&CountedMessage> {
        self.log.get(index).map(|entry| &entry.counted)
    }

    /// Returns the tokens of the visible messages. Computed from running totals, independent of the number of messages.
    pub fn visible_tokens(&self) -> u64 {
        let length = self.log.len();
        // The common case: one batch, and the total is stored.
        let Some(marks) = &self.marks else {
            return self.log.total_of(length);
        };
        let cost = |stretch: Range<usize>| {
            let until_end = self.log.total_of(stretch.end);
            until_end.saturating_sub(self.log.total_of(stretch.start))
        };
        marks.stretches(length).map(cost).fold(0, u64::saturating_add)
    }

    /// Appends a message and returns its index in the complete history.
    pub fn append(&mut self, message: CountedMessage) -> usize {
        let index = self.log.len();
        self.log.push(message);
        // `only_appended_since` relies on one increment for each message.
        self.version += 1;
        index
    }

    /// Appends messages. Each increments the version.
    pub fn extend(&mut self, messages: impl IntoIterator<Item = CountedMessage>) {
        for message in messages {
            self.append(message);
        }
    }

    /// Starts a batch at `index` of the complete history. The messages visible before are archived.
    ///
    /// # Errors
    /// Returns [`ConversationError::InvalidBoundary`] unless current boundary <= `index` <= length.
    pub fn start_new_batch(&mut self, index: usize) -> Result<(), ConversationError> {
        let length = self.log.len();
        // An error leaves the version, so that a rejected call is no change.
        self.marks_mut().start_new_batch(index, length)?;
        self.reshape();
        Ok(())
    }

    /// Makes `batch` visible again, as it was when it was left. Messages are never deleted.
    ///
    /// # Errors
    /// Returns [`ConversationError::UnknownBatch`] if there is no such batch.
    pub fn rollback_to_batch(&mut self, batch: u64) -> Result<(), ConversationError> {
        // Read first, because `marks_mut` borrows the conversation.
        let length = self.log.len();
        // A rollback to the current batch changes nothing and must not invalidate prepared replacements.
        if self.marks_mut().rollback_to_batch(batch, length)? {
            self.reshape();
        }
        Ok(())
    }

    /// Replaces the content with that of another conversation (JOIN, undo). The version continues from the higher of the two, so
    /// that replacements prepared before are rejected.
    pub fn restore(&mut self, snapshot: &Conversation) {
        // Read before the content is replaced.
        let version = self.version.max(snapshot.version);
        *self = snapshot.clone();
        self.version = version;
        self.reshape();
    }

    /// Returns the current state, for [`Conversation::replace_visible`].
    pub fn basis(&self) -> Basis {
        Basis {
            version: self.version,
            length: self.log.len(),
        }
    }

    /// Compare and swap: archives the visible messages and shows `messages` in a new batch, followed by those that were appended
    /// since `basis`, in order.
    ///
    /// # Errors
    /// Returns [`ConversationError::Changed`] if anything except appends happened since `basis`. Nothing is changed then.
    pub fn replace_visible(
        &mut self,
        basis: Basis,
        messages: impl IntoIterator<Item = CountedMessage>,
    ) -> Result<(), ConversationError> {
        if !self.only_appended_since(basis) {
            return Err(ConversationError::Changed);
        }
        // Collected before the new batch starts, which hides them. Cloning copies pointers.
        let tail: Vec<CountedMessage> = self.visible().from_index(basis.length).cloned().collect();
        self.show_in_new_batch(messages.into_iter().chain(tail));
        Ok(())
    }

    /// Returns true if a replacement prepared at `basis` would succeed.
    pub fn only_appended_since(&self, basis: Basis) -> bool {
        // Nothing but appends happened: no reshape since, and as many versions as messages.
        self.reshaped <= basis.version
            && basis.version <= self.version
            && basis.length <= self.log.len()
            && (self.version - basis.version) == (self.log.len() - basis.length) as u64
    }

    /// Archives the visible messages and shows `messages`, as one change. If `messages` are a tail of the visible ones, the batch
    /// starts there, so that nothing is stored twice.
    pub(in crate::conversation) fn show_in_new_batch(&mut self, messages: impl IntoIterator<Item = CountedMessage>) {
        let length = self.log.len();
        // Collected, because the messages are compared before they are appended.
        let messages: Vec<CountedMessage> = messages.into_iter().collect();
        let boundary = self.tail_of_visible(&messages).unwrap_or(length);
        // Cannot fail: the boundary is between the current one and the length. Batch numbers overflow after 2^64 batches.
        let started = self.marks_mut().start_new_batch(boundary, length);
        debug_assert!(started.is_ok(), "{started:?}");
        // Otherwise the batch starts at messages that are in the log already.
        if boundary == length {
            for message in messages {
                self.log.push(message);
            }
        }
        self.reshape();
    }

    /// Returns the start of the visible tail that equals `messages`; `None` if there is none, or `messages` is empty.
    fn tail_of_visible(&self, messages: &[CountedMessage]) -> Option<usize> {
        let visible = self.visible();
        let from = visible.len().checked_sub(messages.len())?;
        let mut tail = visible.indexed().rev();
        let same = messages.iter().rev().all(|message| {
            tail.next()
                // By address: comparing contents would read the whole history.
                .is_some_and(|(_, known)| Arc::ptr_eq(&known.message, &message.message))
        });
        // An empty list would be a tail of anything. It starts an empty batch instead.
        visible.index(from).filter(|_| same && !messages.is_empty())
    }

    fn reshape(&mut self) {
        self.version += 1;
        // After the increment, so that every basis taken before is older.
        self.reshaped = self.version;
    }
}

/// Stored form of a conversation. Deserializing validates it like external input.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Stored {
    messages: Vec<Arc<Message>>,
    tokens: Vec<u64>,
    mark_map: MarkMap,
    version: u64,
    reshaped: u64,
    /// Memory in bytes, if some messages occur more than once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    memory: Option<u64>,
    #[serde(default, skip_serializing_if = "is_none")]
    inherited: usize,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde's signature
fn is_none(count: &usize) -> bool {
    *count == 0
}

impl From<Conversation> for Stored {
    fn from(conversation: Conversation) -> Self {
        // Without running totals and sharing, which are computed again.
        let (messages, tokens): (Vec<_>, Vec<_>) = conversation
            .log
            .iter()
            .map(|entry| (Arc::clone(&entry.counted.message), entry.counted.tokens))
            .unzip();
        let apart = Entries::memory_of(&messages);
        Self {
            messages,
            tokens,
            // Stored only if it differs from what deserializing computes.
            memory: Some(conversation.memory_total()).filter(|bytes| *bytes != apart),
            mark_map: conversation.mark_map().clone(),
            version: conversation.version,
            reshaped: conversation.reshaped,
            inherited: conversation.inherited,
        }
    }
}

impl TryFrom<Stored> for Conversation {
    type Error = String;

    fn try_from(stored: Stored) -> Result<Self, String> {
        // `zip` would silently drop the rest of the longer list.
        if stored.messages.len() != stored.tokens.len() {
            return Err(format!(
                "{} messages but {} token counts",
                stored.messages.len(),
                stored.tokens.len()
            ));
        }
        // The next change increments the version and would overflow.
        if stored.version < stored.reshaped || stored.version == u64::MAX {
            return Err(format!("invalid version {}", stored.version));
        }
        let messages = stored
            .messages
            .into_iter()
            .zip(stored.tokens)
            .map(|(message, tokens)| CountedMessage { message, tokens });
        let mut conversation = Self::from_parts(messages, stored.mark_map).map_err(|error| error.to_string())?;
        // The messages were counted as unshared above.
        if let Some(bytes) = stored.memory {
            conversation.log.set_memory(bytes);
        }
        // Set last, because adding the messages has counted versions.
        conversation.version = stored.version;
        conversation.reshaped = stored.reshaped;
        // Checks the count against the length.
        Ok(conversation.inheriting(stored.inherited))
    }
}
