//! Reads. All of them verify checksums.

use std::sync::Arc;

use rusqlite::{OptionalExtension, params};

use super::run_index::ListChecksum;
use crate::content::ContentHash;
use crate::error::StoreError;
use crate::run::{Record, Session, Snapshot, Timer};
use crate::sqlite::fault::{Fault, damaged};
use crate::sqlite::format::cipher::Of;
use crate::sqlite::format::records;
use crate::sqlite::format::rows::{self, RunRow};
use crate::sqlite::tables::{Tables, row_of};

/// Part of a journal that is stored with one run: steps `after + 1` to `last` with key `key`. Steps after `moved` are still in
/// the table `recent`.
#[derive(Clone, Copy)]
struct Part<'a> {
    key: u64,
    after: u64,
    last: u64,
    moved: u64,
    recent: &'a [i64],
}

impl Part<'_> {
    /// Returns the id in `recent` of a step that is not moved.
    fn place(&self, step: u64) -> Option<i64> {
        // One id for each step, in the order of the steps.
        self.recent.get((step - self.moved - 1) as usize).copied()
    }
}

impl Tables {
    /// Decodes a row with the columns `id, body`.
    pub(in crate::sqlite) fn run_row(&self, found: &rusqlite::Row<'_>) -> Result<RunRow, Fault> {
        let id = found.get_ref(0)?.as_str().map_err(rusqlite::Error::from)?;
        let bytes = found.get_ref(1)?.as_blob().map_err(rusqlite::Error::from)?;
        self.decode_run(id, bytes)
    }

    pub(in crate::sqlite) fn journal(&self, id: &str, after: u64, limit: usize) -> Result<Vec<Record>, Fault> {
        let row = self.visible(id)?;
        if after >= row.run.steps {
            // A lost update of the run's row would otherwise look like a shorter run.
            self.nothing_after(&row)?;
            return Ok(Vec::new());
        }
        let parts = self.parts(&row, row.run.steps)?;
        // A page in the middle starts with the checksum of the record before it, so its first record is verified too.
        let mut follows = self.checksum_at(&row, after)?;
        // The limit may be `usize::MAX`, so the number of steps bounds the allocation.
        let mut records = Vec::with_capacity(limit.min((row.run.steps - after) as usize));
        for part in parts {
            let from = part.after.max(after);
            let last = part.last.min(after.saturating_add(limit as u64));
            if from < last {
                follows = self.read_part(
                    id,
                    Part {
                        after: from,
                        last,
                        ..part
                    },
                    follows,
                    &mut records,
                )?;
            }
        }
        if after + records.len() as u64 == row.run.steps {
            // The chain of checksums ends at the row, so a whole journal that was exchanged is detected.
            if follows != row.head {
                return Err(self.damaged(id, "its last step does not match the run's row"));
            }
            self.nothing_after(&row)?;
        }
        Ok(records)
    }

    /// Returns the parts of the journal up to step `last`, earliest first.
    fn parts(&self, row: &RunRow, mut last: u64) -> Result<Vec<Part<'_>>, Fault> {
        let mut parts = Vec::new();
        let mut next = Some(row.clone());
        while let Some(row) = next {
            let after = row.base_step();
            if after < last {
                let recent = self.recent.places(&row.run.id);
                parts.push(Part {
                    key: row.key,
                    after,
                    last,
                    // The recent records are always the last ones of their run.
                    moved: row.run.steps - recent.len() as u64,
                    recent,
                });
                last = after;
            }
            // No ancestor is read once the parts reach the first step.
            next = if last == 0 { None } else { self.base_of(&row)? };
        }
        // The ancestors were visited from the youngest, and records are read from the oldest.
        parts.reverse();
        Ok(parts)
    }

    fn read_part(&self, id: &str, part: Part<'_>, mut follows: u32, records: &mut Vec<Record>) -> Result<u32, Fault> {
        let mut read = |seq: u64, row: &rusqlite::Row<'_>| -> Result<(), Fault> {
            // The query returns rows in order, so a missing one shows as a later number.
            if row.get::<_, i64>(0)? != row_of(part.key, seq) {
                return Err(self.damaged(id, format!("step {seq} is missing")));
            }
            let bytes = row.get_ref(1)?.as_blob().map_err(rusqlite::Error::from)?;
            let (record, sum) = self
                .decode_record(row_of(part.key, seq), bytes, follows)
                .map_err(|why| damaged(&self.file, Some(id), &format!("step {seq}"), why))?;
            records.push(record);
            follows = sum;
            Ok(())
        };
        let missing = |seq: u64| self.damaged(id, format!("step {seq} is missing"));
        let moved = part.last.min(part.moved);
        let mut select = self
            .sql
            .prepare_cached("SELECT id, body FROM journal WHERE id BETWEEN ?1 AND ?2 ORDER BY id")?;
        let mut found = select.query([row_of(part.key, part.after + 1), row_of(part.key, moved)])?;
        for seq in part.after + 1..=moved {
            read(seq, found.next()?.ok_or_else(|| missing(seq))?)?;
        }
        let mut select = self
            .sql
            .prepare_cached("SELECT run_step, body FROM recent WHERE id = ?1")?;
        for seq in part.after.max(moved) + 1..=part.last {
            let mut found = select.query([part.place(seq)])?;
            read(seq, found.next()?.ok_or_else(|| missing(seq))?)?;
        }
        Ok(follows)
    }

    /// Fails if the journal has a step after the last one in its run's row.
    fn nothing_after(&self, row: &RunRow) -> Result<(), Fault> {
        // One lookup of the next key: a gap of more than one step is not searched.
        let mut select = self.sql.prepare_cached("SELECT 1 FROM journal WHERE id = ?1")?;
        if select.exists([row_of(row.key, row.run.steps + 1)])? {
            return Err(self.damaged(&row.run.id, format!("it has a step after {}, its last", row.run.steps)));
        }
        Ok(())
    }

    /// Returns the checksum of a step's record, which the next record includes.
    pub(in crate::sqlite) fn checksum_at(&self, row: &RunRow, step: u64) -> Result<u32, Fault> {
        // The usual case, without a read.
        if step == row.run.steps {
            return Ok(row.head);
        }
        if step == 0 {
            let (mut id, mut definition) = (row.run.id.clone(), row.run.definition);
            let mut base = self.base_of(row)?;
            while let Some(row) = base {
                base = self.base_of(&row)?;
                // The first record belongs to the oldest ancestor, so the root is made of its id and definition.
                (id, definition) = (row.run.id, row.run.definition);
            }
            return Ok(records::root(&id, definition.as_bytes()));
        }
        let id = &row.run.id;
        let parts = self.parts(row, step)?;
        let last = parts
            .last()
            .ok_or_else(|| self.damaged(id, format!("step {step} is missing")))?;
        let (sql, place) = if step > last.moved {
            ("SELECT body FROM recent WHERE id = ?1", last.place(step))
        } else {
            ("SELECT body FROM journal WHERE id = ?1", Some(row_of(last.key, step)))
        };
        let mut select = self.sql.prepare_cached(sql)?;
        let bytes: Option<Vec<u8>> = select.query_row([place], |row| row.get(0)).optional()?;
        let opened = bytes
            .as_ref()
            .map(|bytes| self.opened(Of::Journal, &row_of(last.key, step).to_le_bytes(), bytes))
            .transpose();
        let opened = opened.map_err(|why| damaged(&self.file, Some(id), &format!("step {step}"), why))?;
        // Not verified here: a wrong value makes the next record fail its own check.
        let sum = opened.as_ref().and_then(|bytes| bytes.last_chunk()).copied();
        sum.map(u32::from_le_bytes)
            .ok_or_else(|| self.damaged(id, format!("step {step} is missing")))
    }

    pub(in crate::sqlite) fn contents(&self, hashes: &[ContentHash]) -> Result<Vec<Arc<str>>, Fault> {
        let read = |hash: &ContentHash| -> Result<Arc<str>, Fault> {
            let found = self.content(hash)?;
            Ok(found.ok_or(StoreError::NoSuchContent { hash: *hash })?)
        };
        hashes.iter().map(read).collect()
    }

    /// Returns a content and its predecessors, last one first.
    pub(in crate::sqlite) fn chain(&self, last: ContentHash, limit: usize) -> Result<Vec<ContentHash>, Fault> {
        // `followed` does not distinguish a missing content from the start of a chain.
        self.know([&last].into_iter())?;
        let (mut chain, mut next) = (Vec::new(), Some(last));
        while let Some(hash) = next.filter(|_| chain.len() < limit) {
            chain.push(hash);
            next = self.followed(&hash)?;
        }
        Ok(chain)
    }

    pub(in crate::sqlite) fn sessions(&self, after: Option<&str>, limit: usize) -> Result<Vec<Session>, Fault> {
        if self.cipher.is_some() {
            return self.hidden_sessions(after, limit);
        }
        let mut select = self
            .sql
            .prepare_cached("SELECT id FROM sessions WHERE id > ?1 ORDER BY id LIMIT ?2")?;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let mut found = select.query(params![after.unwrap_or_default(), limit])?;
        let mut sessions = Vec::new();
        while let Some(found) = found.next()? {
            // By `session`, which verifies the row.
            sessions.extend(self.session(&found.get::<_, String>(0)?)?);
        }
        Ok(sessions)
    }

    /// Reads all sessions of an encrypted store: hashed names have no order.
    fn hidden_sessions(&self, after: Option<&str>, limit: usize) -> Result<Vec<Session>, Fault> {
        let mut sessions = Vec::new();
        self.each_named(Of::Sessions, |id, bytes| {
            if after.is_none_or(|after| *id > *after) {
                sessions.push(self.decode_session(&id, &bytes)?);
            }
            Ok(())
        })?;
        sessions.sort_unstable_by(|one: &Session, other| one.id.cmp(&other.id));
        sessions.truncate(limit);
        Ok(sessions)
    }

    pub(in crate::sqlite) fn snapshot(&self, id: &str, at_most: u64) -> Result<Option<Snapshot>, Fault> {
        let row = self.visible(id)?;
        let mut select = self.sql.prepare_cached("SELECT body FROM snapshots WHERE run = ?1")?;
        let bytes: Option<Vec<u8>> = select.query_row([row.key.cast_signed()], |row| row.get(0)).optional()?;
        let Some(bytes) = bytes else {
            return Ok(None);
        };
        let (snapshot, follows) = self
            .opened(Of::Snapshots, &row.key.to_le_bytes(), &bytes)
            .and_then(|bytes| rows::decode_snapshot(row.key, &bytes))
            .map_err(|why| damaged(&self.file, Some(id), "its snapshot", why))?;
        // A snapshot of another journal would continue the run from a state that it never had.
        if snapshot.step > row.run.steps || follows != self.checksum_at(&row, snapshot.step)? {
            return Err(self.damaged(id, "its snapshot is of another journal"));
        }
        Ok(Some(snapshot).filter(|snapshot| snapshot.step <= at_most))
    }

    pub(in crate::sqlite) fn timers(&self, until: u64, limit: usize) -> Result<Vec<Timer>, Fault> {
        let sql = "SELECT due, run, effect, checksum FROM timers WHERE due <= ?1 ORDER BY due, run, effect LIMIT ?2";
        let mut select = self.sql.prepare_cached(sql)?;
        let (until, limit) = (
            // `u64::MAX` requests all timers, and no timer is due later than `i64::MAX` (see `Commit::check`).
            i64::try_from(until).unwrap_or(i64::MAX),
            i64::try_from(limit).unwrap_or(i64::MAX),
        );
        let mut rows = select.query(params![until, limit])?;
        let mut timers = Vec::new();
        while let Some(row) = rows.next()? {
            let timer = Timer {
                due: row.get::<_, i64>(0)? as u64,
                run: row.get(1)?,
                effect: row.get(2)?,
            };
            if row.get::<_, u32>(3)? != rows::timer_sum(&timer) {
                return Err(self.damaged(
                    &timer.run,
                    format!("its timer {}: the checksum does not match", timer.effect),
                ));
            }
            timers.push(timer);
        }
        Ok(timers)
    }

    pub(in crate::sqlite) fn meta(&self, name: &str) -> Result<Option<String>, Fault> {
        let bytes = self.named(Of::Meta, name)?;
        let value = bytes.map(|bytes| rows::decode_meta(name, &bytes)).transpose();
        Ok(value.map_err(|why| damaged(&self.file, None, name, why))?)
    }

    /// Verifies every small row. A changed bit in a row's key would otherwise look like a missing row.
    pub(in crate::sqlite) fn check_rows(&self) -> Result<u64, Fault> {
        let mut select = self.sql.prepare("SELECT id, body FROM runs")?;
        let mut found = select.query([])?;
        let mut next_key = 1;
        let mut listed = ListChecksum::default();
        while let Some(found) = found.next()? {
            let row = self.run_row(found)?;
            // A key above those of all rows. The key of a removed run may be used again, because its records are erased.
            next_key = next_key.max(row.key + 1);
            self.take_lists(&row, &mut listed);
        }
        self.check_lists(&listed)?;
        self.each_named(Of::Sessions, |id, bytes| self.decode_session(&id, &bytes).map(drop))?;
        self.each_named(Of::Meta, |name, bytes| {
            let value = rows::decode_meta(&name, &bytes);
            Ok(value.map(drop).map_err(|why| damaged(&self.file, None, &name, why))?)
        })?;
        // Reading verifies.
        self.timers(u64::MAX, usize::MAX)?;
        Ok(next_key)
    }
}
