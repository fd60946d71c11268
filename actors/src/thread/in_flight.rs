//! The effects that a thread waits for: mostly one, now and then a few tool calls.

use pirn_core::thread::EffectId;

use crate::host::{TimerHandle, WorkHandle};
use crate::protocol::bus::WaitHandle;

/// The handle that carries an effect out. Dropping it stops that.
pub(super) enum InFlight {
    Timer(#[allow(dead_code)] TimerHandle),
    Work(#[allow(dead_code)] WorkHandle),
    Wait(WaitHandle),
    /// The answers of a question of which a host chooses one.
    Answers(#[allow(dead_code)] Vec<WorkHandle>),
}

/// Effects under way. A thread that waits for one thing, as 100,000 of them do, has room for one.
#[derive(Default)]
pub(super) struct UnderWay(Vec<(EffectId, InFlight)>);

impl UnderWay {
    pub(super) fn insert(&mut self, effect: EffectId, what: InFlight) {
        if self.0.capacity() == 0 {
            self.0.reserve_exact(1);
        }
        self.0.push((effect, what));
    }

    pub(super) fn remove(&mut self, effect: EffectId) -> Option<InFlight> {
        let place = self.0.iter().position(|(other, _)| *other == effect)?;
        Some(self.0.swap_remove(place).1)
    }
}
