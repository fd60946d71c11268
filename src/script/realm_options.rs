//! The options of a realm.

use std::sync::Arc;

use super::HostFunctions;

/// Limits and functions of a realm.
pub(super) struct RealmOptions {
    /// Bytes that its values may take.
    pub(super) memory: usize,
    /// Bytes of stack.
    pub(super) stack: usize,
    /// Frozen, for many texts; or for one text only.
    pub(super) shared: bool,
    /// Functions that texts can call.
    pub(super) functions: Arc<HostFunctions>,
}
