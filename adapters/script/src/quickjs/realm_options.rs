//! Options of a realm.

use std::sync::Arc;

use crate::HostFunctions;

/// Limits and functions of a realm.
#[derive(Clone)]
pub(crate) struct RealmOptions {
    /// Maximum bytes of its values.
    pub(crate) memory: usize,
    /// Maximum stack in bytes.
    pub(crate) stack: usize,
    /// True for a frozen realm of many snippets, false for a realm of one snippet.
    pub(crate) shared: bool,
    /// Functions that snippets can call.
    pub(crate) functions: Arc<HostFunctions>,
}
