//! Reads of the objects' state by SQL queries of the admin API, which need no worker.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pirn_store::{ContentHash, Record, Run, RunFilter, RunPlace, RunStatus, Session, Snapshot, StoreError, Timer};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::client::Server;
use crate::head::{Head, place};
use crate::keys;
use crate::objects::{CONTENT, META, RUN, SESSION};
use crate::wire::{JournalRecord, KeptSession, KeptSnapshot};

/// Maximum number of rows of one query.
const PAGE: usize = 1_000;
/// Maximum number of object keys in one query.
// Bounds the length of a query, which contains every key.
const MOST_KEYS: usize = 100;

/// Row of the state table: one key of an object's state.
#[derive(Deserialize)]
pub(crate) struct Row {
    /// Key of the object.
    pub(crate) service_key: String,
    pub(crate) key: String,
    /// Value; none if the query did not select it.
    #[serde(default)]
    value_utf8: Option<String>,
}

impl Row {
    pub(crate) fn value<T: DeserializeOwned>(&self, server: &Server) -> Result<T, StoreError> {
        let text = self.value_utf8.as_deref().unwrap_or("null");
        serde_json::from_str(text).map_err(|error| damaged(server, &self.service_key, &error.to_string()))
    }
}

fn damaged(server: &Server, of: &str, why: &str) -> StoreError {
    StoreError::Damaged {
        file: Arc::clone(&server.name),
        run: None,
        why: format!("the state of {of}: {why}"),
    }
}

/// Returns an SQL string literal.
pub(crate) fn quoted(text: &str) -> String {
    // A literal of standard SQL has no other escape.
    format!("'{}'", text.replace('\'', "''"))
}

const VALUES: &str = "service_key, key, value_utf8";

async fn value<T: DeserializeOwned>(
    server: &Server,
    of: &str,
    object: &str,
    key: &str,
) -> Result<Option<T>, StoreError> {
    let sql = format!(
        "SELECT {VALUES} FROM state WHERE service_name = '{of}' AND service_key = {} AND key = {}",
        quoted(object),
        quoted(key)
    );
    let rows: Vec<Row> = server.rows(&sql).await?;
    rows.first().map(|row| row.value(server)).transpose()
}

/// Returns state rows of objects, restricted by the SQL condition `which`.
pub(crate) async fn rows_of(
    server: &Server,
    columns: &str,
    of: &str,
    objects: &[String],
    which: &str,
) -> Result<Vec<Row>, StoreError> {
    let mut rows = Vec::new();
    for some in objects.chunks(MOST_KEYS) {
        let names: Vec<String> = some.iter().map(|object| quoted(object)).collect();
        let sql = format!(
            "SELECT {columns} FROM state WHERE service_name = '{of}' AND service_key IN ({}) AND {which} ORDER BY key",
            names.join(", ")
        );
        rows.extend(server.rows::<Row>(&sql).await?);
    }
    Ok(rows)
}

/// Returns the SQL condition for keys with a prefix that ends in a space: `!` is the next character.
pub(crate) fn from(prefix: &str) -> String {
    format!(
        "key >= {} AND key < {}",
        quoted(prefix),
        quoted(&format!("{}!", prefix.trim_end()))
    )
}

async fn head(server: &Server, id: &str) -> Result<Option<Head>, StoreError> {
    value(server, RUN, id, keys::HEAD).await
}

async fn visible(server: &Server, id: &str) -> Result<Head, StoreError> {
    let head = head(server, id).await?.filter(|head| !head.is_hidden);
    head.ok_or_else(|| StoreError::NoSuchRun { run: id.to_owned() })
}

/// Returns the contents that runs have named after their start, by run.
pub(crate) async fn names(server: &Server, heads: &[Head]) -> Result<BTreeMap<String, Vec<String>>, StoreError> {
    // Most runs name contents only at their start, which is in the head.
    let naming = heads.iter().filter(|head| head.names > 0);
    let naming: Vec<String> = naming.map(|head| head.id.clone()).collect();
    let mut names: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for row in rows_of(server, VALUES, RUN, &naming, &from(keys::NAMES)).await? {
        let name = row.value(server)?;
        names.entry(row.service_key).or_default().push(name);
    }
    Ok(names)
}

async fn shown(server: &Server, heads: Vec<Head>) -> Result<Vec<Run>, StoreError> {
    let mut names = names(server, &heads).await?;
    let runs = heads.into_iter().map(|head| {
        let more = names.remove(&head.id).unwrap_or_default();
        told(server, head, more)
    });
    runs.collect()
}

/// Converts the head and the content names of a run.
pub(crate) fn told(server: &Server, head: Head, names: Vec<String>) -> Result<Run, StoreError> {
    let id = head.id.clone();
    head.run(names)
        .ok_or_else(|| damaged(server, &id, "a stored hash is invalid"))
}

pub(crate) async fn run(server: &Server, id: &str) -> Result<Option<Run>, StoreError> {
    match head(server, id).await?.filter(|head| !head.is_hidden) {
        Some(head) => Ok(shown(server, vec![head]).await?.pop()),
        None => Ok(None),
    }
}

/// Returns a page of heads in list order, after the sort key `after`, restricted by the SQL condition `which`.
async fn page(
    server: &Server,
    after: Option<&str>,
    youngest_first: bool,
    which: &str,
    limit: usize,
) -> Result<Vec<Head>, StoreError> {
    let after = after.map_or_else(String::new, |after| {
        // The text of a head starts with `{"place":"PLACE"`. The bound ends in `"`, which makes it a prefix of equal places and so
        // sorts below them, or in `#`, which follows `"`. Both sort below the digits of a longer place.
        let (is, end) = if youngest_first { ("<", "\"") } else { (">", "#") };
        format!("AND value_utf8 {is} {}", quoted(&format!("{{\"place\":\"{after}{end}")))
    });
    let order = if youngest_first { "DESC" } else { "ASC" };
    let sql = format!(
        "SELECT {VALUES} FROM state WHERE service_name = '{RUN}' AND key = '{}' {after} {which} ORDER BY value_utf8 {order} LIMIT {limit}",
        keys::HEAD
    );
    let rows: Vec<Row> = server.rows(&sql).await?;
    rows.iter().map(|row| row.value(server)).collect()
}

pub(crate) async fn runs(
    server: &Server,
    filter: &RunFilter,
    after: Option<&RunPlace>,
    limit: usize,
) -> Result<Vec<Run>, StoreError> {
    let statuses = RunStatus::ALL
        .iter()
        .enumerate()
        .filter(|(_, status)| filter.has_status(**status));
    // The pattern saves the transfer of heads that do not match.
    let likes = statuses.map(|(number, _)| format!("value_utf8 LIKE '%\",\"status\":{number},\"is_hidden\":false,%'"));
    let likes: Vec<String> = likes.collect();
    let mut found = Vec::new();
    // `OR` of nothing is no SQL.
    if likes.is_empty() {
        return Ok(found);
    }
    let mut which = format!("AND ({})", likes.join(" OR "));
    let fields = [("workflow", &filter.workflow), ("session", &filter.session)];
    for (field, asked) in fields
        .into_iter()
        .filter_map(|(field, asked)| Some((field, asked.as_ref()?)))
    {
        which.push_str(" AND value_utf8 LIKE ");
        which.push_str(&quoted(&like(field, asked)));
    }
    if let Some(owner) = &filter.owner {
        which.push_str(" AND value_utf8 LIKE ");
        which.push_str(&quoted(&format!("%{owner}{}%", Run::OWNER_END)));
    }
    let mut after = after.map(|after| place(after.started_at, &after.id));
    // Another page if the exact filter below drops heads that the pattern matched.
    while found.len() < limit {
        let asked = (limit - found.len()).min(PAGE);
        let heads = page(server, after.as_deref(), filter.youngest_first, &which, asked).await?;
        let is_last = heads.len() < asked;
        after = heads.last().map(|head| head.place.clone());
        // The pattern may also match inside of other fields of the head.
        let heads = heads.into_iter().filter(|head| !head.is_hidden).collect();
        found.extend(shown(server, heads).await?.into_iter().filter(|run| filter.has(run)));
        if is_last {
            break;
        }
    }
    found.truncate(limit);
    Ok(found)
}

/// Returns a `LIKE` pattern for heads with this field. It may match others, because `_` and `%` in the text are wildcards.
fn like(field: &str, text: &str) -> String {
    format!(
        "%,\"{field}\":{},%",
        serde_json::Value::from(text).to_string().replace('\\', "_")
    )
}

/// Returns the heads of all runs, including hidden ones.
pub(crate) async fn heads(server: &Server) -> Result<Vec<Head>, StoreError> {
    let (mut all, mut after) = (Vec::new(), None::<String>);
    loop {
        let heads = page(server, after.as_deref(), false, "", PAGE).await?;
        let is_last = heads.len() < PAGE;
        after = heads.last().map(|head| head.place.clone());
        all.extend(heads);
        if is_last {
            return Ok(all);
        }
    }
}

pub(crate) async fn journal(server: &Server, id: &str, after: u64, limit: usize) -> Result<Vec<Record>, StoreError> {
    let mut of = visible(server, id).await?;
    // Runs that have the steps, youngest first: the steps up to the fork are stored with the base.
    let mut parts = Vec::new();
    let mut last = of.steps;
    loop {
        let base = of.base.take();
        let first = base.as_ref().map_or(0, |base| base.step);
        if last > first.max(after) {
            parts.push((of.id.clone(), first.max(after), last));
        }
        // Ancestors before the requested steps are not read.
        let Some(base) = base.filter(|base| base.step > after) else {
            break;
        };
        // A fork of a fork may share fewer steps than its base does.
        last = last.min(base.step);
        let Some(head) = head(server, &base.run).await? else {
            return Err(damaged(server, id, &format!("its base {} is missing", base.run)));
        };
        of = head;
    }
    let mut records = Vec::new();
    for (run, mut after, last) in parts.into_iter().rev() {
        while after < last && records.len() < limit {
            // Pages bound the size of an answer.
            let page = PAGE.min(limit - records.len());
            let sql = format!(
                "SELECT {VALUES} FROM state WHERE service_name = '{RUN}' AND service_key = {} AND key > {} AND key <= {} ORDER BY key LIMIT {page}",
                quoted(&run),
                quoted(&keys::record(after)),
                quoted(&keys::record(last))
            );
            let rows: Vec<Row> = server.rows(&sql).await?;
            for row in &rows {
                let kept: JournalRecord = row.value(server)?;
                after += 1;
                // Rows come in the order of the keys, so a missing record shows as a later key.
                if row.key != keys::record(after) {
                    return Err(damaged(server, &run, &format!("step {after} is missing")));
                }
                records.push(kept.into());
            }
            // Without this check, records missing at the end would make the loop endless.
            if rows.is_empty() {
                return Err(damaged(server, &run, &format!("step {} is missing", after + 1)));
            }
        }
    }
    Ok(records)
}

/// Content with its text.
#[derive(Clone)]
pub(crate) struct ReadContent {
    pub(crate) text: Arc<str>,
    /// True if it follows another content, or another content follows it.
    pub(crate) is_chained: bool,
}

pub(crate) async fn contents(server: &Server, hashes: &[ContentHash]) -> Result<Vec<ReadContent>, StoreError> {
    let mut objects: Vec<String> = hashes.iter().map(ToString::to_string).collect();
    objects.sort();
    // The rows are mapped by key, so each key is queried once.
    objects.dedup();
    let (mut texts, mut chained) = (BTreeMap::<String, Arc<str>>::new(), BTreeSet::new());
    let which = "key IN ('text', 'follows', 'followed')";
    for row in rows_of(server, VALUES, CONTENT, &objects, which).await? {
        if row.key == "text" {
            let text: String = row.value(server)?;
            texts.insert(row.service_key, text.into());
        } else {
            chained.insert(row.service_key);
        }
    }
    let found = hashes.iter().map(|hash| {
        let of = hash.to_string();
        let text = texts.get(&of).cloned();
        text.map(|text| ReadContent {
            text,
            is_chained: chained.contains(&of),
        })
        .ok_or(StoreError::NoSuchContent { hash: *hash })
    });
    found.collect()
}

/// Number of contents of a chain that are read one by one. For a longer chain one query of all `follows` keys is faster.
const SHORT_CHAIN: usize = 64;

pub(crate) async fn chain(server: &Server, last: ContentHash, limit: usize) -> Result<Vec<ContentHash>, StoreError> {
    let first = last.to_string();
    // `follows` alone does not distinguish a missing content from the start of a chain.
    if value::<u64>(server, CONTENT, &first, "namers").await?.is_none() {
        return Err(StoreError::NoSuchContent { hash: last });
    }
    let (mut chain, mut next) = (Vec::new(), Some(first));
    let mut all: Option<BTreeMap<String, String>> = None;
    while let Some(hash) = next.take().filter(|_| chain.len() < limit) {
        chain.push(ContentHash::parse(&hash).ok_or_else(|| damaged(server, &hash, "a stored hash is invalid"))?);
        // From here on the chain is followed in memory, without a request for each content.
        if chain.len() == SHORT_CHAIN && limit > SHORT_CHAIN {
            let sql = format!("SELECT {VALUES} FROM state WHERE service_name = '{CONTENT}' AND key = 'follows'");
            let rows: Vec<Row> = server.rows(&sql).await?;
            let follows = rows
                .into_iter()
                .map(|row| Ok((row.service_key.clone(), row.value(server)?)));
            all = Some(follows.collect::<Result<_, StoreError>>()?);
        }
        next = match &all {
            Some(all) => all.get(&hash).cloned(),
            None => value(server, CONTENT, &hash, "follows").await?,
        };
    }
    Ok(chain)
}

pub(crate) async fn snapshot(server: &Server, id: &str, at_most: u64) -> Result<Option<Snapshot>, StoreError> {
    // A hidden run still has its snapshot.
    visible(server, id).await?;
    let kept: Option<KeptSnapshot> = value(server, RUN, id, keys::SNAPSHOT).await?;
    let kept = kept.filter(|kept| kept.step <= at_most);
    Ok(kept.map(|kept| Snapshot {
        step: kept.step,
        body: kept.body,
    }))
}

pub(crate) async fn timers(server: &Server, until: u64, limit: usize) -> Result<Vec<Timer>, StoreError> {
    let sql = format!(
        "SELECT service_key, key FROM state WHERE service_name = '{RUN}' AND {} AND key < {}",
        from(keys::TIMERS),
        quoted(&keys::timer(until.saturating_add(1), ""))
    );
    let rows: Vec<Row> = server.rows(&sql).await?;
    let timers = rows.into_iter().filter_map(|row| {
        let (due, effect) = keys::timer_of(&row.key)?;
        let run = row.service_key;
        Some(Timer { due, run, effect })
    });
    // For `u64::MAX` the bound of the query cannot be one higher.
    let mut timers: Vec<Timer> = timers.filter(|timer| timer.due <= until).collect();
    // The query's order would be by key, which has no run.
    timers.sort();
    timers.truncate(limit);
    Ok(timers)
}

fn session_of(server: &Server, id: &str, kept: KeptSession) -> Result<Session, StoreError> {
    let contents: Option<Vec<ContentHash>> = kept.contents.iter().map(|hash| ContentHash::parse(hash)).collect();
    Ok(Session {
        id: id.to_owned(),
        version: kept.version,
        body: kept.body,
        contents: contents.ok_or_else(|| damaged(server, id, "a stored hash is invalid"))?,
        run: kept.run,
        updated_at: kept.updated_at,
    })
}

pub(crate) async fn session(server: &Server, id: &str) -> Result<Option<Session>, StoreError> {
    let kept: Option<KeptSession> = value(server, SESSION, id, "body").await?;
    kept.map(|kept| session_of(server, id, kept)).transpose()
}

pub(crate) async fn sessions(server: &Server, after: Option<&str>, limit: usize) -> Result<Vec<Session>, StoreError> {
    let after = after.map_or_else(String::new, |after| format!("AND service_key > {}", quoted(after)));
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let sql = format!(
        "SELECT {VALUES} FROM state WHERE service_name = '{SESSION}' AND key = 'body' {after} ORDER BY service_key LIMIT {limit}"
    );
    let rows: Vec<Row> = server.rows(&sql).await?;
    rows.iter()
        .map(|row| session_of(server, &row.service_key, row.value(server)?))
        .collect()
}

pub(crate) async fn meta(server: &Server, name: &str) -> Result<Option<String>, StoreError> {
    value(server, META, name, "value").await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_sql_string_is_quoted_completely() {
        assert_eq!(quoted("it's"), "'it''s'");
        assert_eq!(quoted("' OR 1 = 1 --"), "''' OR 1 = 1 --'");
    }

    #[test]
    fn run_places_as_text_sort_like_runs() {
        let runs = [
            (0, "b"),
            (1, "a"),
            (1, "a\""),
            (1, "a\u{7dda}"),
            (1, "aa"),
            (10, "A"),
            (u64::MAX, ""),
        ];
        let mut places: Vec<RunPlace> = runs
            .map(|(started_at, id)| RunPlace {
                started_at,
                id: id.to_owned(),
            })
            .to_vec();
        places.sort();
        let text = |run: &RunPlace| format!("{{\"place\":\"{}\",\"status\":0", place(run.started_at, &run.id));
        assert!(places.windows(2).all(|pair| text(&pair[0]) < text(&pair[1])));
        for (at, run) in places.iter().enumerate() {
            let after = format!("{{\"place\":\"{}#", place(run.started_at, &run.id));
            let before = format!("{{\"place\":\"{}\"", place(run.started_at, &run.id));
            for (other, place) in places.iter().enumerate() {
                assert_eq!(text(place) > after, other > at, "{place:?} after {run:?}");
                assert_eq!(text(place) < before, other < at, "{place:?} before {run:?}");
            }
        }
    }
}
