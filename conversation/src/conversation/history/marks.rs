//! The mark map: which part of an append-only history is visible.
//!
//! Invariants of a checked map over a history of `length` messages:
//! 1. `batch_boundaries` and `boundary_to_batch` are equally long and not empty;
//! 2. boundaries never decrease and none is beyond `length`;
//! 3. batch numbers increase, and `current_batch` is one of them.
//!
//! The map contains lengths and indices only, so that operations cost the number of batches, whatever the length of the history.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::conversation::ConversationError;

/// `{ originalIndices[], batchBoundaries[], boundaryToBatch[], currentBatch }`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MarkMap {
    /// For each batch that was left: length of the complete history at that time, at which a rollback to the batch ends. Empty in a
    /// new conversation. A list of another length, as other tools write it, is ignored; a rollback then shows everything from the
    /// boundary on.
    #[serde(default)]
    pub original_indices: Vec<usize>,
    /// Start of each batch in the complete history.
    pub batch_boundaries: Vec<usize>,
    /// Batch number for each boundary.
    pub boundary_to_batch: Vec<u64>,
    /// Number of the visible batch.
    pub current_batch: u64,
    /// Half-open ranges of the history that a rollback set aside. They belong to no batch. Absent if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub set_aside: Vec<(usize, usize)>,
}

impl Default for MarkMap {
    fn default() -> Self {
        Self::starting_with(0)
    }
}

impl MarkMap {
    /// Returns the map of a history that is completely visible as batch number `batch`.
    pub fn starting_with(batch: u64) -> Self {
        Self {
            original_indices: Vec::new(),
            batch_boundaries: vec![0],
            boundary_to_batch: vec![batch],
            current_batch: batch,
            set_aside: Vec::new(),
        }
    }

    /// Checks that the map is consistent with a history of `length` messages.
    ///
    /// # Errors
    /// Returns [`ConversationError::InvalidMarkMap`] with the invalid field.
    pub fn check(&self, length: usize) -> Result<(), ConversationError> {
        let broken = |pointer: &str, message: String| {
            Err(ConversationError::InvalidMarkMap {
                pointer: pointer.to_owned(),
                message,
            })
        };
        // First, because the checks below index into the lists.
        if self.batch_boundaries.is_empty() {
            return broken("/batchBoundaries", "there is no batch boundary".to_owned());
        }
        if self.batch_boundaries.len() != self.boundary_to_batch.len() {
            // `place_of` pairs the lists by position.
            return broken(
                "/boundaryToBatch",
                format!(
                    "{} boundaries but {} batches",
                    self.batch_boundaries.len(),
                    self.boundary_to_batch.len()
                ),
            );
        }
        if let Some(at) = first_unordered(&self.batch_boundaries, |before, after| before <= after) {
            return broken(
                &format!("/batchBoundaries/{at}"),
                "boundaries must not decrease".to_owned(),
            );
        }
        if let Some(at) = self.batch_boundaries.iter().position(|&boundary| boundary > length) {
            return broken(
                &format!("/batchBoundaries/{at}"),
                format!("boundary {} is beyond the {length} messages", self.batch_boundaries[at]),
            );
        }
        if let Some(at) = first_unordered(&self.boundary_to_batch, |before, after| before < after) {
            return broken(
                &format!("/boundaryToBatch/{at}"),
                "batch numbers must increase".to_owned(),
            );
        }
        if self.place_of(self.current_batch).is_none() {
            return broken("/currentBatch", format!("batch {} has no boundary", self.current_batch));
        }
        // Ranges may touch but not overlap: `stretches` walks them in one pass.
        let mut free_from = 0;
        for (at, &(start, end)) in self.set_aside.iter().enumerate() {
            if start < free_from || start >= end || end > length {
                return broken(
                    &format!("/setAside/{at}"),
                    "stretches must be ordered and in the history".to_owned(),
                );
            }
            free_from = end;
        }
        Ok(())
    }

    /// Returns the map with the current batch only. The visible messages are equal; earlier batches are merged.
    #[must_use]
    pub fn of_current_batch(&self) -> Self {
        let boundary = self.boundary();
        // Ranges before the boundary hide nothing that the batch shows.
        let set_aside = self.set_aside.iter().filter(|(_, end)| *end > boundary);
        Self {
            original_indices: Vec::new(),
            batch_boundaries: vec![boundary],
            boundary_to_batch: vec![self.current_batch],
            current_batch: self.current_batch,
            set_aside: set_aside.copied().collect(),
        }
    }

    /// Returns the start of the current batch.
    pub fn boundary(&self) -> usize {
        self.place_of(self.current_batch)
            // `check` guarantees the place. An unchecked map shows everything instead of panicking.
            .map_or(0, |place| self.batch_boundaries[place])
    }

    /// Returns the visible ranges of a history of `length` messages, in order, none empty.
    pub fn visible(&self, length: usize) -> Vec<Range<usize>> {
        self.stretches(length).collect()
    }

    /// Returns the ranges of [`Self::visible`] as an iterator.
    pub fn stretches(&self, length: usize) -> impl Iterator<Item = Range<usize>> + '_ {
        let mut from = self.boundary();
        // An empty gap at the end closes the last range.
        let gaps = self.set_aside.iter().copied().chain([(length, length)]);
        gaps.filter_map(move |(start, end)| {
            let stretch = from..start.min(length);
            // A gap before the boundary must not move the start back.
            from = from.max(end);
            (!stretch.is_empty()).then_some(stretch)
        })
    }

    /// Starts a batch at `index` in a history of `length` messages. The messages visible before are archived.
    ///
    /// # Errors
    /// Returns [`ConversationError::InvalidBoundary`] unless current boundary <= `index` <= `length`.
    pub fn start_new_batch(&mut self, index: usize, length: usize) -> Result<(), ConversationError> {
        let low = self.boundary();
        // Batch numbers come from stored maps: the largest one has no successor.
        let next = self.current_batch.checked_add(1);
        let (true, Some(next)) = ((low..=length).contains(&index), next) else {
            return Err(ConversationError::InvalidBoundary {
                index: index as u64,
                low: low as u64,
                high: length as u64,
            });
        };
        let place = self.place_of(self.current_batch).unwrap_or(0);
        // Batches after a rollback are dropped: their numbers are assigned again.
        self.keep_up_to(place, length);
        // The length at which the batch is left now: a rollback to it ends there.
        self.original_indices.push(length);
        self.batch_boundaries.push(index);
        self.boundary_to_batch.push(next);
        self.current_batch = next;
        Ok(())
    }

    /// Makes `batch` the current one again, as it was when it was left (D19). Later messages remain in the history and are set
    /// aside. Returns true if anything changed.
    ///
    /// # Errors
    /// Returns [`ConversationError::UnknownBatch`] if there is no such batch.
    pub fn rollback_to_batch(&mut self, batch: u64, length: usize) -> Result<bool, ConversationError> {
        let place = self.place_of(batch).ok_or(ConversationError::UnknownBatch { batch })?;
        // The last batch is current: there is nothing to go back from.
        if place + 1 == self.batch_boundaries.len() && batch == self.current_batch {
            return Ok(false);
        }
        // Before `keep_up_to`, which drops the entry.
        let end = self.left_at(place, length);
        self.keep_up_to(place, length);
        self.current_batch = batch;
        // The range from `end` on is set aside as a whole below.
        self.set_aside.retain(|&(start, _)| start < end);
        if let Some(last) = self.set_aside.last_mut() {
            // A range across the end is cut, so that the ranges stay ordered.
            last.1 = last.1.min(end);
        }
        // Without later messages there is nothing to set aside.
        if end < length {
            match self.set_aside.last_mut() {
                // Adjacent ranges are merged, so that repeated rollbacks do not grow the list.
                Some(last) if last.1 == end => last.1 = length,
                Some(_) | None => self.set_aside.push((end, length)),
            }
        }
        Ok(true)
    }

    fn place_of(&self, batch: u64) -> Option<usize> {
        self.boundary_to_batch
            .iter()
            .position(|&known| known == batch)
            // Also called by `check` and for unchecked maps, in which one list may be longer.
            .filter(|&place| place < self.batch_boundaries.len())
    }

    /// Returns the length of the history when the batch at `place` was left, or `length` if unknown.
    fn left_at(&self, place: usize, length: usize) -> usize {
        // A list of another length comes from another tool and has another meaning.
        let known = self.original_indices.len() + 1 == self.batch_boundaries.len();
        let next = self.batch_boundaries.get(place + 1).copied();
        match (known, next, self.original_indices.get(place)) {
            // A batch is never left before the next one starts.
            (true, Some(next), Some(&left)) if (next..=length).contains(&left) => left,
            _ => length,
        }
    }

    /// Removes the batches after the one at `place`, and normalizes `original_indices`.
    fn keep_up_to(&mut self, place: usize, length: usize) {
        // Computed before the boundaries are truncated, on which `left_at` depends.
        self.original_indices = (0..place).map(|before| self.left_at(before, length)).collect();
        self.batch_boundaries.truncate(place + 1);
        self.boundary_to_batch.truncate(place + 1);
    }
}

fn first_unordered<T>(items: &[T], ordered: impl Fn(&T, &T) -> bool) -> Option<usize> {
    items
        .windows(2)
        .position(|pair| !ordered(&pair[0], &pair[1]))
        .map(|at| at + 1)
}
