//! History of a run: steps, threads, definitions, and the difference from another run.

use std::sync::Arc;

use axum::response::Response;
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::IntoParams;

use crate::api::query::{Parameters, Path, Scoped, page_limit};
use crate::api::runs::json_response;
use crate::http::problem::Problem;
use crate::runs::events::json_text::json;
use crate::runs::events::threads;
use pirn::{Step, ThreadSpan};

/// Default number of steps per page.
const PAGE: usize = 100;

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct StepParameters {
    /// Only steps after this one: the `next` of the previous page.
    after: Option<u64>,
    /// Maximum number of steps: 1 to 1,000, by default 100. The end of the run has the number of its last step, and is on its page.
    #[param(minimum = 1, maximum = 1_000)]
    limit: Option<usize>,
}

/// Lists the steps of a run, as `pirn runs show --history` does.
///
/// A step is one recorded input. Step 0 is the start. Needs a store.
#[utoipa::path(
    get, operation_id = "listRunSteps", path = "/v1/runs/{id}/steps", tag = "history",
    params(("id" = String, Path, description = "The run"), StepParameters),
    responses(
        (status = 200, description = "`{steps: [{step, threadId, nodeId?, kind, effectId?, at, durationMs?, repeated?}], next?}`; `kind`: start, model, tool, function, code, timer, event, interaction, join, trigger, external or end", body = Object),
        (status = 404, description = "There is no such run", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "The service has no store", body = Problem, content_type = "application/problem+json"),
        (status = 410, description = "The events of the run were dropped", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn steps(
    Scoped(service): Scoped,
    Path(id): Path<String>,
    Parameters(parameters): Parameters<StepParameters>,
) -> Result<Response, Problem> {
    let limit = page_limit(parameters.limit, PAGE)?;
    let history = service.history(&id, "The list of steps").await?;
    let (page, next) = page_of_steps(&history.steps, parameters.after, limit);
    let mut shown = json!({ "steps": page });
    if let Some(next) = next {
        shown["next"] = json!(next);
    }
    json_response(&service, &json(&shown))
}

/// Returns at most `limit` steps after a step, and the `after` of the next page. An end that follows the last of them is included.
fn page_of_steps(steps: &[Step], after: Option<u64>, limit: usize) -> (&[Step], Option<u64>) {
    let from = after.map_or(0, |after| steps.partition_point(|step| step.step <= after));
    let later = &steps[from..];
    let mut length = limit.min(later.len());
    // The end has the number of the step before it, so the next page would not begin with it.
    while length > 0
        && later
            .get(length)
            .is_some_and(|next| next.step == later[length - 1].step)
    {
        length += 1;
    }
    let next = later[..length].last().filter(|_| length < later.len());
    (&later[..length], next.map(|last| last.step))
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct PageParameters {
    /// Number of entries to skip: the `next` of the previous page.
    after: Option<usize>,
    /// Maximum number of entries: 1 to 1,000, by default 1,000.
    #[param(minimum = 1, maximum = 1_000)]
    limit: Option<usize>,
}

impl PageParameters {
    /// Returns the requested entries, and the `after` of the next page.
    pub(super) fn page<'a, T>(&self, all: &'a [T]) -> Result<(&'a [T], Option<usize>), Problem> {
        let limit = page_limit(self.limit, crate::api::query::MAX_PAGE)?;
        let from = self.after.unwrap_or(0).min(all.len());
        let end = from.saturating_add(limit).min(all.len());
        Ok((&all[from..end], (end < all.len()).then_some(end)))
    }
}

/// A page of a run's threads.
#[derive(Serialize)]
struct ThreadPage<'a> {
    threads: &'a [ThreadSpan],
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<usize>,
}

/// Lists the threads of a run, in start order.
///
/// Without a store, the threads follow from the events that the run in memory retains; their steps are 0 or absent.
#[utoipa::path(
    get, operation_id = "listRunThreads", path = "/v1/runs/{id}/threads", tag = "history",
    params(("id" = String, Path, description = "The run"), PageParameters),
    responses(
        (status = 200, description = "`{threads: [{threadId, parentId?, kind, pathId?, workflowId, triggerId?, nodeId?, startedStep, endedStep?, startedAt, endedAt?, status}], next?}`; `nodeId`: the parent's node that started it", body = Object),
        (status = 404, description = "There is no such run", body = Problem, content_type = "application/problem+json"),
        (status = 410, description = "The events of the run were dropped", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn threads(
    Scoped(service): Scoped,
    Path(id): Path<String>,
    Parameters(parameters): Parameters<PageParameters>,
) -> Result<Response, Problem> {
    let shown = |all: &[ThreadSpan]| {
        let (threads, next) = parameters.page(all)?;
        Ok(json(&ThreadPage { threads, next }))
    };
    let in_memory = service.runs().find(&id).filter(|_| !service.has_store());
    let page = match in_memory {
        Some(run) => {
            let run = Arc::clone(&run);
            // Parsing the events of a long run takes milliseconds.
            let read = tokio::task::spawn_blocking(move || threads::of_log(&run.log));
            shown(&read.await.unwrap_or_default())
        }
        None => shown(&service.history(&id, "The list of threads").await?.threads),
    };
    json_response(&service, &page?)
}

/// Returns the definitions that a run used: those of the workflows whose threads it started. Needs a store.
#[utoipa::path(
    get, operation_id = "getRunDefinition", path = "/v1/runs/{id}/definition", tag = "history", params(("id" = String, Path, description = "The run")),
    responses(
        (status = 200, description = "`{workflows: [...]}`, each in the format of a workflow file, in the order of their first threads", body = Object),
        (status = 404, description = "There is no such run", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "The service has no store", body = Problem, content_type = "application/problem+json"),
        (status = 410, description = "The events of the run were dropped", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn definition(Scoped(service): Scoped, Path(id): Path<String>) -> Result<Response, Problem> {
    let history = service.history(&id, "The definition of a run").await?;
    json_response(&service, &history.definition)
}

/// Compares two runs, as `pirn runs diff` does: the steps that they have in common, the next step of each, and their outcomes.
/// Needs a store.
#[utoipa::path(
    get, operation_id = "compareRuns", path = "/v1/runs/{id}/diff/{other}", tag = "history",
    params(("id" = String, Path, description = "Run a"), ("other" = String, Path, description = "Run b")),
    responses(
        (status = 200, description = "`{commonSteps, a, b, outcome: {equal, a, b}}`; `a` and `b`: the next step of each run, or null", body = Object),
        (status = 404, description = "There is no such run", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "The service has no store", body = Problem, content_type = "application/problem+json"),
        (status = 410, description = "The events of the run were dropped", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn diff(
    Scoped(service): Scoped,
    Path((id, other)): Path<(String, String)>,
) -> Result<Response, Problem> {
    json_response(&service, &service.difference(&id, &other).await?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pirn::StepKind;

    fn steps(numbers: &[u64]) -> Vec<Step> {
        let step = |(place, number): (usize, &u64)| Step {
            step: *number,
            thread_id: "run-1.0".to_owned(),
            node_id: None,
            kind: if place + 1 == numbers.len() {
                StepKind::End
            } else {
                StepKind::Code
            },
            effect_id: None,
            at: 0,
            duration_ms: None,
            repeated: false,
        };
        numbers.iter().enumerate().map(step).collect()
    }

    #[test]
    fn pages_of_steps_contain_each_entry_once_for_every_limit() {
        let all = steps(&[0, 1, 2, 3, 4, 5, 5]);
        for limit in 1..=8 {
            let (mut read, mut after, mut pages) = (Vec::new(), None, 0);
            loop {
                let (page, next) = page_of_steps(&all, after, limit);
                read.extend(page.iter().cloned());
                pages += 1;
                if next.is_none() {
                    break;
                }
                after = next;
            }
            assert_eq!(read, all, "limit {limit}");
            assert!(pages <= all.len(), "limit {limit}");
        }
        assert_eq!(page_of_steps(&all, Some(5), 1), (&all[7..], None));
        assert_eq!(page_of_steps(&[], None, 1), (&[][..], None));
    }
}
