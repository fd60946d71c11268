//! Effects that wait until what they follow from is durable: only then may they begin, and be told of.

use std::collections::VecDeque;

use super::Effect;

/// Effects in their order, each with the step it follows from; 0 is the run's beginning.
#[derive(Debug, Default)]
pub struct Outbox {
    held: VecDeque<(u64, Effect)>,
    durable: Option<u64>,
}

impl Outbox {
    /// Of a run whose steps up to this one are durable.
    pub fn after(step: u64) -> Self {
        Self {
            held: VecDeque::new(),
            durable: Some(step),
        }
    }

    /// Takes effects that follow from what the run was told up to `step`.
    pub fn put(&mut self, step: u64, effects: impl IntoIterator<Item = Effect>) {
        self.held.extend(effects.into_iter().map(|effect| (step, effect)));
    }

    /// The run's steps up to this one are durable.
    pub fn durable(&mut self, step: u64) {
        self.durable = self.durable.max(Some(step));
    }

    /// The next effect that need not wait any more.
    pub fn release(&mut self) -> Option<Effect> {
        let (step, _) = self.held.front()?;
        if Some(*step) > self.durable {
            return None;
        }
        self.held.pop_front().map(|(_, effect)| effect)
    }

    /// Whether something waits: the steps it follows from are to be made durable now.
    pub fn waits(&self) -> bool {
        !self.held.is_empty()
    }
}
