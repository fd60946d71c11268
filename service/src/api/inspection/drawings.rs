//! Drawings of workflows.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use pirn_definition::definition::{BuiltInTool, Loaded, SourceFile, nearest};
use pirn_drawing::{Drawing, draw, svg};
use serde::Deserialize;
use serde_json::json;
use utoipa::{IntoParams, ToSchema};

use crate::api::query::{Parameters, Path, Scoped};
use crate::api::runs::json_response;
use crate::api::steering::interactions::run_id_of;
use crate::http::json::Json;
use crate::http::problem::{Problem, ProblemCode};
use crate::runs::Run;
use crate::runs::events::{json_text, threads};
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

impl DrawingFormat {
    fn response(self, drawing: Drawing) -> Response {
        match self {
            Self::Json => Json(drawing).into_response(),
            Self::Svg => picture(&drawing),
        }
    }
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
        (status = 200, description = "`{width, height, fontSize, nodes: [{id, type, x, y, width, height, lines, title, lane?}], edges: [{from, to, kind, points, label?}], lanes: [{fork, pathId, x, y, width, height, label}]}` in pixels; with `format=svg` a picture",
            content((Object = "application/json"), (String = "image/svg+xml"))),
        (status = 404, description = "There is no such workflow", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn of_workflow(
    Scoped(service): Scoped,
    Path(id): Path<String>,
    Parameters(parameters): Parameters<DrawingParameters>,
) -> Result<Response, Problem> {
    let definition = service.workflow_definition(&id).ok_or_else(|| unknown(&service, &id))?;
    // The layout of a large graph takes CPU time, so it is limited like replays, and leaves the threads that answer requests.
    let drawn = move || async move { drawings(definition).pop().map(|(_, drawing)| drawing) };
    let drawing = service.replays().run(drawn).await?;
    let drawing = drawing.ok_or_else(|| Problem::new(ProblemCode::Internal, "the definition cannot be read"))?;
    Ok(parameters.format.response(drawing))
}

/// Draws every workflow that took part in a run.
///
/// Without a store, these are the workflows of the threads in the events that the run in memory retains, as they are loaded now.
#[utoipa::path(
    get, operation_id = "drawRun", path = "/v1/runs/{id}/drawings", tag = "history", params(("id" = String, Path, description = "The run")),
    responses(
        (status = 200, description = "`{drawings: {WORKFLOW: drawing}}`, each in the format of `/v1/workflows/{id}/drawing`", body = Object),
        (status = 404, description = "There is no such run", body = Problem, content_type = "application/problem+json"),
        (status = 410, description = "The events of the run were dropped", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn of_run(Scoped(service): Scoped, Path(id): Path<String>) -> Result<Response, Problem> {
    let in_memory = service.runs().find(&id).filter(|_| !service.has_store());
    let (definitions, written) = if let Some(run) = in_memory {
        definitions(&service, run).await
    } else {
        let history = service.history(&id, "The drawings of a run").await?;
        let definition = String::from_utf8_lossy(&history.definition).into_owned();
        (vec![definition], history.written.clone())
    };
    let drawn = move || async move {
        let mut all: BTreeMap<String, Drawing> = definitions.into_iter().flat_map(drawings).collect();
        // The id of a written workflow has the hash of its text, which its definition does not contain.
        all.extend(
            written
                .into_iter()
                .filter_map(|(id, text)| Some((id, drawings(text).pop()?.1))),
        );
        json_text::json(&json!({ "drawings": all }))
    };
    json_response(&service, &service.replays().run(drawn).await?)
}

/// Draws the workflow that a model wrote, for the question whether it may run.
#[utoipa::path(
    get, operation_id = "drawPlan", path = "/v1/interactions/{id}/drawing", tag = "interactions",
    params(("id" = String, Path, description = "The question"), DrawingParameters),
    responses(
        (status = 200, description = "A drawing in the format of `/v1/workflows/{id}/drawing`; with `format=svg` a picture",
            content((Object = "application/json"), (String = "image/svg+xml"))),
        (status = 404, description = "There is no such run", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "The question is not open, or is not about a workflow", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn of_plan(
    Scoped(service): Scoped,
    Path(id): Path<String>,
    Parameters(parameters): Parameters<DrawingParameters>,
) -> Result<Response, Problem> {
    let id = service.scope().run_id(&id).into_owned();
    let open = service.questions(run_id_of(&id)).await?;
    let tool = open.into_iter().find(|open| open.id == id).and_then(|open| open.tool);
    let call = tool.filter(|call| call.name == BuiltInTool::RunWorkflow.name());
    let graph = call.and_then(|call| Some(call.arguments.get("graph")?.to_string()));
    let drawn = move || async move { graph.and_then(|graph| drawings(graph).pop()) };
    let (_, drawing) = service.replays().run(drawn).await?.ok_or_else(|| {
        let detail = format!("no open question {id} is about a workflow: GET /v1/interactions lists the open ones");
        Problem::new(ProblemCode::InteractionClosed, detail)
    })?;
    Ok(parameters.format.response(drawing))
}

/// Returns the definitions of the loaded workflows of a run in memory, and those that were written during the run.
async fn definitions(service: &Service, run: Arc<Run>) -> (Vec<String>, BTreeMap<String, String>) {
    // Parsing the events of a long run takes milliseconds.
    let read = move || threads::workflows_in_log(&run.log);
    let (ids, written) = tokio::task::spawn_blocking(read).await.unwrap_or_default();
    let loaded = ids.iter().filter_map(|id| service.workflow_definition(id));
    (loaded.collect(), written)
}

fn unknown(service: &Service, id: &str) -> Problem {
    let ids = service.workflow_ids();
    let near = nearest(id, ids.iter().map(String::as_str));
    let hint = near.map_or_else(String::new, |near| format!("; did you mean {near}?"));
    Problem::new(ProblemCode::UnknownWorkflow, format!("there is no workflow {id}{hint}"))
}

/// Draws every workflow of a text in the format of workflow files. Returns the drawings with the ids of their workflows.
pub(super) fn drawings(text: String) -> Vec<(String, Drawing)> {
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
