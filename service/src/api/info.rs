//! Facts about the service, for pages and other clients.

use serde::Serialize;
use utoipa::ToSchema;

use super::query::Scoped;
use crate::http::caller::Role;
use crate::http::json::Json;
use crate::studio::StudioMode;

/// Facts about the service.
#[derive(Serialize, ToSchema)]
pub(crate) struct Info {
    /// Version of Pirn.
    version: &'static str,
    /// Access of the Studio with the caller's token: `off`, `read` or `full`.
    studio: StudioMode,
    /// True if the service has a store. Without one, only runs in memory are listed.
    store: bool,
    /// Valid values of a node's `profileId`.
    profiles: Vec<String>,
}

/// Returns facts about the service.
#[utoipa::path(
    get, operation_id = "getInfo", path = "/v1/info", tag = "health",
    responses((status = 200, description = "Version, mode of the Studio, presence of a store, model profiles", body = Info))
)]
pub(crate) async fn show(Scoped(service): Scoped) -> Json<Info> {
    let changes = [Role::Run, Role::Answer].map(|role| service.caller().check(role).is_ok());
    let studio = match service.studio() {
        StudioMode::Full if changes == [false, false] => StudioMode::Read,
        mode => mode,
    };
    Json(Info {
        version: env!("CARGO_PKG_VERSION"),
        studio,
        store: service.has_store(),
        profiles: service.profile_ids(),
    })
}
