//! A service's settings.

use std::sync::Arc;

use crate::http::access::Access;
use crate::limits::Limits;
use crate::runs::quota::TenantLimits;
use crate::runs::store::archive::RunArchive;
use crate::studio::StudioMode;

/// Settings of a service. Every field has a default.
#[derive(Clone, Default)]
pub struct Options {
    /// Access rules: tokens, hosts, origins.
    pub access: Access,
    /// Limits on everything that grows.
    pub limits: Limits,
    /// Limits of each tenant.
    pub tenant_limits: TenantLimits,
    /// Runs in addition to those in memory; `None` uses the engine's store, if it has one.
    pub archive: Option<Arc<dyn RunArchive>>,
    /// Puts the runs of `POST /v1/runs` into the engine's store for another process to execute, as
    /// [`RunBuilder::enqueue`](pirn::RunBuilder::enqueue) does. The other interfaces stream a run's events live,
    /// so this process executes their runs.
    pub enqueue_only: bool,
    /// Access of the page at `/studio/`; `Full` by default.
    pub studio: StudioMode,
}
