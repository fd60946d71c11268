//! What a supervisor says of its threads to a host that chooses which of them moves next.

use std::sync::Arc;

use pirn_core::graph::NodeKind;

use super::{Child, ForkNo, Origin, SupervisorActor, ThreadNo};
use crate::host::{Asked, Sign};

impl SupervisorActor {
    /// A thread that is about to be given to the host.
    pub(super) fn born(&self, thread: ThreadNo, child: &Child) -> Sign {
        let called = Arc::clone(&child.graph.workflow_id);
        let (parent, name, starts_in_place) = match child.origin {
            Origin::Main => (None, called, false),
            Origin::Called { parent, effect } => (Some((parent, effect)), called, true),
            Origin::Triggered { firing } => (Some((0, firing)), called, false),
            Origin::Branch { fork, path, .. } => match self.forks.get(&fork) {
                Some(run) => {
                    let path = &run.graph.fork(run.ix).paths[path as usize];
                    let in_place = is_in_place(&run.graph.node(path.child).kind);
                    (Some((run.parent, run.effect)), Arc::clone(&path.id), in_place)
                }
                None => (None, called, false),
            },
        };
        Sign::Born {
            run: Arc::clone(&self.run.run_id),
            thread,
            parent,
            name,
            is_branch: matches!(child.origin, Origin::Branch { .. }),
            starts_in_place,
        }
    }

    /// A thread is told something; where its first turn is held, it is held no longer.
    pub(super) fn tell_stopped(&self, thread: ThreadNo) {
        self.run.host.tell(|| Sign::Stopped {
            run: Arc::clone(&self.run.run_id),
            thread,
        });
    }

    /// The time limit of a join is about to be set.
    pub(super) fn tell_join_limit(&self, fork: ForkNo) {
        if let Some(run) = self.forks.get(&fork) {
            self.run.host.tell(|| Sign::Asks {
                run: Arc::clone(&self.run.run_id),
                thread: run.parent,
                node: Arc::clone(&run.graph.node(run.graph.fork(run.ix).join_node).id),
                what: Asked::Limit,
            });
        }
    }
}

/// Whether a node is left without waiting for anybody.
fn is_in_place(kind: &NodeKind) -> bool {
    match kind {
        NodeKind::Start
        | NodeKind::StartFromTrigger
        | NodeKind::End { .. }
        | NodeKind::Variable { .. }
        | NodeKind::Function { .. }
        | NodeKind::Route { .. }
        | NodeKind::Join(_)
        | NodeKind::Context(_)
        | NodeKind::ContinueFromTrigger(_) => true,
        NodeKind::Llm(_)
        | NodeKind::Script { .. }
        | NodeKind::Fork(_)
        | NodeKind::Subgraph { .. }
        | NodeKind::WaitTime(_)
        | NodeKind::WaitEvent { .. } => false,
    }
}
