//! The list of runs.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::query::{Parameters, Scoped, page_limit, run_status};
use crate::http::json::Json;
use crate::http::problem::{Problem, ProblemCode};
use crate::runs::store::archive::{RunQuery, RunSummary};
use crate::state::Service;

/// Default number of runs per page.
const PAGE: usize = 100;

/// Maximum number of archived runs that one request reads to find those with a text.
const MAX_READ: usize = 20_000;

/// Number of archived runs that one query reads if not all of them match.
const BATCH: usize = 1_000;

/// Maximum length of the text to find.
const MAX_TEXT: usize = 256;

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ListParameters {
    /// Only runs of this status: RUNNING, PAUSED, QUEUED, COMPLETED, FAILED, CANCELLED, TIMEOUT; for runs without an owner UNFINISHED,
    /// WAITING.
    status: Option<String>,
    /// Only runs of this workflow.
    workflow: Option<String>,
    /// Only runs of this session.
    session: Option<String>,
    /// Only runs whose id, workflow or session contains this text, in any case; at most 256 bytes.
    #[param(max_length = 256)]
    text: Option<String>,
    /// Only runs that started after this time, in milliseconds since the Unix epoch.
    started_after: Option<u64>,
    /// Only runs that started before this time, in milliseconds since the Unix epoch.
    started_before: Option<u64>,
    /// The `next` of the previous page.
    after: Option<String>,
    /// Maximum number of runs: 1 to 1,000, by default 100.
    #[param(minimum = 1, maximum = 1_000)]
    limit: Option<usize>,
}

/// A page of the list of runs.
#[derive(Serialize, ToSchema)]
pub(crate) struct RunList {
    /// Youngest first.
    runs: Vec<RunSummary>,
    /// The `after` for the next page; absent on the last page. With `text`, a page with a `next` may have fewer runs than `limit`.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// Position in the list: start and id.
type Place = (u64, String);

/// The conditions that archives do not know.
struct Conditions {
    /// In lower case.
    text: Option<String>,
    started_after: Option<u64>,
}

impl Conditions {
    fn are_met(&self, run: &RunSummary) -> bool {
        let Some(text) = &self.text else { return true };
        let mut names = [Some(&run.run_id), Some(&run.workflow_id), run.session.as_ref()].into_iter();
        names.any(|name| name.is_some_and(|name| name.to_lowercase().contains(text)))
    }

    /// True if the run and all older ones started too early.
    fn end_before(&self, run: &RunSummary) -> bool {
        self.started_after.is_some_and(|after| run.started_at <= after)
    }
}

/// Lists runs, youngest first.
#[utoipa::path(
    get, operation_id = "listRuns", path = "/v1/runs", tag = "runs", params(ListParameters),
    responses((status = 200, description = "Runs", body = RunList))
)]
pub(crate) async fn list(
    Scoped(service): Scoped,
    Parameters(parameters): Parameters<ListParameters>,
) -> Result<Json<RunList>, Problem> {
    let limit = page_limit(parameters.limit, PAGE)?;
    if parameters.text.as_ref().is_some_and(|text| text.len() > MAX_TEXT) {
        let detail = format!("text must have at most {MAX_TEXT} bytes");
        return Err(Problem::new(ProblemCode::InvalidRequest, detail));
    }
    let conditions = Conditions {
        text: parameters.text.map(|text| text.to_lowercase()),
        started_after: parameters.started_after,
    };
    let after = parameters.after.map(|cursor| place(&cursor)).transpose()?;
    // No id is before the empty one: this is the position after all runs that started earlier.
    let started_before = parameters.started_before.map(|at| (at, String::new()));
    let query = RunQuery {
        status: parameters.status.map(|word| run_status(&word)).transpose()?,
        workflow: parameters.workflow,
        session: parameters.session,
        id_prefix: None,
        before: [after, started_before].into_iter().flatten().min(),
        // One row more than the page: its presence shows that another page follows.
        limit: limit + 1,
    };
    let mut runs = service
        .runs()
        .list(&query, |run| conditions.are_met(run), |run| conditions.end_before(run));
    let listed = runs.iter().map(|run| run.run_id.clone()).collect();
    let (archived, stopped_at) = archived(&service, query, &conditions, &listed).await?;
    runs.extend(archived);
    runs.sort_by(|a, b| (b.started_at, &b.run_id).cmp(&(a.started_at, &a.run_id)));
    if let Some((started_at, id)) = &stopped_at {
        // The archive was not read beyond this position, so a run in memory that is older would hide archived ones.
        runs.retain(|run| (run.started_at, &run.run_id) >= (*started_at, id));
    }
    let has_more = runs.len() > limit;
    runs.truncate(limit);
    let next = match (has_more, stopped_at) {
        (true, _) => runs.last().map(|run| (run.started_at, run.run_id.clone())),
        (false, stopped_at) => stopped_at,
    };
    let next = next.map(|(started_at, id)| format!("{started_at}~{id}"));
    Ok(Json(RunList { runs, next }))
}

/// Reads runs of the archive that are not listed yet, until there are enough. Also returns the position of the last one that was
/// read if too many did not match.
async fn archived(
    service: &Service,
    mut query: RunQuery,
    conditions: &Conditions,
    listed: &BTreeSet<String>,
) -> Result<(Vec<RunSummary>, Option<Place>), Problem> {
    let (wanted, mut found, mut read) = (query.limit, Vec::new(), 0);
    if conditions.text.is_some() {
        query.limit = BATCH;
    }
    // Runs in memory have their present state there: skip their archived copies, and read on until the page is full. A run may leave
    // or enter the memory at any time, so the runs that are listed already are recognized by their ids.
    while found.len() < wanted {
        if read >= MAX_READ {
            return Ok((found, query.before));
        }
        let page = service.archive().runs(&query).await?;
        let is_last = page.len() < query.limit || page.last().is_some_and(|run| conditions.end_before(run));
        read += page.len();
        query.before = page.last().map(|run| (run.started_at, run.run_id.clone()));
        let further = page
            .into_iter()
            .filter(|run| !conditions.end_before(run) && conditions.are_met(run) && !listed.contains(&run.run_id));
        found.extend(further.filter_map(|run| match service.runs().find(&run.run_id) {
            Some(known) => {
                let present = service.runs().shown(known.summary());
                let has_status = query.status.as_ref().is_none_or(|status| *status == present.status);
                let is_asked = has_status && conditions.are_met(&present) && !conditions.end_before(&present);
                is_asked.then_some(present)
            }
            None => Some(run),
        }));
        if is_last {
            break;
        }
    }
    Ok((found, None))
}

/// Parses a cursor to a position in the list.
fn place(cursor: &str) -> Result<Place, Problem> {
    let parts = cursor
        .split_once('~')
        .and_then(|(at, id)| Some((at.parse().ok()?, id.to_owned())));
    parts.ok_or_else(|| {
        Problem::new(
            ProblemCode::InvalidRequest,
            "after must be the `next` of the previous list",
        )
    })
}
