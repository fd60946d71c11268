//! Drawings of workflows.

use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use pirn_definition::definition::{Loaded, SourceFile, nearest};
use pirn_drawing::{Drawing, draw, svg};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use super::query::{Parameters, Path};
use crate::http::json::Json;
use crate::http::problem::{Problem, ProblemCode};
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
