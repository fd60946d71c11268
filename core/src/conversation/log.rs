//! A conversation: an append-only log, what of it is visible, and its version.
//!
//! Invariants:
//! 1. Nothing is ever removed from the log; a batch hides, a rollback sets aside.
//! 2. Every change bumps the version by one.
//! 3. A clone is a snapshot and costs the same for 10 messages and for 1,000,000: see [`Entries`].
//! 4. A message is counted before it comes in and never again: sums are differences of running totals.

use std::ops::Range;
use std::sync::{Arc, LazyLock};

use serde::{Deserialize, Serialize};

use super::entries::Entries;
use super::{ConversationError, Counted, MarkMap, Visible};
use crate::message::Message;

/// The history of one thread. `clone` is the O(1) snapshot that FORK gives its branches.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(try_from = "Stored", into = "Stored")]
pub struct Conversation {
    log: Entries,
    /// None until a second batch starts: all is visible.
    marks: Option<Arc<MarkMap>>,
    version: u64,
    /// The version of the last change that was not an append.
    reshaped: u64,
    /// Number of first messages that came from the run's session. Appends leave it as it is, a restored snapshot brings its own.
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

/// A moment in a conversation's life that a later replacement refers to (compare and swap).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Basis {
    /// The version then.
    pub version: u64,
    /// The complete history's length then.
    pub length: usize,
}

impl Conversation {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// A conversation that starts with `messages`, all visible.
    pub fn from_messages(messages: impl IntoIterator<Item = Counted>) -> Self {
        let mut conversation = Self::new();
        conversation.extend(messages);
        conversation
    }

    /// A complete history with its mark map, as it is written in JSON.
    ///
    /// # Errors
    /// [`ConversationError::InvalidMarkMap`] where the two do not fit.
    pub fn from_parts(messages: impl IntoIterator<Item = Counted>, marks: MarkMap) -> Result<Self, ConversationError> {
        let mut conversation = Self::from_messages(messages);
        marks.check(conversation.len())?;
        conversation.marks = Some(Arc::new(marks));
        Ok(conversation)
    }

    /// True if the two are one snapshot and have both been left alone since. Compares no message.
    pub fn is_the_same_as(&self, other: &Self) -> bool {
        self.version == other.version
            && self.reshaped == other.reshaped
            && self.marks.as_ref().map(Arc::as_ptr) == other.marks.as_ref().map(Arc::as_ptr)
            && self.log.ptr_eq(&other.log)
    }

    /// Messages in the complete history, archived ones included.
    pub fn len(&self) -> usize {
        self.log.len()
    }

    /// True if nothing was ever appended.
    pub fn is_empty(&self) -> bool {
        self.log.is_empty()
    }

    /// Number of messages at the beginning of the complete history that the run has from its session, all unchanged.
    pub fn inherited(&self) -> usize {
        self.inherited
    }

    /// The same conversation, whose first messages came from a session.
    #[must_use]
    pub fn inheriting(self, inherited: usize) -> Self {
        Self {
            inherited: inherited.min(self.len()),
            ..self
        }
    }

    /// The first `length` messages, then `messages`, shown as `marks` say: a conversation that was stored in parts. What it takes
    /// of memory is for [`Self::stored`] to say.
    ///
    /// # Errors
    /// [`ConversationError::InvalidMarkMap`] where the marks do not fit.
    pub fn continued(
        &self,
        length: usize,
        messages: impl IntoIterator<Item = Counted>,
        marks: MarkMap,
        (version, reshaped): (u64, u64),
    ) -> Result<Self, ConversationError> {
        let mut log = self.log.first(length);
        messages.into_iter().for_each(|message| log.push(message));
        marks.check(log.len())?;
        let continued = Self {
            log,
            marks: Some(Arc::new(marks)).filter(|marks| **marks != MarkMap::default()),
            version: version.max(reshaped),
            reshaped,
            inherited: 0,
        };
        Ok(continued.stored(0))
    }

    /// The same conversation as a store has it: none of its messages is another's, and they take so many bytes of memory. So it is
    /// the same whether it was read or is still in memory.
    #[must_use]
    pub fn stored(mut self, memory: u64) -> Self {
        self.log.detach();
        self.log.set_memory(memory);
        self.inheriting(0)
    }

    /// The version of the last change that was not an append.
    pub fn reshaped(&self) -> u64 {
        self.reshaped
    }

    /// Bumped by every change.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Which part is visible.
    pub fn mark_map(&self) -> &MarkMap {
        static FIRST_BATCH: LazyLock<MarkMap> = LazyLock::new(MarkMap::default);
        self.marks.as_deref().unwrap_or(&FIRST_BATCH)
    }

    fn marks_mut(&mut self) -> &mut MarkMap {
        Arc::make_mut(self.marks.get_or_insert_default())
    }

    /// A snapshot for many to start from: none of them copies a message.
    #[must_use]
    pub fn snapshot(&mut self) -> Self {
        Self {
            log: self.log.snapshot(),
            ..self.clone()
        }
    }

    /// The same messages for a reader that holds on to them: this one neither counts nor knows it.
    #[must_use]
    pub(super) fn apart(&self) -> Self {
        Self {
            log: self.log.apart(),
            marks: self.marks.clone(),
            ..*self
        }
    }

    /// Bytes of memory that its messages take, archived ones included.
    pub fn memory_total(&self) -> u64 {
        self.log.memory()
    }

    /// The parts of that: see [`Entries::own_memory`].
    pub(crate) fn memory(&self) -> (u64, Option<(usize, u64)>, Option<usize>) {
        self.log.own_memory()
    }

    /// The messages the model may see: the current batch.
    pub fn visible(&self) -> Visible<'_> {
        Visible::new(&self.log, self.mark_map().visible(self.log.len()))
    }

    /// The complete history, archived messages included.
    pub fn complete(&self) -> Visible<'_> {
        let stretch = 0..self.log.len();
        Visible::new(&self.log, if stretch.is_empty() { Vec::new() } else { vec![stretch] })
    }

    /// The messages that are archived, with their places in the complete history; what a rollback set aside is not among them.
    pub fn archived(&self) -> impl Iterator<Item = (usize, &Counted)> {
        let marks = self.mark_map();
        let is_set_aside = |index| {
            marks
                .set_aside
                .iter()
                .any(|(start, end)| (*start..*end).contains(&index))
        };
        let older = (0..marks.boundary()).filter(move |index| !is_set_aside(*index));
        older.filter_map(|index| self.log.get(index).map(|entry| (index, &entry.counted)))
    }

    /// The messages from `index` of the complete history on, archived ones included; costs only what it gives.
    pub fn since(&self, index: usize) -> impl Iterator<Item = &Counted> {
        (index..self.log.len()).filter_map(|index| self.log.get(index).map(|entry| &entry.counted))
    }

    /// The message at an index of the complete history.
    pub(super) fn counted_at(&self, index: usize) -> Option<&Counted> {
        self.log.get(index).map(|entry| &entry.counted)
    }

    /// Tokens of the visible messages; from running totals, whatever their number.
    pub fn visible_tokens(&self) -> u64 {
        let length = self.log.len();
        let Some(marks) = &self.marks else {
            return self.log.total_of(length);
        };
        let cost = |stretch: Range<usize>| {
            let until_end = self.log.total_of(stretch.end);
            until_end.saturating_sub(self.log.total_of(stretch.start))
        };
        marks.stretches(length).map(cost).fold(0, u64::saturating_add)
    }

    /// Adds a message at the end and returns its index in the complete history.
    pub fn append(&mut self, message: Counted) -> usize {
        let index = self.log.len();
        self.log.push(message);
        self.version += 1;
        index
    }

    /// Adds messages at the end, one version each.
    pub fn extend(&mut self, messages: impl IntoIterator<Item = Counted>) {
        for message in messages {
            self.append(message);
        }
    }

    /// Starts a batch at `index` of the complete history; what was visible is archived.
    ///
    /// # Errors
    /// [`ConversationError::InvalidBoundary`] unless current boundary <= `index` <= length.
    pub fn start_new_batch(&mut self, index: usize) -> Result<(), ConversationError> {
        let length = self.log.len();
        self.marks_mut().start_new_batch(index, length)?;
        self.reshape();
        Ok(())
    }

    /// Shows `batch` again, as it was when it was left. Messages are never deleted.
    ///
    /// # Errors
    /// [`ConversationError::UnknownBatch`].
    pub fn rollback_to_batch(&mut self, batch: u64) -> Result<(), ConversationError> {
        let length = self.log.len();
        if self.marks_mut().rollback_to_batch(batch, length)? {
            self.reshape();
        }
        Ok(())
    }

    /// Takes over another conversation's content (JOIN, an undo). The version goes on from the higher one, so no
    /// replacement that was prepared before can succeed after.
    pub fn restore(&mut self, snapshot: &Conversation) {
        let version = self.version.max(snapshot.version);
        *self = snapshot.clone();
        self.version = version;
        self.reshape();
    }

    /// This moment, for [`Conversation::replace_visible`].
    pub fn basis(&self) -> Basis {
        Basis {
            version: self.version,
            length: self.log.len(),
        }
    }

    /// Compare and swap: archives what is visible and shows `messages` in a new batch, followed, in order, by what
    /// was appended since `basis`.
    ///
    /// # Errors
    /// [`ConversationError::Changed`] where anything but appends happened since; nothing is changed then.
    pub fn replace_visible(
        &mut self,
        basis: Basis,
        messages: impl IntoIterator<Item = Counted>,
    ) -> Result<(), ConversationError> {
        if !self.only_appended_since(basis) {
            return Err(ConversationError::Changed);
        }
        let tail: Vec<Counted> = self.visible().from_index(basis.length).cloned().collect();
        self.show_in_new_batch(messages.into_iter().chain(tail));
        Ok(())
    }

    /// True if a replacement prepared at `basis` would still succeed.
    pub fn only_appended_since(&self, basis: Basis) -> bool {
        self.reshaped <= basis.version
            && basis.version <= self.version
            && basis.length <= self.log.len()
            && (self.version - basis.version) == (self.log.len() - basis.length) as u64
    }

    /// Archives what is visible and shows `messages`, as one change. Where they are a tail of what is visible the
    /// batch simply starts there, and nothing is stored twice.
    pub(super) fn show_in_new_batch(&mut self, messages: impl IntoIterator<Item = Counted>) {
        let length = self.log.len();
        let messages: Vec<Counted> = messages.into_iter().collect();
        let boundary = self.tail_of_visible(&messages).unwrap_or(length);
        // Between the current boundary and the length: never refused. A batch number that overflows is 2^64 batches.
        let started = self.marks_mut().start_new_batch(boundary, length);
        debug_assert!(started.is_ok(), "{started:?}");
        if boundary == length {
            for message in messages {
                self.log.push(message);
            }
        }
        self.reshape();
    }

    /// The start of the visible tail that `messages` are; none where they are something else, or nothing.
    fn tail_of_visible(&self, messages: &[Counted]) -> Option<usize> {
        let visible = self.visible();
        let from = visible.len().checked_sub(messages.len())?;
        let mut tail = visible.indexed().rev();
        let same = messages.iter().rev().all(|message| {
            tail.next()
                .is_some_and(|(_, known)| Arc::ptr_eq(&known.message, &message.message))
        });
        visible.index(from).filter(|_| same && !messages.is_empty())
    }

    fn reshape(&mut self) {
        self.version += 1;
        self.reshaped = self.version;
    }
}

/// The stored form of a conversation; read back with every check that a foreign one needs.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Stored {
    messages: Vec<Arc<Message>>,
    tokens: Vec<u64>,
    mark_map: MarkMap,
    version: u64,
    reshaped: u64,
    /// Bytes of memory, where some messages are in it more than once.
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
        let (messages, tokens): (Vec<_>, Vec<_>) = conversation
            .log
            .iter()
            .map(|entry| (Arc::clone(&entry.counted.message), entry.counted.tokens))
            .unzip();
        let apart = Entries::memory_of(&messages);
        Self {
            messages,
            tokens,
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
        if stored.messages.len() != stored.tokens.len() {
            return Err(format!(
                "{} messages but {} token counts",
                stored.messages.len(),
                stored.tokens.len()
            ));
        }
        if stored.version < stored.reshaped || stored.version == u64::MAX {
            return Err(format!("version {} makes no sense", stored.version));
        }
        let messages = stored
            .messages
            .into_iter()
            .zip(stored.tokens)
            .map(|(message, tokens)| Counted { message, tokens });
        let mut conversation = Self::from_parts(messages, stored.mark_map).map_err(|error| error.to_string())?;
        if let Some(bytes) = stored.memory {
            conversation.log.set_memory(bytes);
        }
        conversation.version = stored.version;
        conversation.reshaped = stored.reshaped;
        Ok(conversation.inheriting(stored.inherited))
    }
}
