//! The branches of a fork: the paths of a FORK, or a workflow for each item of a MAP.

use std::sync::Arc;

use pirn_conversation::conversation::Conversation;
use pirn_definition::graph::{ForkIx, Graph, NodeIx};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::message::ForkSnapshot;
use crate::join::{ForkJoinMachine, JoinedPath, PathReport, item_reports, path_reports};
use crate::run::ThreadNo;
use crate::run::parts::graphs::GraphNo;
use crate::thread::{EffectId, item_names};

/// Branches of a fork.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::run) enum Branches {
    Paths {
        ix: ForkIx,
        start: Box<ForkSnapshot>,
    },
    Items {
        /// The MAP node.
        node: NodeIx,
        /// Workflow that the threads walk.
        graph: GraphNo,
        /// Inputs in item order.
        inputs: Arc<Value>,
        conversation: Conversation,
    },
}

impl Branches {
    /// Returns the node that starts the branches, in the parent's graph.
    pub(in crate::run) fn starts_at(&self, graph: &Graph) -> NodeIx {
        match self {
            Self::Paths { ix, .. } => graph.fork(*ix).fork_node,
            // A MAP has no JOIN node: its threads start and end at the same node.
            Self::Items { node, .. } => *node,
        }
    }

    /// Returns the node at which the parent waits.
    pub(in crate::run) fn joins_at(&self, graph: &Graph) -> NodeIx {
        match self {
            Self::Paths { ix, .. } => graph.fork(*ix).join_node,
            Self::Items { node, .. } => *node,
        }
    }

    /// Passes the branches to `then`, in the form in which a join's error shows them.
    pub(in crate::run) fn reported<R>(
        &self,
        graph: &Graph,
        run_id: &str,
        joined: &[JoinedPath],
        // A closure instead of a result: the reports of items borrow names that exist only during the call.
        then: impl FnOnce(&[PathReport<'_>]) -> R,
    ) -> R {
        match self {
            Self::Paths { ix, .. } => then(&path_reports(graph.fork(*ix), run_id, joined)),
            Self::Items { .. } => then(&item_reports(&item_names(joined.len()), run_id, joined)),
        }
    }
}

/// An active fork.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::run) struct ForkRun {
    pub(in crate::run) machine: ForkJoinMachine,
    pub(in crate::run) parent: ThreadNo,
    pub(in crate::run) effect: EffectId,
    pub(in crate::run) branches: Branches,
    pub(in crate::run) threads: Vec<Option<ThreadNo>>,
    pub(in crate::run) depth: u32,
}
