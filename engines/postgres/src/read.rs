//! Queries other than commits.

use std::sync::Arc;

use pirn_store::{
    Base, ContentHash, Record, Removed, Run, RunFilter, RunPlace, RunStatus, Session, Snapshot, StoreError, Timer,
};
use tokio_postgres::Row;

use crate::connection::connect::Connection;
use crate::connection::fault::Fault;
use crate::connection::parameter::Parameter;

/// Answer to a query. A refusal by the store is an answer too.
pub(crate) type Answer<T> = Result<Result<T, StoreError>, Fault>;

/// Converts a limit to a `bigint`.
fn most(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

fn number(row: &Row, column: usize) -> Result<u64, Fault> {
    Ok(row.try_get::<_, i64>(column)?.cast_unsigned())
}

fn hash(bytes: &[u8]) -> Result<ContentHash, Fault> {
    let bytes = bytes.try_into().map(ContentHash::from_bytes);
    bytes.map_err(|_| Fault::Failed("a stored hash does not have 32 bytes".to_owned()))
}

fn hashes(row: &Row, column: usize) -> Result<Vec<ContentHash>, Fault> {
    let kept: Vec<&[u8]> = row.try_get(column)?;
    kept.into_iter().map(hash).collect()
}

const RUN: &str = "SELECT id, workflow, definition, contents, semantics, session, base_run, base_step, status, started_at, \
    updated_at, steps FROM pirn.runs WHERE id = $1 AND NOT is_hidden";

fn run_of(row: &Row) -> Result<Run, Fault> {
    let base: Option<String> = row.try_get(6)?;
    let status: i16 = row.try_get(8)?;
    // A later version may have more statuses.
    let status = usize::try_from(status).ok().and_then(|place| RunStatus::ALL.get(place));
    Ok(Run {
        id: row.try_get(0)?,
        workflow: row.try_get(1)?,
        definition: hash(row.try_get(2)?)?,
        contents: hashes(row, 3)?,
        semantics: u32::try_from(row.try_get::<_, i64>(4)?).unwrap_or_default(),
        session: row.try_get(5)?,
        base: match base {
            Some(run) => Some(Base {
                run,
                step: number(row, 7)?,
            }),
            None => None,
        },
        status: *status.ok_or_else(|| Fault::Failed("a stored status is unknown".to_owned()))?,
        started_at: number(row, 9)?,
        updated_at: number(row, 10)?,
        steps: number(row, 11)?,
    })
}

pub(crate) async fn run(on: &Connection, id: &str) -> Answer<Option<Run>> {
    let rows = on.query(RUN, &[&id]).await?;
    Ok(Ok(rows.first().map(run_of).transpose()?))
}

/// SQL of a page of runs with some statuses after a position; `$6` is the owner, `$and` a further condition on `$7`.
macro_rules! listed {
    ($and:literal, $is_after:literal, $order:literal) => {
        concat!(
            "SELECT id, workflow, definition, contents, semantics, session, base_run, base_step, status, started_at, \
             updated_at, steps FROM pirn.runs WHERE NOT is_hidden AND status = ANY($1) AND ($2::text IS NULL OR session = $2) \
             AND ($6::text IS NULL OR split_part(id, '~', 1) = $6 AND strpos(id, '~') > 0) ",
            $and,
            " AND ($3::bigint IS NULL OR (started_at, id) ",
            $is_after,
            " ($3, $4)) ORDER BY ",
            $order,
            " LIMIT $5"
        )
    };
}

// Separate statements instead of `$7 IS NULL OR ...`, so that the planner can use the index of workflows.
const OLDEST: &str = listed!("", ">", "started_at, id");
const YOUNGEST: &str = listed!("", "<", "started_at DESC, id DESC");
const OLDEST_OF_WORKFLOW: &str = listed!("AND workflow = $7", ">", "started_at, id");
const YOUNGEST_OF_WORKFLOW: &str = listed!("AND workflow = $7", "<", "started_at DESC, id DESC");

pub(crate) async fn runs(
    on: &Connection,
    filter: &RunFilter,
    after: Option<&RunPlace>,
    limit: usize,
) -> Answer<Vec<Run>> {
    let statuses = RunStatus::ALL.into_iter().filter(|status| filter.has_status(*status));
    let statuses: Vec<i16> = statuses.map(status_code).collect();
    let started = after.map(|after| after.started_at.cast_signed());
    let id = after.map(|after| &*after.id);
    let most = most(limit);
    let rows = match &filter.workflow {
        None => {
            let sql = if filter.youngest_first { YOUNGEST } else { OLDEST };
            on.query(sql, &[&statuses, &filter.session, &started, &id, &most, &filter.owner])
                .await?
        }
        Some(workflow) => {
            let sql = if filter.youngest_first {
                YOUNGEST_OF_WORKFLOW
            } else {
                OLDEST_OF_WORKFLOW
            };
            let given: [&dyn Parameter; 7] = [
                &statuses,
                &filter.session,
                &started,
                &id,
                &most,
                &filter.owner,
                workflow,
            ];
            on.query(sql, &given).await?
        }
    };
    let runs: Result<Vec<Run>, Fault> = rows.iter().map(run_of).collect();
    Ok(Ok(runs?))
}

pub(crate) async fn journal(on: &Connection, id: &str, after: u64, limit: usize) -> Answer<Vec<Record>> {
    let sql = "SELECT at, effect, body FROM pirn.read_journal($1, $2, $3)";
    // No run has that many steps, so the answer is empty, as it should be.
    let after = i64::try_from(after).unwrap_or(i64::MAX);
    let rows = on.query(sql, &[&id, &after, &most(limit)]).await?;
    let records = rows.iter().map(|row| {
        Ok::<_, Fault>(Record {
            at: number(row, 0)?,
            effect: row.try_get(1)?,
            body: row.try_get(2)?,
        })
    });
    let records: Result<Vec<Record>, Fault> = records.collect();
    Ok(Ok(records?))
}

pub(crate) async fn contents(on: &Connection, wanted: &[ContentHash]) -> Answer<Vec<Arc<str>>> {
    let sql = "SELECT c.body FROM unnest($1::bytea[]) WITH ORDINALITY AS w(hash, at) \
        LEFT JOIN pirn.contents c ON c.hash = w.hash ORDER BY w.at";
    let hashes: Vec<&[u8]> = wanted.iter().map(|hash| &hash.as_bytes()[..]).collect();
    let rows = on.query(sql, &[&hashes]).await?;
    let mut texts = Vec::with_capacity(rows.len());
    // The outer join returns one row for each wanted hash, in the order of the hashes.
    for (row, hash) in rows.iter().zip(wanted) {
        let Some(text) = row.try_get::<_, Option<&str>>(0)? else {
            return Ok(Err(StoreError::NoSuchContent { hash: *hash }));
        };
        texts.push(text.into());
    }
    Ok(Ok(texts))
}

pub(crate) async fn chain(on: &Connection, last: ContentHash, limit: usize) -> Answer<Vec<ContentHash>> {
    let sql = "SELECT pirn.chain($1, $2)";
    let rows = on.query(sql, &[&&last.as_bytes()[..], &most(limit)]).await?;
    let chain = rows.iter().map(|row| hash(row.try_get(0)?));
    let chain: Vec<ContentHash> = chain.collect::<Result<_, Fault>>()?;
    // A content that exists is always the first of its own chain.
    if chain.is_empty() && limit > 0 {
        return Ok(Err(StoreError::NoSuchContent { hash: last }));
    }
    Ok(Ok(chain))
}

pub(crate) async fn snapshot(on: &Connection, id: &str, at_most: u64) -> Answer<Option<Snapshot>> {
    let sql = "SELECT s.step, s.body FROM pirn.runs r LEFT JOIN pirn.snapshots s ON s.run = r.key AND s.step <= $2 \
        WHERE r.id = $1 AND NOT r.is_hidden";
    let at_most = i64::try_from(at_most).unwrap_or(i64::MAX);
    let rows = on.query(sql, &[&id, &at_most]).await?;
    let Some(row) = rows.first() else {
        return Ok(Err(StoreError::NoSuchRun { run: id.to_owned() }));
    };
    // The outer join distinguishes a run without a snapshot from a missing run.
    let Some(step) = row.try_get::<_, Option<i64>>(0)? else {
        return Ok(Ok(None));
    };
    Ok(Ok(Some(Snapshot {
        step: step.cast_unsigned(),
        body: row.try_get(1)?,
    })))
}

pub(crate) async fn timers(on: &Connection, until: u64, limit: usize) -> Answer<Vec<Timer>> {
    let sql = "SELECT t.due, r.id, t.effect FROM pirn.timers t JOIN pirn.runs r ON r.key = t.run WHERE t.due <= $1 \
        ORDER BY t.due, r.id, t.effect LIMIT $2";
    let until = i64::try_from(until).unwrap_or(i64::MAX);
    let rows = on.query(sql, &[&until, &most(limit)]).await?;
    let timers = rows.iter().map(|row| {
        Ok::<_, Fault>(Timer {
            due: number(row, 0)?,
            run: row.try_get(1)?,
            effect: row.try_get(2)?,
        })
    });
    let timers: Result<Vec<Timer>, Fault> = timers.collect();
    Ok(Ok(timers?))
}

fn session_of(row: &Row) -> Result<Session, Fault> {
    Ok(Session {
        id: row.try_get(0)?,
        version: number(row, 1)?,
        body: row.try_get(2)?,
        contents: hashes(row, 3)?,
        run: row.try_get(4)?,
        updated_at: number(row, 5)?,
    })
}

pub(crate) async fn sessions(on: &Connection, after: Option<&str>, limit: usize) -> Answer<Vec<Session>> {
    let sql = "SELECT id, version, body, contents, run, updated_at FROM pirn.sessions \
        WHERE $1::text IS NULL OR id > $1 ORDER BY id LIMIT $2";
    let rows = on.query(sql, &[&after, &most(limit)]).await?;
    let sessions: Result<Vec<Session>, Fault> = rows.iter().map(session_of).collect();
    Ok(Ok(sessions?))
}

pub(crate) async fn session(on: &Connection, id: &str) -> Answer<Option<Session>> {
    let sql = "SELECT id, version, body, contents, run, updated_at FROM pirn.sessions WHERE id = $1";
    let rows = on.query(sql, &[&id]).await?;
    Ok(Ok(rows.first().map(session_of).transpose()?))
}

pub(crate) async fn set_meta(on: &Connection, name: &str, value: Option<&str>) -> Answer<()> {
    let set =
        "INSERT INTO pirn.meta(name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value";
    match value {
        Some(value) => on.query(set, &[&name, &value]).await?,
        None => on.query("DELETE FROM pirn.meta WHERE name = $1", &[&name]).await?,
    };
    Ok(Ok(()))
}

pub(crate) async fn meta(on: &Connection, name: &str) -> Answer<Option<String>> {
    let rows = on
        .query("SELECT value FROM pirn.meta WHERE name = $1", &[&name])
        .await?;
    let value = rows.first().map(|row| row.try_get(0)).transpose()?;
    Ok(Ok(value))
}

pub(crate) async fn remove(on: &Connection, ids: &[String], dry_run: bool) -> Answer<Removed> {
    // A dry run executes the removal and rolls it back, so that both return equal counts.
    on.execute("BEGIN").await?;
    let rows = on.query("SELECT runs, bytes FROM pirn.remove($1)", &[&ids]).await;
    // Also after an error: the connection would stay in the aborted transaction.
    on.execute(if rows.is_err() || dry_run { "ROLLBACK" } else { "COMMIT" })
        .await?;
    let rows = rows?;
    let row = rows.first().ok_or_else(|| Fault::Failed("no answer".to_owned()))?;
    Ok(Ok(Removed {
        runs: number(row, 0)?,
        bytes: number(row, 1)?,
    }))
}

pub(crate) async fn remove_session(on: &Connection, id: &str) -> Answer<bool> {
    let rows = on.query("SELECT pirn.remove_session($1)", &[&id]).await?;
    let row = rows.first().ok_or_else(|| Fault::Failed("no answer".to_owned()))?;
    Ok(Ok(row.try_get(0)?))
}

/// Returns the stored number of a status.
pub(crate) fn status_code(status: RunStatus) -> i16 {
    let place = RunStatus::ALL.iter().position(|known| *known == status);
    place.and_then(|place| i16::try_from(place).ok()).unwrap_or_default()
}
