//! Work for a thread that waits for its next safe point.

use std::collections::VecDeque;
use std::sync::Arc;

use pirn_definition::error::RunError;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::effect::FiringId;
use crate::status::ThreadStatus;

/// Pending results of triggers for a thread.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(in crate::thread) struct PendingResults {
    /// Firings that hold the thread.
    pub(in crate::thread) held: Vec<FiringId>,
    /// Firings that ended before the thread received that they hold it: the two messages may arrive in either order.
    pub(in crate::thread) released: Vec<FiringId>,
    /// Work in arrival order.
    pub(in crate::thread) arrived: VecDeque<SafePointWork>,
}

/// Work that waits for a safe point.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::thread) enum SafePointWork {
    Triggered {
        merge: PendingMerge,
        conversation: bool,
        is_compression: bool,
    },
    Assign(TriggerAssignment),
}

/// An assignment by a trigger.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::thread) struct TriggerAssignment {
    pub(in crate::thread) trigger_id: Arc<str>,
    pub(in crate::thread) name: Arc<str>,
    pub(in crate::thread) value: Arc<Value>,
    pub(in crate::thread) trigger_depth: u32,
}

/// A stop that waits until the conversation has applied a firing's result.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::thread) enum DeferredStop {
    /// End of the thread.
    Thread { status: ThreadStatus, error: RunError },
    /// End of the attempt: its time limit has passed.
    Attempt,
}

/// Point at which pending work is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::thread) enum SafePointKind {
    /// Between two nodes: all work is applied.
    BetweenNodes,
    /// Before a model call inside a node: only compressions are applied, because the call needs them. A message of a trigger would
    /// separate the prompt from its reply, so that it waits for the end of the node.
    BeforeModelCall,
}

/// Variables in the result of a firing.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::thread) struct PendingMerge {
    pub(in crate::thread) firing: FiringId,
    /// Assignments, applied atomically.
    pub(in crate::thread) variables: Vec<(Arc<str>, Arc<Value>)>,
    /// Number of triggers between the run's steps and this result.
    pub(in crate::thread) trigger_depth: u32,
}
