//! Options of a realm.

use std::sync::Arc;

use super::HostFunctions;

/// Limits and functions of a realm.
pub(super) struct RealmOptions {
    /// Maximum bytes of its values.
    pub(super) memory: usize,
    /// Maximum stack in bytes.
    pub(super) stack: usize,
    /// True for a frozen realm of many snippets, false for a realm of one snippet.
    pub(super) shared: bool,
    /// Functions that snippets can call.
    pub(super) functions: Arc<HostFunctions>,
}
