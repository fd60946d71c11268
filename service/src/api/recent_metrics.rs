//! Metrics of the last 15 minutes.

use super::query::Scoped;
use crate::http::json::Json;
use crate::metrics::recent::MetricHistory;
use crate::runs::now;

/// Returns the values of `/metrics` of the last 15 minutes, at intervals of 5 seconds. They are sampled while the Studio is on;
/// otherwise, there are no series.
#[utoipa::path(
    get, operation_id = "getRecentMetrics", path = "/v1/metrics/recent", tag = "health",
    responses((status = 200, description = "Values at equal intervals", body = MetricHistory))
)]
pub(crate) async fn show(Scoped(service): Scoped) -> Json<MetricHistory> {
    Json(service.recent_metrics().shown(now()))
}
