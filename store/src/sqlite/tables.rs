//! Schema, and commands on the tables.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use rusqlite::{Connection, params};

use super::format::cipher::{Cipher, Of};
use super::format::codec::Malformed;
use super::format::records::{self, Place};
use super::format::rows::{self, RunRow};
use crate::commit::{Commit, NewRun, Precondition, SessionWrite, TimerChange};
use crate::content::{Content, ContentHash};
use crate::error::StoreError;
use crate::memory::{moved, no_run};
use crate::run::{MAX_FORKS, Record};
use crate::run::{Session, Timer};
use crate::sqlite::fault::{Fault, damaged};
use crate::sqlite::recent::{Latest, Mark, Recent};

/// A journal row's id combines the run's key and the step, so that the records of a run are neighbours. A table
/// without row ids would store long records on separate overflow pages; this one can fill a page with a record.
const STEP_BITS: u32 = 32;
const MAX_STEPS: u64 = u32::MAX as u64;
// One bit less than 32, so that the row id stays positive and the order of ids is that of keys.
const MAX_KEY: u64 = (1 << 31) - 1;

/// Layout, stored as `user_version` of the file.
pub(super) const LAYOUT: i32 = 3;

/// Layout of an encrypted store, so that versions without encryption refuse it.
pub(super) const ENCRYPTED_LAYOUT: i32 = 4;

/// "PIRN", the application id of the file.
pub(super) const APPLICATION: i32 = 0x5049_524e;

/// Index of runs. Created separately, because stores of earlier versions do not have it.
pub(super) const LISTS: &str = "CREATE TABLE IF NOT EXISTS
listed(list TEXT, started INTEGER, run TEXT, PRIMARY KEY(list, started, run)) WITHOUT ROWID;";

/// Recent records in the order of commits. `run_step` is the id in the journal.
pub(super) const RECENT: &str = "
CREATE TABLE recent(id INTEGER PRIMARY KEY, run_step INTEGER NOT NULL, body BLOB NOT NULL);";

pub(super) const SCHEMA: &str = "
CREATE TABLE runs(id TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE journal(id INTEGER PRIMARY KEY, body BLOB NOT NULL);
CREATE TABLE contents(hash BLOB PRIMARY KEY, body TEXT NOT NULL, follows BLOB) WITHOUT ROWID;
CREATE INDEX followers ON contents(follows) WHERE follows IS NOT NULL;
CREATE TABLE snapshots(run INTEGER PRIMARY KEY, body BLOB NOT NULL);
CREATE TABLE timers(due INTEGER, run TEXT, effect TEXT, checksum INTEGER NOT NULL, PRIMARY KEY(due, run, effect)) WITHOUT ROWID;
CREATE TABLE sessions(id TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE meta(name TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID;
";

/// Connection and in-memory state of an open store.
pub(super) struct Tables {
    /// Shared with a backup that copies pages between commands.
    pub(super) sql: Rc<Connection>,
    pub(super) file: Arc<str>,
    /// Key of the next run.
    pub(super) next_key: u64,
    pub(super) recent: Recent,
    /// Data was removed, and the file still has its pages.
    pub(super) is_shrinking: bool,
    /// Keys of an encrypted store.
    pub(super) cipher: Option<Cipher>,
}

pub(super) fn row_of(key: u64, step: u64) -> i64 {
    (key << STEP_BITS | step).cast_signed()
}

pub(super) fn key_of(row: i64) -> u64 {
    row.cast_unsigned() >> STEP_BITS
}

pub(super) fn step_of(row: i64) -> u64 {
    row.cast_unsigned() & MAX_STEPS
}

impl Tables {
    pub(super) fn damaged(&self, run: &str, why: impl Into<String>) -> Fault {
        Fault::Refused(StoreError::Damaged {
            file: self.file.clone(),
            run: Some(run.to_owned()),
            why: why.into(),
        })
    }

    /// Returns the row with this id, hidden or not.
    pub(super) fn row(&self, id: &str) -> Result<Option<RunRow>, Fault> {
        if let Some(row) = self.recent.row(id) {
            // The row in `runs` may be older: commits that only append do not update it.
            return Ok(Some(row.clone()));
        }
        let mut select = self.sql.prepare_cached("SELECT body FROM runs WHERE id = ?1")?;
        let mut rows = select.query([id])?;
        let Some(row) = rows.next()? else {
            return Ok(None);
        };
        let bytes = row.get_ref(0)?.as_blob().map_err(rusqlite::Error::from)?;
        self.decode_run(id, bytes).map(Some)
    }

    pub(super) fn encode_run(&self, row: &RunRow) -> Result<Vec<u8>, Fault> {
        self.sealed(Of::Runs, row.run.id.as_bytes(), row.encode())
    }

    pub(super) fn decode_run(&self, id: &str, bytes: &[u8]) -> Result<RunRow, Fault> {
        let opened = self.opened(Of::Runs, id.as_bytes(), bytes);
        let row = opened.and_then(|bytes| RunRow::decode(id, &bytes));
        Ok(row.map_err(|why| damaged(&self.file, Some(id), "its row", why))?)
    }

    /// Decodes the record with this id in the journal. Returns it with its checksum.
    pub(super) fn decode_record(&self, row: i64, bytes: &[u8], follows: u32) -> Result<(Record, u32), Malformed> {
        let seq = step_of(row);
        let bytes = self.opened(Of::Journal, &row.to_le_bytes(), bytes)?;
        records::decode(&bytes, Place { seq, follows })
    }

    pub(super) fn visible(&self, id: &str) -> Result<RunRow, Fault> {
        let row = self.row(id)?.filter(|row| !row.is_hidden);
        row.ok_or_else(|| no_run(id).into())
    }

    /// Returns the row of the base.
    pub(super) fn base_of(&self, row: &RunRow) -> Result<Option<RunRow>, Fault> {
        let Some(base) = &row.run.base else {
            return Ok(None);
        };
        // Hidden bases too: a removed run stays while it has forks.
        let found = self.row(&base.run)?;
        found.map(Some).ok_or_else(|| {
            self.damaged(
                &row.run.id,
                format!("the run it was forked from is missing: {}", base.run),
            )
        })
    }

    pub(super) fn commit(&mut self, commit: &Commit) -> Result<u64, Fault> {
        commit.check()?;
        let is_new = matches!(commit.follows, Precondition::Start(_));
        let mut row = match &commit.follows {
            Precondition::Start(new) => self.start(&commit.run, new)?,
            Precondition::Step(step) => {
                let row = self.visible(&commit.run)?;
                moved(&commit.run, *step, row.run.steps, *step == row.run.steps)?;
                row
            }
        };
        let changes = commit.status.is_some_and(|status| status != row.run.status);
        // Needed only to find the lists from which the run is removed.
        let before = (changes && !is_new).then(|| row.clone());
        // First, because the checks below accept contents of this commit.
        commit.contents.iter().try_for_each(|content| self.keep(content))?;
        if is_new {
            self.know(row.names())?;
        }
        // Later errors roll back the contents as well: the command runs in a transaction.
        self.know(commit.names.iter())?;
        let followed: Vec<_> = commit.contents.iter().filter_map(Content::follows).collect();
        self.know(followed.iter())?;
        row.run.contents.extend(&commit.names);
        if let Some(write) = &commit.session {
            self.write_session(&commit.run, write)?;
        }
        let places = self.append(&mut row, commit)?;
        if let Some(status) = commit.status {
            row.run.status = status;
        }
        // Commits that only append records do not update the row: it is rebuilt from the records (see `recent`).
        let is_written = is_new || changes || !commit.names.is_empty();
        if is_written {
            let sql = if is_new {
                "INSERT INTO runs(id, body) VALUES(?1, ?2)"
            } else {
                "UPDATE runs SET body = ?2 WHERE id = ?1"
            };
            self.sql
                .prepare_cached(sql)?
                .execute(params![commit.run, self.encode_run(&row)?])?;
        }
        if is_new || changes {
            self.list(before.as_ref(), &row)?;
        }
        let steps = row.run.steps;
        // Before the snapshot, which reads the row with the new steps.
        self.recent.set(row, is_written, places);
        if let Some(snapshot) = &commit.snapshot {
            let row = self.visible(&commit.run)?;
            moved(
                &commit.run,
                snapshot.step,
                row.run.steps,
                snapshot.step <= row.run.steps,
            )?;
            // Ties the snapshot to this journal: see `read::snapshot`.
            let follows = self.checksum_at(&row, snapshot.step)?;
            let body = rows::encode_snapshot(row.key, follows, snapshot);
            let body = self.sealed(Of::Snapshots, &row.key.to_le_bytes(), body)?;
            self.sql
                // Only the latest snapshot shortens a replay, so earlier ones are not retained.
                .prepare_cached("REPLACE INTO snapshots(run, body) VALUES(?1, ?2)")?
                .execute(params![row.key.cast_signed(), body])?;
        }
        commit
            .timers
            .iter()
            .try_for_each(|change| self.change_timer(&commit.run, change))?;
        Ok(steps)
    }

    fn start(&mut self, id: &str, new: &NewRun) -> Result<RunRow, Fault> {
        // Hidden runs count: their forks name them by this id.
        if self.row(id)?.is_some() {
            return Err(StoreError::RunExists { run: id.to_owned() }.into());
        }
        if self.next_key > MAX_KEY {
            return Err(StoreError::TooLarge {
                what: format!("a store has room for {MAX_KEY} runs"),
            }
            .into());
        }
        let (mut steps, mut head) = (0, records::root(id, new.definition.as_bytes()));
        if let Some(base) = &new.base {
            let row = self.visible(&base.run)?;
            moved(&base.run, base.step, row.run.steps, base.step <= row.run.steps)?;
            let (mut depth, mut ancestor) = (1, self.base_of(&row)?);
            // A read visits every ancestor, so their number is limited here.
            while let Some(row) = ancestor {
                depth += 1;
                ancestor = self.base_of(&row)?;
            }
            if depth >= MAX_FORKS {
                return Err(StoreError::too_many_forks().into());
            }
            (steps, head) = (base.step, self.checksum_at(&row, base.step)?);
        }
        let key = self.next_key;
        // Not reused if the command fails; `none_is_refused` resets it before it tries again.
        self.next_key += 1;
        Ok(RunRow {
            run: new.begun(id, steps),
            key,
            head,
            is_hidden: false,
        })
    }

    /// Appends the commit's records. Returns their ids in `recent`.
    fn append(&mut self, row: &mut RunRow, commit: &Commit) -> Result<Vec<i64>, Fault> {
        if row.run.steps + commit.records.len() as u64 > MAX_STEPS {
            return Err(StoreError::TooLarge {
                what: format!("a run has at most {MAX_STEPS} steps"),
            }
            .into());
        }
        let mut insert = self
            .sql
            .prepare_cached("INSERT INTO recent(id, run_step, body) VALUES(?1, ?2, ?3)")?;
        let mut places = Vec::with_capacity(commit.records.len());
        for record in &commit.records {
            let place = Place {
                seq: row.run.steps + 1,
                // Links the record to its predecessor, so that an exchanged or missing record is detected.
                follows: row.head,
            };
            let (bytes, sum) = records::encode(record, place);
            let id = row_of(row.key, place.seq);
            // As in the journal, to which the record is moved unchanged.
            let bytes = self.sealed(Of::Journal, &id.to_le_bytes(), bytes)?;
            places.push(self.recent.next_place());
            insert.execute(params![places.last(), id, bytes])?;
            (row.run.steps, row.head, row.run.updated_at) = (place.seq, sum, record.at);
        }
        Ok(places)
    }

    /// Fails unless all these contents are stored.
    pub(super) fn know<'a>(&self, mut hashes: impl Iterator<Item = &'a ContentHash>) -> Result<(), Fault> {
        hashes.try_for_each(|hash| {
            if self.has_content(hash)? {
                return Ok(());
            }
            Err(StoreError::NoSuchContent { hash: *hash }.into())
        })
    }

    fn write_session(&self, run: &str, write: &SessionWrite) -> Result<(), Fault> {
        let found = self.session(&write.id)?.map_or(0, |session| session.version);
        // The second of two writers must not replace the result of the first.
        if found != write.follows {
            let (session, expected) = (write.id.clone(), write.follows);
            return Err(StoreError::SessionMoved {
                session,
                expected,
                found,
            }
            .into());
        }
        self.know(write.contents.iter())?;
        let session = Session {
            id: write.id.clone(),
            version: found + 1,
            body: write.body.clone(),
            contents: write.contents.clone(),
            run: run.to_owned(),
            updated_at: write.at,
        };
        self.write_named(Of::Sessions, &session.id, &rows::encode_session(&session))
    }

    pub(super) fn session(&self, id: &str) -> Result<Option<Session>, Fault> {
        let bytes = self.named(Of::Sessions, id)?;
        bytes.map(|bytes| self.decode_session(id, &bytes)).transpose()
    }

    pub(super) fn decode_session(&self, id: &str, bytes: &[u8]) -> Result<Session, Fault> {
        let session = rows::decode_session(id, bytes);
        Ok(session.map_err(|why| damaged(&self.file, None, &format!("session {id}"), why))?)
    }

    fn change_timer(&self, run: &str, change: &TimerChange) -> Result<(), Fault> {
        match change {
            TimerChange::Set { due, effect } => {
                let (due, run, effect) = (*due, run.to_owned(), effect.clone());
                let timer = Timer { due, run, effect };
                let mut insert = self.sql.prepare_cached(
                    // The key has all values of a timer, so setting it again changes nothing.
                    "INSERT OR IGNORE INTO timers(due, run, effect, checksum) VALUES(?1, ?2, ?3, ?4)",
                )?;
                insert.execute(params![
                    due.cast_signed(),
                    timer.run,
                    timer.effect,
                    rows::timer_sum(&timer)
                ])?;
            }
            TimerChange::Clear { due, effect } => {
                let mut delete = self
                    .sql
                    .prepare_cached("DELETE FROM timers WHERE due = ?1 AND run = ?2 AND effect = ?3")?;
                delete.execute(params![due.cast_signed(), run, effect])?;
            }
        }
        Ok(())
    }

    pub(super) fn set_meta(&self, name: &str, value: Option<&str>) -> Result<(), Fault> {
        match value {
            Some(value) => self.write_named(Of::Meta, name, &rows::encode_meta(name, value)),
            None => self.delete_named(Of::Meta, name),
        }
    }
}

/// The table `recent` and its index.
impl Tables {
    /// Moves all records to the journal, in the current transaction.
    pub(super) fn move_recent(&mut self) -> Result<(), Fault> {
        if self.recent.runs.is_empty() {
            return Ok(());
        }
        let mut select = self
            .sql
            // In the order of the journal's keys, so that each page of the journal is written once.
            .prepare_cached("SELECT run_step, body FROM recent ORDER BY run_step")?;
        let records = select.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        // Read completely before the deletion. A checkpoint is due at 4 MiB, so there are usually few records.
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
        // Without `recent` the row in `runs` is the only source of the last step.
        for (id, latest) in self.recent.runs.iter().filter(|(_, latest)| !latest.is_written) {
            update.execute(params![id, self.encode_run(&latest.row)?])?;
        }
        self.recent.moved();
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
        // SQLite may have rolled back itself, for example on a full disk. A second rollback would be an error.
        if !self.sql.is_autocommit() {
            let _undone = self.sql.execute_batch("ROLLBACK");
        }
        // Also if SQLite rolled back itself, because the index is not part of the transaction.
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
            // Ids have no gaps, so a missing row is detected without a checksum over the table.
            if place != records {
                return Err(self.lost("one is missing"));
            }
            let row = &mut latest.row;
            // Earlier steps are in the row already, which a later commit with a new status has written.
            if step > row.run.steps {
                let follows = row.head;
                let bytes = found.get_ref(2)?.as_blob().map_err(rusqlite::Error::from)?;
                let (record, sum) = self
                    .decode_record(run_step, bytes, follows)
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
        // Not cached: the statement runs once, when the store is opened.
        let mut select = self.sql.prepare("SELECT DISTINCT run_step >> 32 FROM recent")?;
        let keys = select.query_map([], |row| row.get::<_, i64>(0))?;
        let keys: std::collections::BTreeSet<i64> = keys.collect::<Result<_, _>>()?;
        let mut runs = BTreeMap::new();
        if !keys.is_empty() {
            // Rows have no index by key, and this scan happens only after a crash.
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
