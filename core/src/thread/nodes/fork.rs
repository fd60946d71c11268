//! FORK and JOIN: the supervisor starts the paths and decides; the thread waits at JOIN.

use serde_json::json;

use super::{NodeRun, Progress, failure};
use crate::event::EventType;
use crate::graph::{Fork, ForkIx};
use crate::thread::effect::{Effect, Outcome};
use crate::thread::step::StepContext;

/// FORK passes the last output on; its paths start when JOIN begins to wait, which is at once.
pub(super) fn enter_fork(walk: &mut StepContext<'_>, fork: &Fork) -> Progress {
    Progress::DoneAt(walk.thread.last.clone(), fork.join_node)
}

pub(super) fn enter_join(walk: &mut StepContext<'_>, ix: ForkIx, fork: &Fork) -> Progress {
    let id = walk.next_effect();
    walk.emit(EventType::ThreadForkStarted, |thread| {
        [
            ("nodeId", json!(thread.graph().node(fork.fork_node).id)),
            (
                "forkPathIds",
                json!(fork.paths.iter().map(|path| &path.id).collect::<Vec<_>>()),
            ),
            ("forkStrategy", json!(fork.strategy)),
        ]
    });
    walk.emit(EventType::ThreadJoinStarted, |thread| {
        [
            ("nodeId", json!(thread.graph().node(fork.join_node).id)),
            ("joinStrategy", json!(fork.join.strategy)),
            ("timeoutMs", json!(fork.join.timeout_ms)),
        ]
    });
    walk.out.push(Effect::Fork { id, fork: ix });
    Progress::Wait(NodeRun::Join { id })
}

pub(super) fn answer(walk: &mut StepContext<'_>, outcome: Outcome) -> Progress {
    match outcome {
        Outcome::Joined(joined) => {
            if let Err(error) = walk.thread.variables.assign_all(&joined.variables) {
                return Progress::Failed(error);
            }
            Progress::Done(joined.output)
        }
        other => Progress::Failed(failure(other)),
    }
}
