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

use rusqlite::params;

use crate::error::StoreError;
use crate::sqlite::fault::{Fault, damaged};
use crate::sqlite::records::{self, Place};
use crate::sqlite::rows::RunRow;
use crate::sqlite::tables::{Tables, key_of, step_of};

/// Run with records in `recent`.
#[derive(Debug)]
struct Latest {
    row: RunRow,
    /// The row in `runs` is equal to `row`.
    is_written: bool,
    /// Ids in `recent` of the run's last records, up to its last step.
    places: Vec<i64>,
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
    runs: BTreeMap<String, Latest>,
    /// Number of records in the table, which have the ids from 1.
    records: i64,
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
            latest.places.extend(places);
            let was_written = std::mem::replace(&mut latest.is_written, is_written);
            let was = (std::mem::replace(&mut latest.row, row), was_written, kept);
            Undo::Run(id, Some(Box::new(was)))
        } else if places.is_empty() {
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
        self.records = to.records;
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
}

impl Tables {
    /// Moves all records to the journal, in the current transaction.
    pub(super) fn move_recent(&mut self) -> Result<(), Fault> {
        if self.recent.runs.is_empty() {
            return Ok(());
        }
        let mut select = self
            .sql
            .prepare_cached("SELECT run_step, body FROM recent ORDER BY run_step")?;
        let records = select.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let records: Vec<(i64, Vec<u8>)> = records.collect::<Result<_, _>>()?;
        // Deleted first, so that the inserts reuse the pages.
        self.sql.prepare_cached("DELETE FROM recent")?.execute([])?;
        let mut insert = self
            .sql
            .prepare_cached("INSERT INTO journal(id, body) VALUES(?1, ?2)")?;
        for (row, body) in records {
            insert.execute(params![row, body])?;
        }
        let mut update = self.sql.prepare_cached("UPDATE runs SET body = ?2 WHERE id = ?1")?;
        for (id, latest) in self.recent.runs.iter().filter(|(_, latest)| !latest.is_written) {
            update.execute(params![id, latest.row.encode()])?;
        }
        let runs = std::mem::take(&mut self.recent.runs);
        self.recent.undo.push(Undo::All(runs));
        self.recent.records = 0;
        Ok(())
    }

    /// Moves all records to the journal, in a separate transaction.
    pub(super) fn empty_recent(&mut self) -> Result<(), Fault> {
        if self.recent.runs.is_empty() {
            return Ok(());
        }
        let mark = self.recent.mark();
        self.sql.execute_batch("BEGIN IMMEDIATE")?;
        let moved = self
            .move_recent()
            .and_then(|()| self.sql.execute_batch("COMMIT").map_err(Fault::from));
        match moved {
            Ok(()) => self.recent.committed(),
            Err(_) => self.roll_back(mark),
        }
        moved
    }

    /// Rolls the transaction back. An error of the rollback is ignored: the original error is reported, and the next process
    /// undoes the transaction.
    pub(super) fn roll_back(&mut self, to: Mark) {
        if !self.sql.is_autocommit() {
            let _undone = self.sql.execute_batch("ROLLBACK");
        }
        self.recent.take_back(to);
    }

    /// Rebuilds the index from the records that an earlier process left.
    pub(super) fn read_recent(&mut self) -> Result<(), Fault> {
        let mut runs = self.runs_in_recent()?;
        let mut select = self.sql.prepare("SELECT id, run_step, body FROM recent ORDER BY id")?;
        let mut found = select.query([])?;
        let mut records = 0;
        while let Some(found) = found.next()? {
            records += 1;
            let (place, run_step): (i64, i64) = (found.get(0)?, found.get(1)?);
            let (key, step) = (key_of(run_step), step_of(run_step));
            let latest = runs.get_mut(&key).ok_or_else(|| self.lost("one belongs to no run"))?;
            if place != records {
                return Err(self.lost("one is missing"));
            }
            let row = &mut latest.row;
            if step > row.run.steps {
                let follows = row.head;
                let bytes = found.get_ref(2)?.as_blob().map_err(rusqlite::Error::from)?;
                let (record, sum) = records::decode(bytes, Place { seq: step, follows })
                    .map_err(|why| damaged(&self.file, Some(&row.run.id), &format!("step {step}"), why))?;
                if step != row.run.steps + 1 {
                    return Err(self.damaged(&row.run.id, format!("step {} is missing", row.run.steps + 1)));
                }
                (row.run.steps, row.head, row.run.updated_at) = (step, sum, record.at);
                latest.is_written = false;
            }
            latest.places.push(place);
        }
        drop(found);
        drop(select);
        self.recent.records = records;
        self.recent.runs = runs
            .into_values()
            .map(|latest| (latest.row.run.id.clone(), latest))
            .collect();
        Ok(())
    }

    /// Returns the runs with records in `recent` by key, with the rows in `runs`.
    fn runs_in_recent(&self) -> Result<BTreeMap<u64, Latest>, Fault> {
        let mut select = self.sql.prepare("SELECT DISTINCT run_step >> 32 FROM recent")?;
        let keys = select.query_map([], |row| row.get::<_, i64>(0))?;
        let keys: std::collections::BTreeSet<i64> = keys.collect::<Result<_, _>>()?;
        let mut runs = BTreeMap::new();
        if !keys.is_empty() {
            self.each_run(|row| {
                if keys.contains(&row.key.cast_signed()) {
                    let latest = Latest {
                        row,
                        is_written: true,
                        places: Vec::new(),
                    };
                    runs.insert(latest.row.key, latest);
                }
                Ok(())
            })?;
        }
        Ok(runs)
    }

    fn lost(&self, why: &str) -> Fault {
        let (file, run) = (self.file.clone(), None);
        let why = format!("the table of recent records: {why}");
        StoreError::Damaged { file, run, why }.into()
    }
}
