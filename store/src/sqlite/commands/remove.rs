//! Removal of runs and of the data that only they use.

use std::collections::{BTreeMap, BTreeSet};

use rusqlite::params;

use crate::commit::Commit;
use crate::content::ContentHash;
use crate::sqlite::fault::Fault;
use crate::sqlite::format::cipher::Of;
use crate::sqlite::format::rows::RunRow;
use crate::sqlite::tables::{Tables, row_of};
use crate::store::Removed;

impl Tables {
    pub(in crate::sqlite) fn remove(&mut self, ids: &[String]) -> Result<Removed, Fault> {
        // First, because a journal is deleted by the range of its keys, which the recent records are not part of.
        self.move_recent()?;
        let mut removed = Removed::default();
        for id in ids {
            // An id may be unknown or given twice, which is no error.
            let Some(mut row) = self.row(id)?.filter(|row| !row.is_hidden) else {
                continue;
            };
            let shown = row.clone();
            // Hidden first and erased below: the run may be the base of forks, or of another removed run.
            row.is_hidden = true;
            self.list(Some(&shown), &row)?;
            self.sql
                .prepare_cached("UPDATE runs SET body = ?2 WHERE id = ?1")?
                .execute(params![id, self.encode_run(&row)?])?;
            self.sql
                .prepare_cached("DELETE FROM timers WHERE run = ?1")?
                .execute([id])?;
            removed.runs += 1;
        }
        // Number of forks by base, and the hidden runs: both maps are small.
        let (mut forks, mut hidden) = (BTreeMap::<String, u64>::new(), BTreeMap::new());
        self.each_run(|row| {
            if let Some(base) = &row.run.base {
                *forks.entry(base.run.clone()).or_default() += 1;
            }
            if row.is_hidden {
                hidden.insert(row.run.id.clone(), row);
            }
            Ok(())
        })?;
        let mut names = BTreeSet::new();
        // Hidden runs without forks. Their bases follow when the last fork is erased.
        let mut free: Vec<String> = hidden.keys().filter(|id| !forks.contains_key(*id)).cloned().collect();
        while let Some(id) = free.pop() {
            // A base that is not hidden was pushed as well: other runs may follow it in the list.
            let Some(row) = hidden.remove(&id) else { continue };
            removed.bytes += self.erase(&row)?;
            names.extend(row.names().copied());
            if let Some(base) = &row.run.base
                && let Some(count) = forks.get_mut(&base.run)
            {
                *count -= 1;
                if *count == 0 {
                    // The last fork is gone. `hidden` decides whether the base is removed too.
                    free.push(base.run.clone());
                }
            }
        }
        removed.bytes += self.collect(names)?;
        self.is_shrinking |= removed.runs > 0;
        Ok(removed)
    }

    pub(in crate::sqlite) fn replace(&mut self, commit: &Commit) -> Result<u64, Fault> {
        self.visible(&commit.run)?;
        self.remove(std::slice::from_ref(&commit.run))?;
        // Refused if the run is the base of a fork: it is hidden then, and still has its id. The transaction undoes its removal.
        self.commit(commit)
    }

    pub(in crate::sqlite) fn remove_session(&mut self, id: &str) -> Result<bool, Fault> {
        let Some(session) = self.session(id)? else {
            return Ok(false);
        };
        self.delete_named(Of::Sessions, id)?;
        self.is_shrinking = true;
        self.collect(session.contents.into_iter().collect())?;
        Ok(true)
    }

    fn erase(&self, row: &RunRow) -> Result<u64, Fault> {
        // The key is the upper half of the row id, so this range is the journal of one run.
        let (first, last) = (row_of(row.key, 0), row_of(row.key, u64::from(u32::MAX)));
        let sql = "SELECT (SELECT ifnull(sum(length(body)), 0) FROM journal WHERE id BETWEEN ?1 AND ?2)
            + (SELECT ifnull(sum(length(body)), 0) FROM snapshots WHERE run = ?3)";
        // Measured before the rows are deleted.
        let bytes: i64 = self
            .sql
            .prepare_cached(sql)?
            .query_row([first, last, row.key.cast_signed()], |row| row.get(0))?;
        self.sql
            .prepare_cached("DELETE FROM journal WHERE id BETWEEN ?1 AND ?2")?
            .execute([first, last])?;
        self.sql
            .prepare_cached("DELETE FROM snapshots WHERE run = ?1")?
            .execute([row.key.cast_signed()])?;
        self.sql
            .prepare_cached("DELETE FROM runs WHERE id = ?1")?
            .execute([&row.run.id])?;
        Ok(bytes as u64)
    }

    /// Deletes those of these contents, and of their predecessors, that no run or session needs. Returns the number of bytes.
    fn collect(&self, candidates: BTreeSet<ContentHash>) -> Result<u64, Fault> {
        // All runs are read once: first the candidate chains are collected, then everything that is named is taken out.
        let (mut lines, mut unnamed) = (Vec::new(), BTreeSet::new());
        for hash in candidates {
            if self.has_followers(&hash, 1)? {
                continue;
            }
            let mut line = vec![hash];
            let mut next = self.followed(&hash)?;
            while let Some(before) = next
                // One follower is the content before it in this line. A second one is another chain, which still needs this
                // content.
                && !self.has_followers(&before, 2)?
            {
                line.push(before);
                next = self.followed(&before)?;
            }
            unnamed.extend(line.iter().copied());
            lines.push(line);
        }
        if unnamed.is_empty() {
            return Ok(0);
        }
        self.each_run(|row| {
            row.names().for_each(|hash| {
                unnamed.remove(hash);
            });
            Ok(())
        })?;
        self.each_named(Of::Sessions, |id, bytes| {
            let session = self.decode_session(&id, &bytes)?;
            session.contents.iter().for_each(|hash| {
                unnamed.remove(hash);
            });
            Ok(())
        })?;
        let (mut bytes, mut behind) = (0, BTreeSet::new());
        for line in lines {
            // A named content needs all of its predecessors, so the line ends there.
            let free = line.iter().take_while(|hash| unnamed.contains(*hash));
            for hash in free {
                let before = self.followed(hash)?;
                bytes += self.delete_content(hash)?;
                // Two chains may have a common predecessor, which is free once both are deleted: collect from there again.
                behind.extend(before.filter(|_| line.last() == Some(hash)));
            }
        }
        Ok(bytes + if behind.is_empty() { 0 } else { self.collect(behind)? })
    }

    /// Returns true if at least this number of contents follow a content.
    fn has_followers(&self, hash: &ContentHash, at_least: i64) -> Result<bool, Fault> {
        // The limit keeps the count cheap for a content that many others follow.
        let sql = "SELECT count(*) FROM (SELECT 1 FROM contents WHERE follows = ?1 LIMIT ?2)";
        let mut select = self.sql.prepare_cached(sql)?;
        let mut found = 0;
        for row in self.content_rows(hash) {
            found += select.query_row(params![row, at_least], |row| row.get::<_, i64>(0))?;
        }
        Ok(found >= at_least)
    }

    fn delete_content(&self, hash: &ContentHash) -> Result<u64, Fault> {
        let sql = "SELECT ifnull(sum(length(CAST(body AS BLOB))), 0) FROM contents WHERE hash = ?1";
        let mut select = self.sql.prepare_cached(sql)?;
        let mut delete = self.sql.prepare_cached("DELETE FROM contents WHERE hash = ?1")?;
        let mut bytes = 0;
        for row in self.content_rows(hash) {
            bytes += select.query_row([row], |row| row.get::<_, i64>(0))?.cast_unsigned();
            delete.execute([row])?;
        }
        Ok(bytes)
    }

    pub(in crate::sqlite) fn each_run(&self, mut tell: impl FnMut(RunRow) -> Result<(), Fault>) -> Result<(), Fault> {
        let mut select = self.sql.prepare_cached("SELECT id, body FROM runs")?;
        let mut found = select.query([])?;
        while let Some(found) = found.next()? {
            tell(self.run_row(found)?)?;
        }
        Ok(())
    }
}
