//! The place in a run that outside code is called from.

use std::sync::Arc;

use serde_json::{Map, Value};

/// The place in a run that a model, a tool or a function is called from.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CallContext {
    /// The run.
    pub run_id: Arc<str>,
    /// The thread of the run.
    pub thread_id: Arc<str>,
    /// The workflow that the thread is in.
    pub workflow_id: Arc<str>,
    /// The node; none where a trigger calls.
    pub node_id: Option<Arc<str>>,
    /// The metadata that the run's caller started it with: a tenant, a user.
    pub metadata: Arc<Map<String, Value>>,
}
