//! The input a thread is made from.

use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::id::ThreadId;
use super::loops::LoopFrame;
use super::machine::ThreadKind;
use super::state::{Outputs, Variables};
use crate::definition::AgentConfig;
use crate::graph::NodeIx;
use crate::value::Output;

/// Everything a thread is told when it is made.
#[derive(Clone, Debug)]
pub struct ThreadSeed {
    /// Unique in the run.
    pub thread_id: ThreadId,
    /// Its kind.
    pub kind: ThreadKind,
    /// The user's id of its fork path.
    pub path_id: Option<Arc<str>>,
    /// Its first node.
    pub first: NodeIx,
    /// A branch's JOIN: reaching it completes the thread.
    pub stop_at: Option<NodeIx>,
    /// Its input.
    pub input: Arc<Value>,
    /// Its variables; a branch's and a child's snapshot, else what the workflow defines.
    pub variables: Variables,
    /// Node outputs it can see.
    pub outputs: Outputs,
    /// The value its first node sees as `output`: for a branch the last output before its FORK.
    pub last: Output,
    /// Makes it a sub-agent.
    pub agent: Option<AgentConfig>,
    /// Triggers between the run's own steps and this thread.
    pub trigger_depth: u32,
}

/// The input a branch is made from: what sets it apart, and what it shares with the others of its fork.
#[derive(Clone, Copy, Debug)]
pub struct BranchSeed<'a> {
    /// Its run's id.
    pub run_id: &'a Arc<str>,
    /// Its number among the run's threads.
    pub no: u32,
    /// The user's id of its path.
    pub path_id: &'a Arc<str>,
    /// Its first node.
    pub first: NodeIx,
    /// Its JOIN: reaching it completes the branch.
    pub stop_at: NodeIx,
    /// The snapshot that all branches of the fork start with.
    pub snapshot: &'a Snapshot,
    /// Triggers between the run's own steps and this branch.
    pub trigger_depth: u32,
}

/// A thread at FORK: what its branches start with.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Snapshot {
    /// Its input.
    pub input: Arc<Value>,
    /// Its variables.
    pub variables: Variables,
    /// Its nodes' outputs.
    pub outputs: Outputs,
    /// Its last output.
    pub last: Output,
    /// The innermost loop it is in.
    pub(super) loops: Option<Arc<LoopFrame>>,
    /// The event in its input, once a text has read it.
    #[serde(skip)]
    pub(super) event: OnceLock<Arc<Value>>,
}
