//! Initial state of threads.

use std::sync::{Arc, OnceLock};

use pirn_definition::definition::AgentConfig;
use pirn_definition::graph::NodeIx;
use pirn_definition::value::Output;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::id::ThreadId;
use super::loops::LoopFrame;
use super::records::ThreadKind;
use super::state::{Outputs, Variables};

/// Initial state of a thread.
#[derive(Clone, Debug)]
pub struct ThreadSeed {
    /// Id of the thread, unique in the run.
    pub thread_id: ThreadId,
    /// Kind of the thread.
    pub kind: ThreadKind,
    /// Id of the thread's fork path.
    pub path_id: Option<Arc<str>>,
    /// First node.
    pub first: NodeIx,
    /// JOIN of a branch: the thread completes when it reaches this node.
    pub stop_at: Option<NodeIx>,
    /// Input of the thread.
    pub input: Arc<Value>,
    /// Initial variables: a snapshot for branches and children, else those of the workflow.
    pub variables: Variables,
    /// Visible outputs of nodes.
    pub outputs: Outputs,
    /// Value of `output` in the first node. For a branch: the last output before its FORK.
    pub last: Output,
    /// Configuration of a sub-agent; `None` for other threads.
    pub agent: Option<AgentConfig>,
    /// Number of triggers between the run's steps and this thread.
    pub trigger_depth: u32,
}

/// Initial state of a branch: its individual values, and a reference to the snapshot that all branches share.
#[derive(Clone, Copy, Debug)]
pub struct BranchSeed<'a> {
    /// Id of the run.
    pub run_id: &'a Arc<str>,
    /// Number of the thread in the run.
    pub no: u32,
    /// Id of the path.
    pub path_id: &'a Arc<str>,
    /// First node.
    pub first: NodeIx,
    /// JOIN: the branch completes when it reaches this node.
    pub stop_at: NodeIx,
    /// Snapshot shared by all branches of the fork.
    // Borrowed: a fork of many branches makes one snapshot and one seed for each branch.
    pub snapshot: &'a Snapshot,
    /// Number of triggers between the run's steps and this branch.
    pub trigger_depth: u32,
}

/// Snapshot of a thread at a FORK, from which its branches start.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Snapshot {
    /// Input of the thread.
    pub input: Arc<Value>,
    /// Variables of the thread.
    pub variables: Variables,
    /// Outputs of the thread's nodes.
    pub outputs: Outputs,
    /// Last output.
    pub last: Output,
    /// Innermost active loop.
    pub(in crate::thread) loops: Option<Arc<LoopFrame>>,
    /// Cached event of the input.
    #[serde(skip)]
    // Not serialized: the input contains the event.
    pub(in crate::thread) event: OnceLock<Arc<Value>>,
}
