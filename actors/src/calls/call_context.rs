//! Origin of a call to the embedding program's code.

use std::sync::Arc;

use serde_json::{Map, Value};

/// Origin of a call of a model, tool or function.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CallContext {
    /// The run.
    pub run_id: Arc<str>,
    /// The thread of the run.
    pub thread_id: Arc<str>,
    /// The workflow that the thread is in.
    pub workflow_id: Arc<str>,
    /// The node. None for a call by a trigger.
    pub node_id: Option<Arc<str>>,
    /// Metadata from the run's caller, for example a tenant or user.
    pub metadata: Arc<Map<String, Value>>,
}
