//! The actor of a thread (main, branch, called or triggered): runs the effects of its machine.
//!
//! The actor makes no decisions. It starts the effects that the machine requests, and sends their results to the machine.
//!
//! Not here: decisions about the workflow (`pirn_core::thread`).

mod effects;
mod in_flight;
mod model;

use std::collections::BTreeMap;

use pirn_core::run::{Message, ThreadNo, ToThread};
use pirn_core::thread::{EffectId, Input, Outcome};

use crate::ports::ModelSession;
use crate::run::turn::Turn;
pub(crate) use effects::await_triggers;
use in_flight::{InFlight, RunningEffects};

pub(crate) struct ThreadActor {
    no: ThreadNo,
    in_flight: RunningEffects,
    /// Sessions by profile; few threads call a model.
    sessions: BTreeMap<String, ModelSession>,
}

impl ThreadActor {
    pub(crate) fn new(no: ThreadNo) -> Self {
        Self {
            no,
            in_flight: RunningEffects::default(),
            sessions: BTreeMap::new(),
        }
    }

    /// Handles a message from the queue.
    pub(crate) fn handle(&mut self, message: ToThread, turn: &mut Turn<'_>) {
        if let ToThread::Input(Input::Answer { effect, outcome }) = &message
            // `remove` also drops the handles of other effects, which have their result now.
            && let (Some(InFlight::Wait(wait)), Outcome::Event { .. }) = (self.in_flight.remove(*effect), outcome)
        {
            // The bus removed the wait when it answered, so dropping the handle would send a needless message.
            wait.answered();
            if turn.run.host.explores() {
                let effect = *effect;
                return self.hold_event(effect, message, turn);
            }
        }
        turn.step(Message::Thread(self.no, message));
    }

    /// Cancels a running effect.
    pub(crate) fn cancel_effect(&mut self, effect: EffectId) {
        drop(self.in_flight.remove(effect));
    }
}
