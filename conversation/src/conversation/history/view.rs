//! Read-only view of a part of a conversation.

use std::ops::Range;
use std::sync::Arc;

use pirn_definition::message::Message;

use super::entries::Entries;
use crate::conversation::CountedMessage;

/// Messages of a conversation, in order. Creating a view copies no messages.
#[derive(Clone, Debug)]
pub struct Visible<'a> {
    log: &'a Entries,
    stretches: Vec<Range<usize>>,
}

impl<'a> Visible<'a> {
    pub(super) fn new(log: &'a Entries, stretches: Vec<Range<usize>>) -> Self {
        Self { log, stretches }
    }

    /// Returns the number of messages.
    pub fn len(&self) -> usize {
        // Few ranges: one more for each rollback.
        self.stretches.iter().map(ExactSizeIterator::len).sum()
    }

    /// Returns true if there are no messages.
    pub fn is_empty(&self) -> bool {
        self.stretches.is_empty()
    }

    /// Returns the message at `position` of this view.
    pub fn get(&self, position: usize) -> Option<&'a CountedMessage> {
        self.log.get(self.index(position)?).map(|entry| &entry.counted)
    }

    /// Returns the index in the complete history of the message at `position`.
    pub fn index(&self, mut position: usize) -> Option<usize> {
        // Linear in the ranges, not in the messages.
        for stretch in &self.stretches {
            if position < stretch.len() {
                return Some(stretch.start + position);
            }
            position -= stretch.len();
        }
        None
    }

    /// Returns the messages with their tokens.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &'a CountedMessage> + use<'a> {
        self.indexed().map(|(_, counted)| counted)
    }

    /// Returns the messages with their indices in the complete history.
    pub fn indexed(&self) -> impl DoubleEndedIterator<Item = (usize, &'a CountedMessage)> + use<'a> {
        let log = self.log;
        // Cloned, so that the iterator does not borrow the view.
        let stretches = self.stretches.clone().into_iter();
        stretches
            .flatten()
            .filter_map(move |index| log.get(index).map(|entry| (index, &entry.counted)))
    }

    /// Returns the messages as shared pointers.
    pub fn messages(&self) -> Vec<Arc<Message>> {
        self.iter().map(|counted| Arc::clone(&counted.message)).collect()
    }

    /// Returns the messages from `index` of the complete history on. The cost is proportional to their number.
    pub fn from_index(&self, index: usize) -> impl DoubleEndedIterator<Item = &'a CountedMessage> + use<'a> {
        self.indexed_from(index).map(|(_, counted)| counted)
    }

    /// Returns the messages from `index` of the complete history on, with their indices there.
    pub fn indexed_from(&self, index: usize) -> impl DoubleEndedIterator<Item = (usize, &'a CountedMessage)> + use<'a> {
        let stretches = self
            .stretches
            .iter()
            // Ranges before the index are dropped, so that none of their messages is visited.
            .filter(|stretch| stretch.end > index)
            .map(|stretch| stretch.start.max(index)..stretch.end)
            .collect();
        Visible::new(self.log, stretches).indexed()
    }

    /// Returns the visible ranges of the complete history, in order, none empty.
    pub fn stretches(&self) -> &[Range<usize>] {
        &self.stretches
    }
}
