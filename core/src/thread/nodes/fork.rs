//! FORK and JOIN: the supervisor starts the paths and decides the join; the thread waits at JOIN.

use std::sync::Arc;

use pirn_definition::event_type::EventType;
use pirn_definition::graph::{Fork, ForkIx};
use serde_json::json;

use crate::thread::context::{Progress, StepContext, evaluate, failure};
use crate::thread::data::effect::{Effect, EffectId, Evaluation, Joined, Outcome};
use crate::thread::data::stages::{JoinReduction, NodeRun};

/// Passes the last output on. The paths start when the thread enters JOIN, which follows immediately.
pub(super) fn enter_fork(cx: &mut StepContext<'_>, fork: &Fork) -> Progress {
    Progress::DoneAt(cx.thread.last.clone(), fork.join_node)
}

pub(super) fn enter_join(cx: &mut StepContext<'_>, ix: ForkIx, fork: &Fork) -> Progress {
    let id = cx.next_effect();
    // Both events precede the effect: the events of the first branch must follow them.
    cx.emit(EventType::ThreadForkStarted, |thread| {
        [
            ("nodeId", json!(thread.graph().node(fork.fork_node).id)),
            (
                "forkPathIds",
                json!(fork.paths.iter().map(|path| &path.id).collect::<Vec<_>>()),
            ),
            ("forkStrategy", json!(fork.strategy)),
        ]
    });
    cx.emit(EventType::ThreadJoinStarted, |thread| {
        [
            ("nodeId", json!(thread.graph().node(fork.join_node).id)),
            ("joinStrategy", json!(fork.join.strategy)),
            ("timeoutMs", json!(fork.join.timeout_ms)),
        ]
    });
    // Requested by JOIN and not by FORK, so that the thread awaits the branches and the decision with one effect.
    cx.out.push(Effect::Fork { id, fork: ix });
    Progress::Wait(NodeRun::Join { id })
}

pub(super) fn answer(cx: &mut StepContext<'_>, outcome: Outcome) -> Progress {
    match outcome {
        // Reducers without expressions were applied when the join was decided.
        Outcome::Joined(joined) if joined.folds.is_empty() => assign(cx, *joined),
        Outcome::Joined(mut joined) => {
            // Taken: the rest of `joined` waits in the stage, and the effect owns the values.
            let folds = Arc::new(std::mem::take(&mut joined.folds));
            let names = folds.iter().map(|fold| Arc::clone(&fold.name)).collect();
            let id = evaluate(cx, Evaluation::Folds(folds));
            Progress::Wait(NodeRun::Reducing(Box::new(JoinReduction {
                id,
                names,
                joined: *joined,
            })))
        }
        other => Progress::Failed(failure(other)),
    }
}

pub(super) fn reduced(
    cx: &mut StepContext<'_>,
    stage: Box<JoinReduction>,
    effect: EffectId,
    outcome: Outcome,
) -> Progress {
    if stage.id != effect {
        return Progress::Wait(NodeRun::Reducing(stage));
    }
    let JoinReduction { names, mut joined, .. } = *stage;
    match outcome {
        Outcome::Value(values) => {
            let values = values.as_array().into_iter().flatten().cloned().map(Arc::new);
            // The evaluation returns one value for each fold, in their order.
            joined.variables.extend(names.into_iter().zip(values));
            assign(cx, joined)
        }
        other => Progress::Failed(failure(other)),
    }
}

fn assign(cx: &mut StepContext<'_>, joined: Joined) -> Progress {
    let taken = if joined.raises_events {
        cx.take_variables(&joined.variables, 0)
    } else {
        cx.thread.variables.assign_all(&joined.variables)
    };
    match taken {
        Ok(()) => Progress::Done(joined.output),
        Err(error) => Progress::Failed(error),
    }
}
