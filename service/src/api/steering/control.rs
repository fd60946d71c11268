//! Steering a run: cancel, pause, resume, emit, pin.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use pirn_definition::definition::PinSection;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use crate::body::JsonBody;
use crate::runs::store::archive::RunSummary;
use pirn_definition::value::{TOO_DEEP, is_too_deep};

use crate::api::query::{Path, Scoped};
use crate::http::json::Json;
use crate::http::problem::{Problem, ProblemCode, resume_problem};
use crate::state::Service;
use pirn::RunCommand;

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
    Scoped(service): Scoped,
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
        (status = 409, description = "The run has ended, or no process executes it", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn pause(
    Scoped(service): Scoped,
    Path(id): Path<String>,
    _: JsonBody<Nothing>,
) -> Result<Json<Told>, Problem> {
    service.send_command(&id, RunCommand::Pause).await?;
    Ok(Json(Told::done()))
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
    Scoped(service): Scoped,
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
    Scoped(service): Scoped,
    Path(id): Path<String>,
    _: JsonBody<Nothing>,
) -> Result<Json<Told>, Problem> {
    needs_store(&service)?;
    service.carried(&id).await?.live()?.release();
    Ok(Json(Told::done()))
}

fn needs_store(service: &Service) -> Result<(), Problem> {
    let detail = "the service has no store: start it with --store FILE";
    if service.has_store() {
        return Ok(());
    }
    Err(Problem::new(ProblemCode::NoStore, detail))
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
    /// Definitions that replace the other run's workflows with the same ids; the shared steps must be valid under them. Needs the
    /// role `admin`, and a token without a tenant.
    #[serde(default)]
    #[schema(value_type = Vec<Object>, max_items = 1000)]
    workflows: Vec<Map<String, Value>>,
}

/// Starts a run that continues from a step of another run, which may have ended.
#[utoipa::path(
    post, operation_id = "forkRun", path = "/v1/runs/{id}/fork", tag = "control", params(("id" = String, Path, description = "The run")),
    request_body = Fork,
    responses(
        (status = 201, description = "The new run", body = RunSummary),
        (status = 403, description = "The token does not permit `workflows`", body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "There is no such run", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "The service has no store, the id is taken, or the shared steps do not fit the definitions", body = Problem, content_type = "application/problem+json"),
        (status = 410, description = "The events of the run were dropped", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "The run has no such step", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn fork(
    Scoped(service): Scoped,
    Path(id): Path<String>,
    body: JsonBody<Fork>,
) -> Result<Response, Problem> {
    needs_store(&service)?;
    let asked = body.value;
    if !asked.workflows.is_empty() {
        service.caller().check_author()?;
    }
    let definition = edited_definition(&service, &id, asked.workflows).await?;
    let mut fork = service.fork_of(&id, asked.step);
    for (name, value) in asked.set {
        fork = fork.set(name, value);
    }
    if let Some(input) = asked.input {
        fork = fork.input(input);
    }
    if let Some(definition) = definition {
        fork = fork.definition(definition);
    }
    let forking = {
        let service = service.clone();
        async move { service.fork(fork, asked.run_id).await }
    };
    let run = service.to_its_end(forking).await?;
    let location = [(header::LOCATION, format!("/v1/runs/{}", run.id()))];
    Ok((StatusCode::CREATED, location, Json(service.runs().shown(run.summary()))).into_response())
}

/// Returns the definition of a run with some of its workflows replaced; `None` if there are none to replace.
async fn edited_definition(
    service: &Service,
    id: &str,
    workflows: Vec<Map<String, Value>>,
) -> Result<Option<String>, Problem> {
    if workflows.is_empty() {
        return Ok(None);
    }
    let present = service.definition_of(id).await;
    let present = present.map_err(|error| resume_problem(&error))?;
    with_workflows(&present, workflows).map(Some)
}

/// Returns a definition in which the workflows with these ids are replaced.
fn with_workflows(present: &str, workflows: Vec<Map<String, Value>>) -> Result<String, Problem> {
    let mut definition: Value = serde_json::from_str(present).unwrap_or_default();
    for (place, workflow) in workflows.into_iter().enumerate() {
        // The text may be any JSON: an imported run has the definition of its file.
        let all = definition.get_mut("workflows").and_then(Value::as_array_mut);
        let mut all = all.into_iter().flatten();
        let Some(replaced) = all.find(|one| one.get("id") == workflow.get("id")) else {
            let detail = format!("the run has no workflow with the id {}", json!(workflow.get("id")));
            return Err(Problem::new(ProblemCode::InvalidValue, detail).at(format!("/workflows/{place}/id")));
        };
        *replaced = Value::Object(workflow);
    }
    Ok(definition.to_string())
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
    Scoped(service): Scoped,
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
        (status = 409, description = "The run has ended, or no process executes it", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn pin(
    Scoped(service): Scoped,
    Path(id): Path<String>,
    body: JsonBody<Pin>,
) -> Result<Json<Told>, Problem> {
    if is_too_deep(&body.value.value) {
        return Err(Problem::new(ProblemCode::InvalidValue, TOO_DEEP.to_string()).at("/value"));
    }
    let Pin { section, value } = body.value;
    service.send_command(&id, RunCommand::Pin { section, value }).await?;
    Ok(Json(Told::done()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workflow_that_the_definition_lacks_is_refused_whatever_the_definition_is() {
        let workflow = || vec![Map::from_iter([("id".to_owned(), json!("main"))])];
        for present in [
            "[]",
            "1",
            "null",
            "\"text\"",
            "{}",
            r#"{"workflows": {}}"#,
            r#"{"workflows": [1, {"id": "a"}]}"#,
        ] {
            let refused = with_workflows(present, workflow()).expect_err(present);
            assert_eq!(refused.code(), "INVALID_VALUE", "{present}");
        }
        let replaced = with_workflows(r#"{"workflows": [{"id": "main", "nodes": []}]}"#, workflow()).expect("replaced");
        assert_eq!(replaced, r#"{"workflows":[{"id":"main"}]}"#);
    }
}
