//! The workflows that can be started.

use serde_json::{Value, json};

use super::query::{Path, Scoped};
use crate::http::json::Json;
use crate::http::problem::Problem;

/// Lists the workflows that can be started.
#[utoipa::path(
    get, operation_id = "listWorkflows", path = "/v1/workflows", tag = "workflows",
    responses((status = 200, description = "`{workflows: [{id, name?, version?, description?, inputSchema?, nodes}]}`", body = Object))
)]
pub(crate) async fn list(Scoped(service): Scoped) -> Json<Value> {
    let catalogue = service.catalogue();
    let workflows: Vec<_> = catalogue.offers().map(|published| &published.info).collect();
    Json(json!({ "workflows": workflows }))
}

/// Returns one workflow that can be started.
#[utoipa::path(
    get, operation_id = "getWorkflow", path = "/v1/workflows/{id}", tag = "workflows", params(("id" = String, Path, description = "The workflow")),
    responses(
        (status = 200, description = "`{id, name?, version?, description?, inputSchema?, nodes: [{nodeId, type}], warnings?: [{code, message, pointer, line?, column?, file?, help?}]}`", body = Object),
        (status = 404, description = "There is no such workflow", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn show(Scoped(service): Scoped, Path(id): Path<String>) -> Result<Json<Value>, Problem> {
    let published = service.catalogue().find(&id)?;
    let mut shown = json!(published.info);
    if !published.warnings.is_empty() {
        shown["warnings"] = json!(published.warnings);
    }
    Ok(Json(shown))
}
