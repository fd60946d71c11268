//! Actions of triggers that do not involve the thread of the event.

use std::sync::Arc;

use pirn_core::run::{Firing, detached};

use super::follow_up::{failure, raise};
use crate::answer::Answer;
use crate::protocol::bus::BusSender;
use crate::protocol::engine::{DetachedRun, EngineHandle, OnEnd};
use crate::protocol::supervisor::{RunEnd, SupervisorMsg};

/// Returns a message that makes the event's run start the action. If the run has ended, the action starts without it.
pub(crate) fn fire_alone(firing: Firing, engine: &Arc<dyn EngineHandle>, bus: BusSender) -> SupervisorMsg {
    // The firing is cloned, because the run may end and drop the message with it.
    let (own, without) = (Arc::clone(engine), firing.clone());
    let taken = Answer::new(move |taken: Result<(), _>| {
        if taken.is_err() {
            start_unrecorded(&without, &own, &bus);
        }
    });
    let firing = Box::new(firing);
    SupervisorMsg::FireAlone { firing, taken }
}

fn start_unrecorded(firing: &Firing, engine: &Arc<dyn EngineHandle>, bus: &BusSender) {
    let trigger = firing.trigger.id.clone();
    // The number 0 is correct: the run that would count the firing has ended.
    let Some(start) = detached((0, firing)) else { return };
    let workflow = start.workflow_id.clone();
    let on_end: OnEnd = Box::new(move |end| {
        let error = match end {
            RunEnd::Ended(report) => report.error.as_ref(),
            RunEnd::Left(error) => Some(error),
        };
        if let Some(error) = error {
            tracing::warn!(%error, trigger, workflow, "a workflow started by a trigger failed");
        }
    });
    let metadata = engine.metadata_of(&firing.event.run_id);
    let detached = DetachedRun::of(engine.next_run_id(), start, metadata, on_end);
    if let Err(error) = Arc::clone(engine).start_detached(detached) {
        let failed = failure(&firing.trigger.id, &error.to_string());
        bus.do_send(raise(&firing.event, failed));
    }
}
