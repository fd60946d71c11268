//! Sessions: the state that their runs have saved.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::query::{Parameters, Path, Scoped, page_limit};
use crate::http::json::Json;
use crate::http::problem::{Problem, ProblemCode};

/// Default number of sessions per page.
const PAGE: usize = 100;

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct SessionParameters {
    /// The `next` of the previous page.
    after: Option<String>,
    /// Maximum number of sessions: 1 to 1,000, by default 100.
    #[param(minimum = 1, maximum = 1_000)]
    limit: Option<usize>,
}

/// A session in a list.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SessionSummary {
    /// Id of the session.
    id: String,
    /// Number of runs that have written it.
    version: u64,
    /// The run that has written it last.
    last_run_id: String,
    /// Time of the last write, in milliseconds since the Unix epoch.
    updated_at: u64,
}

/// A page of the list of sessions.
#[derive(Serialize, ToSchema)]
pub(crate) struct SessionList {
    /// In the order of their ids.
    sessions: Vec<SessionSummary>,
    /// The `after` for the next page; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// Lists the sessions of the store; without a store, the list is empty.
#[utoipa::path(
    get, operation_id = "listSessions", path = "/v1/sessions", tag = "sessions", params(SessionParameters),
    responses((status = 200, description = "Sessions", body = SessionList))
)]
pub(crate) async fn list(
    Scoped(service): Scoped,
    Parameters(parameters): Parameters<SessionParameters>,
) -> Result<Json<SessionList>, Problem> {
    let limit = page_limit(parameters.limit, PAGE)?;
    // One more than the page: its presence shows that another page follows.
    let mut sessions = service.sessions(parameters.after, limit + 1).await?;
    let has_more = sessions.len() > limit;
    sessions.truncate(limit);
    let next = sessions.last().filter(|_| has_more).map(|session| session.id.clone());
    let sessions = sessions.into_iter().map(|session| SessionSummary {
        id: session.id,
        version: session.version,
        last_run_id: session.run,
        updated_at: session.updated_at,
    });
    Ok(Json(SessionList {
        sessions: sessions.collect(),
        next,
    }))
}

/// Returns the state of a session, including its conversation as `pirn run --conversation` reads it.
#[utoipa::path(
    get, operation_id = "getSession", path = "/v1/sessions/{id}", tag = "sessions", params(("id" = String, Path, description = "The session")),
    responses(
        (status = 200, description = "`{id, version, conversation: {messages, markMap}, variables}`; `version`: number of runs that have written it", body = Object),
        (status = 404, description = "There is no such session", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn show(Scoped(service): Scoped, Path(id): Path<String>) -> Result<Json<Value>, Problem> {
    let unknown = || {
        let detail = format!("there is no session {id}");
        Problem::new(ProblemCode::UnknownSession, detail)
    };
    let state = service.session(&id).await?.ok_or_else(unknown)?;
    Ok(Json(state.shown(&id)))
}
