//! A thread's actor (main, branch, called or triggered): what is under way for its machine outside of the run.
//!
//! It decides nothing. What its machine asks for it starts; the end of that is a message.

mod carry;
mod in_flight;
mod model;

use std::collections::BTreeMap;

use pirn_core::run::{Message, ThreadNo, ToThread};
use pirn_core::thread::{EffectId, Input, Outcome};

use crate::ports::ModelSession;
use crate::turn::Turn;
pub(crate) use carry::await_triggers;
use in_flight::{InFlight, UnderWay};

pub(crate) struct ThreadActor {
    no: ThreadNo,
    in_flight: UnderWay,
    /// By profile; few threads call a model.
    sessions: BTreeMap<String, ModelSession>,
}

impl ThreadActor {
    pub(crate) fn new(no: ThreadNo) -> Self {
        Self {
            no,
            in_flight: UnderWay::default(),
            sessions: BTreeMap::new(),
        }
    }

    /// Takes a message from the queue.
    pub(crate) fn handle(&mut self, message: ToThread, turn: &mut Turn<'_>) {
        if let ToThread::Input(Input::Answer { effect, outcome }) = &message
            && let (Some(InFlight::Wait(wait)), Outcome::Event { .. }) = (self.in_flight.remove(*effect), outcome)
        {
            wait.answered();
        }
        turn.step(Message::Thread(self.no, message));
    }

    /// Stops what is under way for an effect.
    pub(crate) fn let_go(&mut self, effect: EffectId) {
        drop(self.in_flight.remove(effect));
    }
}
