//! Facts about the service, for pages and other clients.

use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use crate::http::json::Json;
use crate::state::Service;
use crate::studio::StudioMode;

/// Facts about the service.
#[derive(Serialize, ToSchema)]
pub(crate) struct Info {
    /// Version of Pirn.
    version: &'static str,
    /// Access of the Studio: `off`, `read` or `full`.
    studio: StudioMode,
    /// True if the service has a store. Without one, only runs in memory are listed.
    store: bool,
}

/// Returns facts about the service.
#[utoipa::path(
    get, operation_id = "getInfo", path = "/v1/info", tag = "health",
    responses((status = 200, description = "Version, mode of the Studio, presence of a store", body = Info))
)]
pub(crate) async fn show(State(service): State<Service>) -> Json<Info> {
    Json(Info {
        version: env!("CARGO_PKG_VERSION"),
        studio: service.studio(),
        store: service.engine().store().is_some(),
    })
}
