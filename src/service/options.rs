//! A service's settings.

use std::sync::Arc;

use super::{Access, Limits, NoArchive, RunArchive};

/// A service's settings. Every one has a default.
#[derive(Clone)]
pub struct Options {
    /// Access rules: tokens, hosts, origins.
    pub access: Access,
    /// Limits on everything that grows.
    pub limits: Limits,
    /// Runs beyond those that this process remembers.
    pub archive: Arc<dyn RunArchive>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            access: Access::default(),
            limits: Limits::default(),
            archive: Arc::new(NoArchive),
        }
    }
}
