//! Effects that wait until what they follow from is durable: only then may they begin, and be told of.

use std::collections::VecDeque;

use super::Effect;
use crate::Millis;
use crate::thread;

/// Effects in their order, each with the step it follows from and the time of that; 0 is the run's beginning.
#[derive(Debug, Default)]
pub struct Outbox {
    held: VecDeque<Held>,
    durable: Option<u64>,
}

#[derive(Debug)]
struct Held {
    step: u64,
    at: Millis,
    effect: Effect,
}

impl Outbox {
    /// Of a run whose steps up to this one are durable.
    pub fn after(step: u64) -> Self {
        Self {
            held: VecDeque::new(),
            durable: Some(step),
        }
    }

    /// True if the run's steps up to this one are known to be durable.
    pub fn is_durable(&self, step: u64) -> bool {
        Some(step) <= self.durable
    }

    /// Takes effects that follow from what the run was told up to `step`.
    pub fn put(&mut self, step: u64, at: Millis, effects: impl IntoIterator<Item = Effect>) {
        let held = effects.into_iter().map(|effect| Held { step, at, effect });
        self.held.extend(held);
    }

    /// As [`Self::put`] for one effect, which is given back at once where it need not wait.
    pub fn pass(&mut self, step: u64, at: Millis, effect: Effect) -> Option<Effect> {
        if self.held.is_empty() && self.is_durable(step) {
            return Some(effect);
        }
        self.held.push_back(Held { step, at, effect });
        None
    }

    /// The run's steps up to this one are durable.
    pub fn durable(&mut self, step: u64) {
        self.durable = self.durable.max(Some(step));
    }

    /// The next effect that need not wait any more, and the time that it follows from. A timer keeps its deadline: what it
    /// has waited here is taken off.
    pub fn release(&mut self, now: Millis) -> Option<(Millis, Effect)> {
        if Some(self.held.front()?.step) > self.durable {
            return None;
        }
        let Held { at, mut effect, .. } = self.held.pop_front()?;
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

    /// True if the run settles with what need not wait any more.
    pub fn settles(&self) -> bool {
        let mut released = self.held.iter().take_while(|held| Some(held.step) <= self.durable);
        released.any(|held| matches!(held.effect, Effect::Settled))
    }

    /// True if something waits: the steps it follows from are to be made durable now.
    pub fn waits(&self) -> bool {
        !self.held.is_empty()
    }

    /// Forgets what waits: it is never done.
    pub fn clear(&mut self) {
        self.held.clear();
    }
}
