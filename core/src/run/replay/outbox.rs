//! Effects that are held back until the inputs from which they follow are durable. Until then they must not be performed or
//! published.

use std::collections::VecDeque;

use pirn_definition::Millis;

use crate::run::data::effect::Effect;
use crate::thread;

/// FIFO queue of effects, each with its step and the time of that step. Step 0 is the start of the run.
#[derive(Debug, Default)]
pub struct Outbox {
    held: VecDeque<HeldEffect>,
    durable: Option<u64>,
}

#[derive(Debug)]
struct HeldEffect {
    step: u64,
    at: Millis,
    effect: Effect,
}

impl Outbox {
    /// Creates an outbox for a run whose steps up to this one are durable.
    pub fn after(step: u64) -> Self {
        Self {
            held: VecDeque::new(),
            durable: Some(step),
        }
    }

    /// Returns true if the steps up to this one are durable.
    pub fn is_durable(&self, step: u64) -> bool {
        // `None` is less than `Some(0)`: before the first commit not even the start of the run is durable.
        Some(step) <= self.durable
    }

    /// Queues effects that follow from the inputs up to `step`.
    pub fn put(&mut self, step: u64, at: Millis, effects: impl IntoIterator<Item = Effect>) {
        let held = effects.into_iter().map(|effect| HeldEffect { step, at, effect });
        self.held.extend(held);
    }

    /// Queues one effect, or returns it if it can be performed at once.
    pub fn pass(&mut self, step: u64, at: Millis, effect: Effect) -> Option<Effect> {
        // Durable effects may still be queued after a commit. This one must not overtake them.
        if self.held.is_empty() && self.is_durable(step) {
            return Some(effect);
        }
        self.held.push_back(HeldEffect { step, at, effect });
        None
    }

    /// Records that the steps up to this one are durable.
    pub fn durable(&mut self, step: u64) {
        // A report about an earlier commit must not withdraw what a later one has confirmed.
        self.durable = self.durable.max(Some(step));
    }

    /// Takes the next effect that can be performed, with the time of its step. The delay of a timer is reduced by its time in the
    /// queue, so that its deadline does not move.
    pub fn release(&mut self, now: Millis) -> Option<(Millis, Effect)> {
        // Steps ascend in the queue: if the first effect is held back, all others are too.
        if Some(self.held.front()?.step) > self.durable {
            return None;
        }
        let HeldEffect { at, mut effect, .. } = self.held.pop_front()?;
        if let Effect::SetTimer { after_ms, .. }
        | Effect::Thread {
            effect: thread::Effect::Timer { after_ms, .. },
            ..
        } = &mut effect
        {
            *after_ms = after_ms.saturating_sub(now.saturating_sub(at));
        }
        Some((at, effect))
    }

    /// Returns true if the run settles with an effect that can be performed now.
    pub fn settles(&self) -> bool {
        // Stops at the first effect that is held back: a settlement behind it is not durable yet.
        let mut released = self.held.iter().take_while(|held| Some(held.step) <= self.durable);
        released.any(|held| matches!(held.effect, Effect::Settled))
    }

    /// Returns true if effects are held back, so that the store should commit.
    pub fn waits(&self) -> bool {
        !self.held.is_empty()
    }

    /// Drops the held effects. They are never performed.
    pub fn clear(&mut self) {
        self.held.clear();
    }
}
