//! Health of the process: liveness, readiness, and metrics.

use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;

use crate::http::problem::{Problem, draining};
use crate::metrics::prometheus;
use crate::state::Service;

/// Answers while the process is alive.
#[utoipa::path(get, path = "/healthz", tag = "health", responses((status = 200, description = "It answers", body = String)))]
pub(crate) async fn healthz() -> &'static str {
    "ok\n"
}

/// Answers 200 while new runs are accepted: the store and the engine answer, and the service is not shutting down.
#[utoipa::path(
    get, path = "/readyz", tag = "health",
    responses(
        (status = 200, description = "New runs are accepted", body = String),
        (status = 503, description = "The service is shutting down, or its store or engine does not answer", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn readyz(State(service): State<Service>) -> Result<&'static str, Problem> {
    if service.is_draining() {
        return Err(draining());
    }
    service.check_ready().await?;
    Ok("ready\n")
}

/// Returns the metrics in Prometheus' text format.
#[utoipa::path(get, path = "/metrics", tag = "health", responses((status = 200, description = "Figures", body = String)))]
pub(crate) async fn metrics(State(service): State<Service>) -> impl IntoResponse {
    let text = prometheus::text(&service.metrics_snapshot().await);
    ([(header::CONTENT_TYPE, prometheus::MEDIA_TYPE)], text)
}
