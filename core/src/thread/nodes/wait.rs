//! WAIT: waits for a duration or for a matching event.

use std::sync::Arc;

use pirn_definition::Millis;
use pirn_definition::graph::NodeKind;

use crate::thread::context::{Progress, StepContext, done, failure};
use crate::thread::data::effect::{Effect, Outcome, TimerPurpose};
use crate::thread::data::stages::NodeRun;

pub(super) fn enter_time(cx: &mut StepContext<'_>, after_ms: Millis) -> Progress {
    let id = cx.next_effect();
    cx.out.push(Effect::Timer {
        id,
        node: cx.thread.at,
        after_ms,
        purpose: TimerPurpose::Wait,
    });
    Progress::Wait(NodeRun::Wait { id })
}

pub(super) fn enter_event(cx: &mut StepContext<'_>, event: &Arc<str>, timeout_ms: Option<Millis>) -> Progress {
    let id = cx.wait_event(event);
    if let Some(after_ms) = timeout_ms {
        // The limit fails the attempt with NODE_TIMEOUT, to which `onError` and `retry` apply.
        cx.limit(after_ms);
    }
    Progress::Wait(NodeRun::Wait { id })
}

pub(super) fn answer(cx: &mut StepContext<'_>, outcome: Outcome) -> Progress {
    match outcome {
        // A timer has no output: pass the last one on.
        Outcome::Elapsed => Progress::Done(cx.thread.last.clone()),
        Outcome::Event { sequence, event } => {
            let graph = Arc::clone(cx.thread.graph());
            if let NodeKind::WaitEvent { event: word, .. } = &graph.node(cx.thread.at).kind {
                cx.take_event(word, sequence);
            }
            done(event)
        }
        other => Progress::Failed(failure(other)),
    }
}
