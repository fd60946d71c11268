//! Index of runs: lists by status, by session, by workflow and status, and by owner and status. The index is derived data: if it
//! does not match the rows of the runs, it is rebuilt.

use rusqlite::params;

use crate::content::ContentHash;
use crate::run::{Run, RunFilter, RunPlace, RunStatus};
use crate::sqlite::fault::Fault;
use crate::sqlite::format::cipher::Cipher;
use crate::sqlite::format::codec::checksum;
use crate::sqlite::format::rows::{RunRow, status_code};
use crate::sqlite::tables::Tables;

/// Sum of list entries that does not depend on their order.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::sqlite) struct ListChecksum {
    entries: u64,
    sum: u64,
}

impl ListChecksum {
    fn entry(&mut self, list: &str, started: i64, run: &str) {
        self.entries += 1;
        let sum = checksum(&[list.as_bytes(), &[0], &started.to_le_bytes(), run.as_bytes()]);
        // A sum and not a chained checksum: rows of runs are read by id, and lists by their own order.
        self.sum = self.sum.wrapping_add(u64::from(sum));
    }
}

/// Returns the lists that contain a run.
fn lists_of(run: &Run, cipher: Option<&Cipher>) -> impl Iterator<Item = String> {
    let session = run.session.as_deref().map(|session| of_session(session, cipher));
    let owner = run.owner().map(|owner| of_owner(run.status, owner));
    [of_status(run.status), of_workflow(run.status, &run.workflow)]
        .into_iter()
        .chain(session)
        .chain(owner)
}

fn of_workflow(status: RunStatus, workflow: &str) -> String {
    format!("{} {workflow}", status_code(status))
}

fn of_status(status: RunStatus) -> String {
    status_code(status).to_string()
}

fn of_owner(status: RunStatus, owner: &str) -> String {
    format!("o{} {owner}", status_code(status))
}

fn of_session(session: &str, cipher: Option<&Cipher>) -> String {
    match cipher {
        None => format!("s{session}"),
        Some(cipher) => {
            let hash = ContentHash::from_bytes(cipher.hash(b"listed", session.as_bytes()));
            format!("s{hash}")
        }
    }
}

fn started(at: u64) -> i64 {
    // A saturated time still sorts last. The exact one is in the run's row.
    i64::try_from(at).unwrap_or(i64::MAX)
}

impl Tables {
    pub(in crate::sqlite) fn runs(
        &self,
        filter: &RunFilter,
        mut after: Option<RunPlace>,
        limit: usize,
    ) -> Result<Vec<Run>, Fault> {
        let lists: Vec<String> = if let Some(session) = &filter.session {
            // A session's list is filtered by workflow and status on the rows, because no list has all three.
            vec![of_session(session, self.cipher.as_ref())]
        } else {
            let asked = RunStatus::ALL.into_iter().filter(|status| filter.has_status(*status));
            asked
                .map(|status| match (&filter.owner, &filter.workflow) {
                    // Filtered by workflow on the rows: one owner has few runs of other workflows, compared with all owners.
                    (Some(owner), _) => of_owner(status, owner),
                    (None, Some(workflow)) => of_workflow(status, workflow),
                    (None, None) => of_status(status),
                })
                .collect()
        };
        let mut runs = Vec::new();
        // Another round if the filter drops runs of the lists, until enough are found or the lists end.
        while runs.len() < limit {
            let wanted = limit - runs.len();
            let mut places = Vec::new();
            for list in &lists {
                self.listed(list, after.as_ref(), filter.youngest_first, wanted, &mut places)?;
            }
            // Each list is ordered, but the runs of several statuses have to be merged.
            places.sort_unstable();
            if filter.youngest_first {
                places.reverse();
            }
            // Entries beyond `wanted` of one list may come after entries of another list that are not read yet.
            places.truncate(wanted);
            // By position and not by offset, because runs may be added between two pages.
            after = places.last().cloned();
            for place in &places {
                let row = self.row(&place.id)?.filter(|row| !row.is_hidden);
                runs.extend(row.map(|row| row.run).filter(|run| filter.has(run)));
            }
            if places.len() < wanted {
                break;
            }
        }
        Ok(runs)
    }

    /// Appends up to `limit` entries of a list after a position.
    fn listed(
        &self,
        list: &str,
        after: Option<&RunPlace>,
        youngest_first: bool,
        limit: usize,
        to: &mut Vec<RunPlace>,
    ) -> Result<(), Fault> {
        let (direction, order) = if youngest_first { ("<", "DESC") } else { (">", "ASC") };
        let later = after.map_or_else(String::new, |_| format!("AND (started, run) {direction} (?3, ?4)"));
        let sql = format!(
            "SELECT started, run FROM listed WHERE list = ?1 {later} ORDER BY started {order}, run {order} LIMIT ?2"
        );
        // Only four different texts occur, which the statement cache holds.
        let mut select = self.sql.prepare_cached(&sql)?;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let mut found = match after {
            Some(after) => select.query(params![list, limit, started(after.started_at), after.id])?,
            None => select.query(params![list, limit])?,
        };
        while let Some(found) = found.next()? {
            to.push(RunPlace {
                started_at: found.get::<_, i64>(0)?.cast_unsigned(),
                id: found.get(1)?,
            });
        }
        Ok(())
    }

    /// Adds the entries of a run.
    pub(in crate::sqlite) fn take_lists(&self, row: &RunRow, to: &mut ListChecksum) {
        if !row.is_hidden {
            let started = started(row.run.started_at);
            lists_of(&row.run, self.cipher.as_ref()).for_each(|list| to.entry(&list, started, &row.run.id));
        }
    }

    /// Updates the lists for a changed row of a run.
    pub(in crate::sqlite) fn list(&self, before: Option<&RunRow>, row: &RunRow) -> Result<(), Fault> {
        let lists = |row: &RunRow| -> Vec<String> {
            let shown = Some(&row.run).filter(|_| !row.is_hidden);
            shown
                .into_iter()
                .flat_map(|run| lists_of(run, self.cipher.as_ref()))
                .collect()
        };
        let (was, is) = (before.map(lists).unwrap_or_default(), lists(row));
        let started = started(row.run.started_at);
        // Only differences are written: a change of the status does not affect the session's list.
        for list in was.iter().filter(|list| !is.contains(list)) {
            self.sql
                .prepare_cached("DELETE FROM listed WHERE list = ?1 AND started = ?2 AND run = ?3")?
                .execute(params![list, started, row.run.id])?;
        }
        for list in is.iter().filter(|list| !was.contains(list)) {
            self.sql
                .prepare_cached("INSERT OR IGNORE INTO listed(list, started, run) VALUES(?1, ?2, ?3)")?
                .execute(params![list, started, row.run.id])?;
        }
        Ok(())
    }

    /// Compares the lists with the entries computed from the runs' rows, and rebuilds them if they differ: the store was written by
    /// a version without lists, or is damaged.
    pub(in crate::sqlite) fn check_lists(&self, called_for: &ListChecksum) -> Result<(), Fault> {
        let mut kept = ListChecksum::default();
        let mut select = self.sql.prepare("SELECT list, started, run FROM listed")?;
        let mut found = select.query([])?;
        while let Some(found) = found.next()? {
            let list = found.get_ref(0)?.as_str().map_err(rusqlite::Error::from)?;
            let run = found.get_ref(2)?.as_str().map_err(rusqlite::Error::from)?;
            kept.entry(list, found.get(1)?, run);
        }
        drop(found);
        if kept == *called_for {
            return Ok(());
        }
        self.sql.execute_batch("BEGIN IMMEDIATE; DELETE FROM listed;")?;
        // The rows of the runs have checksums, so they are the truth and the lists are derived from them.
        self.each_run(|row| self.list(None, &row))?;
        self.sql.execute_batch("COMMIT")?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::StatementStatus;

    use super::*;
    use crate::commit::{Commit, NewRun};
    use crate::content::Content;
    use crate::sqlite::file::open::open;

    /// Creates a store with `ended` runs that have ended and ten that wait.
    fn tables(ended: u64) -> (tempfile::TempDir, Tables) {
        let folder = tempfile::tempdir().expect("a folder");
        let mut tables = open(&folder.path().join("runs.db"), None, None).expect("opens").tables;
        let definition = Content::new("{}");
        tables.sql.execute_batch("BEGIN").expect("begins");
        for number in 0..ended + 10 {
            let mut new = NewRun::new("flow", definition.hash(), number);
            new.session = (number >= ended).then(|| "desk".to_owned());
            let status = if number < ended {
                RunStatus::Completed
            } else {
                RunStatus::Waiting(crate::run::WaitingFor::Event)
            };
            let commit = Commit::start(format!("run-{number:06}"), new).content(definition.clone());
            tables.commit(&commit.status(status)).expect("commits");
        }
        tables.sql.execute_batch("COMMIT").expect("commits");
        (folder, tables)
    }

    /// Returns the number of VM steps of the query on the list, and the number of runs found.
    fn looked_at(tables: &Tables, filter: &RunFilter, limit: usize) -> (i32, usize) {
        let sql = "SELECT started, run FROM listed WHERE list = ?1  ORDER BY started ASC, run ASC LIMIT ?2";
        let steps = |tables: &Tables| {
            let statement = tables.sql.prepare_cached(sql).expect("is cached");
            statement.reset_status(StatementStatus::VmStep)
        };
        steps(tables);
        let found = tables.runs(filter, None, limit).expect("reads").len();
        (steps(tables), found)
    }

    #[test]
    fn listing_a_few_runs_does_not_read_the_others() {
        let live = RunFilter::live();
        let of_session = RunFilter {
            session: Some("desk".into()),
            ..RunFilter::default()
        };
        let latest = RunFilter::default();
        let (_few_in, few) = tables(100);
        let (_many_in, many) = tables(10_000);
        for (filter, limit) in [(live, usize::MAX), (of_session, usize::MAX), (latest, 10)] {
            let (small, large) = (looked_at(&few, &filter, limit), looked_at(&many, &filter, limit));
            assert_eq!((small.1, large.1), (10, 10), "{filter:?}");
            assert!(
                small.0 > 10 && large.0 <= small.0 + 10,
                "{filter:?}: {small:?} {large:?}"
            );
        }
    }

    #[test]
    fn lists_that_contradict_the_runs_are_rebuilt() {
        for damage in [
            "DELETE FROM listed WHERE run = 'run-000025'",
            "UPDATE listed SET list = '4' WHERE run = 'run-000025' AND list = '2'",
            "INSERT INTO listed VALUES('2', 7, 'run-000003')",
            "DROP TABLE listed",
        ] {
            let (folder, whole) = tables(20);
            let live = whole.runs(&RunFilter::live(), None, 100).expect("reads");
            whole.sql.execute_batch(damage).expect("damages");
            drop(whole);
            let again = open(&folder.path().join("runs.db"), None, None).expect("opens").tables;
            assert_eq!(
                again.runs(&RunFilter::live(), None, 100).expect("reads"),
                live,
                "{damage}"
            );
            let of_status = RunFilter {
                status: Some("COMPLETED".into()),
                ..RunFilter::default()
            };
            assert_eq!(again.runs(&of_status, None, 100).expect("reads").len(), 20, "{damage}");
        }
    }
}
