//! Model requests of a run, and its explanation.

use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::history::PageParameters;
use crate::api::query::{Parameters, Path, Scoped};
use crate::api::runs::json_response;
use crate::http::problem::Problem;
use crate::runs::events::json_text::json;
use pirn::RequestSummary;

/// A page of a run's model requests.
#[derive(Serialize)]
struct RequestPage<'a> {
    requests: &'a [RequestSummary],
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<usize>,
}

/// Lists the model calls of a run, in the order of their requests. Needs a store.
#[utoipa::path(
    get, operation_id = "listRunRequests", path = "/v1/runs/{id}/requests", tag = "history",
    params(("id" = String, Path, description = "The run"), PageParameters),
    responses(
        (status = 200, description = "`{requests: [{effectId, step, threadId, nodeId, profileId?, model?, at, durationMs?, firstTokenMs?, estimatedTokens, promptTokens?, completionTokens?, cachedTokens?, cost?: {amount, currency}, finishReason?, attempts, error?}], next?}`; `firstTokenMs` of runs whose streamed pieces are in memory", body = Object),
        (status = 404, description = "There is no such run", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "The service has no store", body = Problem, content_type = "application/problem+json"),
        (status = 410, description = "The events of the run were dropped", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn list(
    Scoped(service): Scoped,
    Path(id): Path<String>,
    Parameters(parameters): Parameters<PageParameters>,
) -> Result<Response, Problem> {
    let history = service.history(&id, "The list of model requests").await?;
    let (page, next) = parameters.page(&history.requests)?;
    let requests = service.with_first_tokens(&id, page).await;
    json_response(
        &service,
        &json(&RequestPage {
            requests: &requests,
            next,
        }),
    )
}

/// Returns a model call as it was sent and answered. Needs a store.
///
/// Messages are those of the recorded run. Tools, parameters and the model's name come from the service's profiles and tools. Keys
/// are not part of a request, and values of parameters that are named like keys are masked.
#[utoipa::path(
    get, operation_id = "getRunRequest", path = "/v1/runs/{id}/requests/{effect}", tag = "history",
    params(("id" = String, Path, description = "The run"), ("effect" = String, Path, description = "`effectId` of the list")),
    responses(
        (status = 200, description = "An item of the list, and `{request: {messages, tools, parameters, responseFormat?}, response?: {message, usage}, pinned?: {insertedAt, count}, prefix?: {previous, sameMessages, firstDifference?: {message, byte}, reason?}}`; `reason`: profile, tools, responseFormat, system, pinned, repair, compression or history; absent if the history only grew", body = Object),
        (status = 404, description = "There is no such run or request", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "The service has no store", body = Problem, content_type = "application/problem+json"),
        (status = 410, description = "The events of the run were dropped", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn show(
    Scoped(service): Scoped,
    Path((id, effect)): Path<(String, String)>,
) -> Result<Response, Problem> {
    json_response(&service, &service.model_request(&id, &effect).await?)
}

/// Explains a run as text, as `pirn runs explain` does: outcome, cause, failing node with its input, cost and path, in at most 60
/// lines. Needs a store.
#[utoipa::path(
    get, operation_id = "explainRun", path = "/v1/runs/{id}/explain", tag = "history", params(("id" = String, Path, description = "The run")),
    responses(
        (status = 200, description = "The explanation", body = String, content_type = "text/plain"),
        (status = 404, description = "There is no such run", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "The service has no store", body = Problem, content_type = "application/problem+json"),
        (status = 410, description = "The events of the run were dropped", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn explain(Scoped(service): Scoped, Path(id): Path<String>) -> Result<Response, Problem> {
    let history = service.history(&id, "The explanation of a run").await?;
    let headers = [(header::CONTENT_TYPE, "text/plain; charset=utf-8")];
    Ok((headers, history.explanation.clone()).into_response())
}
