//! Recently appended records.
//!
//! The table `journal` stores the records of a run next to each other, so that a run is read in one pass. Inserting there at
//! once would change one page for each run of a commit. Therefore:
//!
//! 1. A commit appends its records to the table `recent`, across runs, and [`Recent`] indexes them by run.
//! 2. A run's row in `runs` is not updated by commits that only append records. [`Recent`] contains the current row, and
//!    rebuilds it from `recent` when the store is opened.
//! 3. Before a checkpoint the records are moved to `journal`. So a file without its log has no records in
//!    `recent`.
//! 4. Changes of [`Recent`] are undone when their transaction is rolled back.

use std::collections::BTreeMap;

use super::format::rows::RunRow;

/// Run with records in `recent`.
#[derive(Debug)]
pub(super) struct Latest {
    pub(super) row: RunRow,
    /// The row in `runs` is equal to `row`.
    pub(super) is_written: bool,
    /// Ids in `recent` of the run's last records, up to its last step.
    pub(super) places: Vec<i64>,
}

/// Undo entry of a change.
#[derive(Debug)]
enum Undo {
    /// The run had no entry, or one with this row, this `is_written`, and this number of ids.
    Run(String, Option<Box<(RunRow, bool, usize)>>),
    /// All entries before they were moved.
    All(BTreeMap<String, Latest>),
}

/// Index of the table `recent`.
#[derive(Debug, Default)]
pub(super) struct Recent {
    pub(super) runs: BTreeMap<String, Latest>,
    /// Number of records in the table, which have the ids from 1.
    pub(super) records: i64,
    undo: Vec<Undo>,
}

/// State to which changes can be undone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    undo: usize,
    records: i64,
}

impl Recent {
    /// Returns the current row of a run; none if it is the one in `runs`.
    pub(super) fn row(&self, id: &str) -> Option<&RunRow> {
        self.runs.get(id).map(|latest| &latest.row)
    }

    /// Returns the ids of a run's last records, up to its last step.
    pub(super) fn places(&self, id: &str) -> &[i64] {
        self.runs.get(id).map_or(&[], |latest| &latest.places)
    }

    /// Allocates the next id.
    pub(super) fn next_place(&mut self) -> i64 {
        self.records += 1;
        self.records
    }

    /// Sets the row of a run and adds ids of records.
    pub(super) fn set(&mut self, row: RunRow, is_written: bool, places: Vec<i64>) {
        let id = &row.run.id;
        let undo = if let Some(latest) = self.runs.get_mut(id) {
            let (id, kept) = (id.clone(), latest.places.len());
            // Ids are only appended, so an undo needs their former number and no copy.
            latest.places.extend(places);
            let was_written = std::mem::replace(&mut latest.is_written, is_written);
            let was = (std::mem::replace(&mut latest.row, row), was_written, kept);
            Undo::Run(id, Some(Box::new(was)))
        } else if places.is_empty() {
            // The row in `runs` is current, and an entry without records would have nothing to move.
            return;
        } else {
            let id = id.clone();
            let latest = Latest {
                row,
                is_written,
                places,
            };
            self.runs.insert(id.clone(), latest);
            Undo::Run(id, None)
        };
        self.undo.push(undo);
    }

    pub(super) fn mark(&self) -> Mark {
        Mark {
            undo: self.undo.len(),
            records: self.records,
        }
    }

    /// Undoes the changes since a mark, when their transaction is rolled back.
    pub(super) fn take_back(&mut self, to: Mark) {
        // The rows are rolled back too, so their ids are used again.
        self.records = to.records;
        // In reverse order, because a later entry may concern the same run.
        while self.undo.len() > to.undo {
            match self.undo.pop() {
                Some(Undo::Run(id, Some(was))) => {
                    let (row, is_written, kept) = *was;
                    if let Some(latest) = self.runs.get_mut(&id) {
                        latest.places.truncate(kept);
                        (latest.row, latest.is_written) = (row, is_written);
                    }
                }
                Some(Undo::Run(id, None)) => {
                    self.runs.remove(&id);
                }
                Some(Undo::All(runs)) => self.runs = runs,
                None => {}
            }
        }
    }

    /// Discards the undo entries after the transaction is durable.
    pub(super) fn committed(&mut self) {
        self.undo.clear();
    }

    /// Removes all entries, whose records were moved to the journal.
    pub(super) fn moved(&mut self) {
        let runs = std::mem::take(&mut self.runs);
        // The undo entry is retained until the transaction is durable: the move is part of it and may be rolled back.
        self.undo.push(Undo::All(runs));
        self.records = 0;
    }
}
