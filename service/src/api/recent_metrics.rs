//! Metrics of the last 15 minutes.

use axum::extract::State;

use crate::http::json::Json;
use crate::metrics::recent::MetricHistory;
use crate::runs::now;
use crate::state::Service;

/// Returns the values of `/metrics` of the last 15 minutes, at intervals of 5 seconds. They are sampled while the Studio is on;
/// otherwise, there are no series.
#[utoipa::path(
    get, operation_id = "getRecentMetrics", path = "/v1/metrics/recent", tag = "health",
    responses((status = 200, description = "Values at equal intervals", body = MetricHistory))
)]
pub(crate) async fn show(State(service): State<Service>) -> Json<MetricHistory> {
    Json(service.recent_metrics().shown(now()))
}
