//! Sessions: the state that their runs have saved.

use axum::extract::State;
use serde_json::Value;

use super::query::Path;
use crate::http::json::Json;
use crate::http::problem::{Problem, ProblemCode};
use crate::state::Service;
use pirn_actors::engine::check_name;

/// Returns the state of a session, including its conversation as `pirn run --conversation` reads it.
#[utoipa::path(
    get, operation_id = "getSession", path = "/v1/sessions/{id}", tag = "sessions", params(("id" = String, Path, description = "The session")),
    responses(
        (status = 200, description = "`{id, version, conversation: {messages, markMap}, variables}`; `version`: number of runs that have written it", body = Object),
        (status = 404, description = "There is no such session", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn show(State(service): State<Service>, Path(id): Path<String>) -> Result<Json<Value>, Problem> {
    let unknown = || {
        let detail = format!("there is no session {id}");
        Problem::new(ProblemCode::UnknownSession, detail)
    };
    check_name("session", &id).map_err(|_| unknown())?;
    let state = service.engine().session(&id).await;
    let state = state.map_err(|error| Problem::new(ProblemCode::StoreFailed, error.to_string()))?;
    if state.version == 0 {
        return Err(unknown());
    }
    Ok(Json(state.shown(&id)))
}
