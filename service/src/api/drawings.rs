//! Drawings of workflows.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use pirn_definition::definition::{Loaded, SourceFile, nearest};
use pirn_drawing::{Drawing, draw, svg};
use serde::Deserialize;
use serde_json::json;
use utoipa::{IntoParams, ToSchema};

use super::query::{Parameters, Path};
use super::runs::json_response;
use crate::http::json::Json;
use crate::http::problem::{Problem, ProblemCode};
use crate::runs::{Run, json_text, threads};
use crate::state::Service;

/// Format of a drawing.
#[derive(Clone, Copy, Debug, Default, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum DrawingFormat {
    /// Positions, lines and texts.
    #[default]
    Json,
    /// An SVG picture.
    Svg,
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct DrawingParameters {
    /// `json` (the default) or `svg`.
    #[serde(default)]
    #[param(value_type = Option<String>, example = "svg")]
    format: DrawingFormat,
}

/// Draws a workflow, also one that only triggers start.
#[utoipa::path(
    get, operation_id = "drawWorkflow", path = "/v1/workflows/{id}/drawing", tag = "workflows",
    params(("id" = String, Path, description = "The workflow"), DrawingParameters),
    responses(
        (status = 200, description = "`{width, height, fontSize, nodes: [{id, type, x, y, width, height, lines, title, lane?}], edges: [{from, to, kind, points, label?}], lanes: [{fork, pathId, x, y, width, height, label}]}` in pixels; with `format=svg` a picture", body = Object),
        (status = 404, description = "There is no such workflow", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn of_workflow(
    State(service): State<Service>,
    Path(id): Path<String>,
    Parameters(parameters): Parameters<DrawingParameters>,
) -> Result<Response, Problem> {
    let definition = service
        .engine()
        .workflow_definition(&id)
        .ok_or_else(|| unknown(&service, &id))?;
    // The layout of a large graph takes CPU time, so it is limited like replays, and leaves the threads that answer requests.
    let drawn = move || async move { drawings(definition).pop().map(|(_, drawing)| drawing) };
    let drawing = service.replays().run(drawn).await?;
    let drawing = drawing.ok_or_else(|| Problem::new(ProblemCode::Internal, "the definition cannot be read"))?;
    Ok(match parameters.format {
        DrawingFormat::Json => Json(drawing).into_response(),
        DrawingFormat::Svg => picture(&drawing),
    })
}

/// Draws every workflow that took part in a run.
///
/// Without a store, these are the workflows of the threads in the events that the run in memory retains, as they are loaded now.
#[utoipa::path(
    get, operation_id = "drawRun", path = "/v1/runs/{id}/drawings", tag = "history", params(("id" = String, Path, description = "The run")),
    responses(
        (status = 200, description = "`{drawings: {WORKFLOW: drawing}}`, each in the format of `/v1/workflows/{id}/drawing`", body = Object),
        (status = 404, description = "There is no such run", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn of_run(State(service): State<Service>, Path(id): Path<String>) -> Result<Response, Problem> {
    let in_memory = service.runs().find(&id).filter(|_| service.engine().store().is_none());
    let definitions = if let Some(run) = in_memory {
        definitions(&service, run).await
    } else {
        let history = service.history(&id, "The drawings of a run").await?;
        vec![String::from_utf8_lossy(&history.definition).into_owned()]
    };
    let drawn = move || async move {
        let all: BTreeMap<String, Drawing> = definitions.into_iter().flat_map(drawings).collect();
        json_text::json(&json!({ "drawings": all }))
    };
    json_response(&service, &service.replays().run(drawn).await?)
}

/// Returns the definitions of the workflows of a run in memory.
async fn definitions(service: &Service, run: Arc<Run>) -> Vec<String> {
    // Parsing the events of a long run takes milliseconds.
    let threads = tokio::task::spawn_blocking(move || threads::of_log(&run.log)).await;
    let threads = threads.unwrap_or_default().into_iter();
    let ids: BTreeSet<String> = threads.map(|thread| thread.workflow_id.to_string()).collect();
    ids.iter()
        .filter_map(|id| service.engine().workflow_definition(id))
        .collect()
}

fn unknown(service: &Service, id: &str) -> Problem {
    let ids = service.engine().workflow_ids();
    let near = nearest(id, ids.iter().map(String::as_str));
    let hint = near.map_or_else(String::new, |near| format!("; did you mean {near}?"));
    Problem::new(ProblemCode::UnknownWorkflow, format!("there is no workflow {id}{hint}"))
}

/// Draws every workflow of a text in the format of workflow files. Returns the drawings with the ids of their workflows.
fn drawings(text: String) -> Vec<(String, Drawing)> {
    let loaded = Loaded::of(&[SourceFile::new("definition", text)]);
    let workflows = loaded.workflows.into_iter().map(|workflow| workflow.value);
    workflows
        .map(|workflow| (workflow.id.clone(), draw(&[&workflow], &[])))
        .collect()
}

fn picture(drawing: &Drawing) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "image/svg+xml"),
        // A browser that opens the picture itself must not execute anything in it.
        (
            header::CONTENT_SECURITY_POLICY,
            "default-src 'none'; style-src 'unsafe-inline'; sandbox",
        ),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (
        headers.map(|(name, value)| (name, HeaderValue::from_static(value))),
        svg(drawing),
    )
        .into_response()
}
