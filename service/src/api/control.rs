//! Steering a run: cancel, pause, resume, emit, pin.

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use pirn_definition::definition::PinSection;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::body::JsonBody;
use crate::runs::archive::RunSummary;
use pirn_definition::value::{TOO_DEEP, is_too_deep};

use super::query::Path;
use crate::http::json::Json;
use crate::http::problem::{Problem, ProblemCode};
use crate::state::Service;
use pirn::{RunCommand, RunHandle};

/// The request was accepted.
#[derive(Serialize, ToSchema)]
pub(crate) struct Told {
    ok: bool,
}

impl Told {
    pub(super) fn done() -> Self {
        Self { ok: true }
    }
}

async fn tell(service: &Service, id: &str, what: impl FnOnce(&RunHandle)) -> Result<Json<Told>, Problem> {
    what(&service.carried(id).await?.live()?);
    Ok(Json(Told::done()))
}

/// Request to cancel a run.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Cancel {
    /// Shown in the run's report.
    reason: Option<String>,
}

/// An empty body.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Nothing {}

/// Cancels a run: it ends CANCELLED at its next safe point, and so does everything it started.
#[utoipa::path(
    post, operation_id = "cancelRun", path = "/v1/runs/{id}/cancel", tag = "control", params(("id" = String, Path, description = "The run")),
    request_body = Cancel,
    responses(
        (status = 200, description = "The run received the input", body = Told),
        (status = 404, description = "There is no such run", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "The run has ended", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn cancel(
    State(service): State<Service>,
    Path(id): Path<String>,
    body: JsonBody<Cancel>,
) -> Result<Json<Told>, Problem> {
    let reason = body.value.reason.unwrap_or_else(|| "cancelled over HTTP".to_owned());
    service.send_command(&id, RunCommand::Cancel { reason }).await?;
    Ok(Json(Told::done()))
}

/// Stops every thread of a run at its next safe point.
#[utoipa::path(
    post, operation_id = "pauseRun", path = "/v1/runs/{id}/pause", tag = "control", params(("id" = String, Path, description = "The run")),
    responses(
        (status = 200, description = "The run received the input", body = Told),
        (status = 404, description = "There is no such run", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "The run has ended, or the service does not execute it", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn pause(
    State(service): State<Service>,
    Path(id): Path<String>,
    _: JsonBody<Nothing>,
) -> Result<Json<Told>, Problem> {
    tell(&service, &id, RunHandle::pause).await
}

/// Resumes the threads of a paused run; a run of the store without an owner is resumed as well.
#[utoipa::path(
    post, operation_id = "resumeRun", path = "/v1/runs/{id}/resume", tag = "control", params(("id" = String, Path, description = "The run")),
    responses(
        (status = 200, description = "The run received the input", body = Told),
        (status = 404, description = "There is no such run", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "The run has ended", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn resume(
    State(service): State<Service>,
    Path(id): Path<String>,
    _: JsonBody<Nothing>,
) -> Result<Json<Told>, Problem> {
    service.resume(&id).await?;
    Ok(Json(Told::done()))
}

/// Parks a run: this process stops executing it, its status in the store is UNFINISHED or WAITING, and `resume` continues it.
#[utoipa::path(
    post, operation_id = "parkRun", path = "/v1/runs/{id}/park", tag = "control", params(("id" = String, Path, description = "The run")),
    responses(
        (status = 200, description = "The run received the input", body = Told),
        (status = 404, description = "There is no such run", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "The run has ended, or the service has no store", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn park(
    State(service): State<Service>,
    Path(id): Path<String>,
    _: JsonBody<Nothing>,
) -> Result<Json<Told>, Problem> {
    needs_store(&service)?;
    tell(&service, &id, RunHandle::release).await
}

fn needs_store(service: &Service) -> Result<(), Problem> {
    let detail = "the service has no store: start it with --store FILE";
    let store = service.engine().store();
    store
        .map(drop)
        .ok_or_else(|| Problem::new(ProblemCode::NoStore, detail))
}

/// Request for a new run that shares the first steps of another run.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Fork {
    /// The last shared step.
    step: u64,
    /// Names the new run: 1 to 128 letters, digits, hyphens, dots and underscores.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 128, pattern = "^[A-Za-z0-9_.-]*$")]
    run_id: Option<String>,
    /// Variables of the main thread that are set in the new run.
    #[serde(default)]
    #[schema(value_type = Object)]
    set: Map<String, Value>,
    /// An input that replaces the other run's.
    #[serde(default)]
    input: Option<Value>,
}

/// Starts a run that continues from a step of another run, which may have ended.
#[utoipa::path(
    post, operation_id = "forkRun", path = "/v1/runs/{id}/fork", tag = "control", params(("id" = String, Path, description = "The run")),
    request_body = Fork,
    responses(
        (status = 201, description = "The new run", body = RunSummary),
        (status = 404, description = "There is no such run", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "The service has no store, or the id is taken", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "The run has no such step", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn fork(
    State(service): State<Service>,
    Path(id): Path<String>,
    body: JsonBody<Fork>,
) -> Result<Response, Problem> {
    needs_store(&service)?;
    let asked = body.value;
    let mut fork = service.engine().fork(id, asked.step);
    for (name, value) in asked.set {
        fork = fork.set(name, value);
    }
    if let Some(input) = asked.input {
        fork = fork.input(input);
    }
    let forking = {
        let service = service.clone();
        async move { service.fork(fork, asked.run_id).await }
    };
    let run = service.to_its_end(forking).await?;
    let location = [(header::LOCATION, format!("/v1/runs/{}", run.id()))];
    Ok((StatusCode::CREATED, location, Json(run.summary())).into_response())
}

/// A CUSTOM event to raise.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Emit {
    /// Name of the CUSTOM event.
    name: String,
    /// Fields of the event.
    #[serde(default)]
    #[schema(value_type = Object)]
    data: Map<String, Value>,
}

/// Raises a CUSTOM event in a run: WAIT nodes and triggers receive it; in a run without an owner, when the run is resumed.
#[utoipa::path(
    post, operation_id = "emitEvent", path = "/v1/runs/{id}/emit", tag = "control", params(("id" = String, Path, description = "The run")),
    request_body = Emit,
    responses(
        (status = 200, description = "The run received the input", body = Told),
        (status = 404, description = "There is no such run", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "The run has ended", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn emit(
    State(service): State<Service>,
    Path(id): Path<String>,
    body: JsonBody<Emit>,
) -> Result<Json<Told>, Problem> {
    let Emit { name, data } = body.value;
    service.send_command(&id, RunCommand::Emit { name, data }).await?;
    Ok(Json(Told::done()))
}

/// A section of the pinned context.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Pin {
    /// role, todo, usefulInfo or folderNotes.
    #[schema(value_type = String, pattern = "^(role|todo|usefulInfo|folderNotes)$")]
    section: PinSection,
    /// The new value; null removes the section.
    value: Value,
}

/// Sets a section of the pinned context from the next model request on.
#[utoipa::path(
    post, operation_id = "pinContext", path = "/v1/runs/{id}/pin", tag = "control", params(("id" = String, Path, description = "The run")),
    request_body = Pin,
    responses(
        (status = 200, description = "The run received the input", body = Told),
        (status = 404, description = "There is no such run", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "The run has ended, or the service does not execute it", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn pin(
    State(service): State<Service>,
    Path(id): Path<String>,
    body: JsonBody<Pin>,
) -> Result<Json<Told>, Problem> {
    if is_too_deep(&body.value.value) {
        return Err(Problem::new(ProblemCode::InvalidValue, TOO_DEEP.to_string()).at("/value"));
    }
    tell(&service, &id, |run| run.pin(body.value.section, body.value.value)).await
}
