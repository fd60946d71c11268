//! A service's settings.

use std::sync::Arc;

use super::{Access, Limits, RunArchive};

/// A service's settings. Every one has a default.
#[derive(Clone, Default)]
pub struct Options {
    /// Access rules: tokens, hosts, origins.
    pub access: Access,
    /// Limits on everything that grows.
    pub limits: Limits,
    /// Runs beyond those that this process remembers; none: those of the engine's store, where it has one.
    pub archive: Option<Arc<dyn RunArchive>>,
    /// Runs that `POST /v1/runs` starts are put into the engine's store for another process to carry, as
    /// [`RunBuilder::start_elsewhere`](crate::RunBuilder::start_elsewhere) does it. Other interfaces hear a run's events as they come: their
    /// runs are carried here.
    pub starts_elsewhere: bool,
}
