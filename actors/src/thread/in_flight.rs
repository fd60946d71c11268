//! The effects that a thread waits for: mostly one, sometimes several tool calls.

use pirn_core::thread::EffectId;

use crate::host::{TimerHandle, WorkHandle};
use crate::protocol::bus::WaitHandle;

/// Handle of a running effect. Dropping it cancels the effect.
pub(super) enum InFlight {
    Timer(#[allow(dead_code)] TimerHandle),
    Work(#[allow(dead_code)] WorkHandle),
    Wait(WaitHandle),
    /// Answers offered to a host that chooses one.
    Answers(#[allow(dead_code)] Vec<WorkHandle>),
}

/// Running effects. The vector starts with room for one: most threads wait for one effect, and there may be 100,000 threads.
#[derive(Default)]
pub(super) struct RunningEffects(Vec<(EffectId, InFlight)>);

impl RunningEffects {
    pub(super) fn insert(&mut self, effect: EffectId, what: InFlight) {
        if self.0.capacity() == 0 {
            self.0.reserve_exact(1);
        }
        self.0.push((effect, what));
    }

    pub(super) fn remove(&mut self, effect: EffectId) -> Option<InFlight> {
        // A linear search, because most threads have one effect in flight. The order does not matter.
        let place = self.0.iter().position(|(other, _)| *other == effect)?;
        Some(self.0.swap_remove(place).1)
    }
}
