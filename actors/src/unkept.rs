//! The part of a durable run that waits until what it follows from is kept.

use pirn_core::Millis;
use pirn_core::error::RunError;
use pirn_core::run::{Effect, Outbox};

use crate::acknowledgements::{Acknowledge, Acknowledgements};
use crate::host::TimerHandle;

/// Effects and callers that wait for the journal.
#[derive(Default)]
pub(crate) struct Unkept {
    effects: Outbox,
    /// Callers that told the run something.
    acknowledgements: Acknowledgements,
    /// The last step whose keeping was asked for.
    asked: Option<u64>,
    /// Asks whether the run's machine is to leave memory.
    pub(crate) parking: Option<TimerHandle>,
}

impl Unkept {
    /// Those of a run that is durable up to this step.
    pub(crate) fn after(step: u64) -> Self {
        Self {
            effects: Outbox::after(step),
            ..Self::default()
        }
    }

    /// True if the steps up to this one are to be kept now: something waits for them, and nobody has asked yet.
    pub(crate) fn asks(&mut self, step: u64) -> bool {
        self.is_awaited() && self.asked.replace(step) != Some(step)
    }

    /// True if nothing waits, and the run is durable up to this step.
    pub(crate) fn is_kept(&self, step: u64) -> bool {
        !self.is_awaited() && self.effects.is_durable(step)
    }

    /// True if something waits for what it was told to be kept.
    pub(crate) fn is_awaited(&self) -> bool {
        self.effects.waits() || !self.acknowledgements.is_empty()
    }

    /// Takes an effect that follows from what the run was told up to `step`; one that need not wait is given back.
    pub(crate) fn pass(&mut self, step: u64, at: Millis, effect: Effect) -> Option<Effect> {
        self.effects.pass(step, at, effect)
    }

    /// Tells a caller once the run is durable up to `step`.
    pub(crate) fn acknowledge(&mut self, step: u64, acknowledge: Acknowledge) {
        if self.effects.is_durable(step) {
            acknowledge(Ok(()));
        } else {
            self.acknowledgements.wait(step, acknowledge);
        }
    }

    /// The run is durable up to `step`. Callers hear it before anything that follows is done: a run that ends with it
    /// answers nobody any more.
    pub(crate) fn kept(&mut self, step: u64) {
        self.effects.durable(step);
        self.acknowledgements.kept(step);
    }

    /// The next effect that need not wait any more, and the time that it follows from.
    pub(crate) fn release(&mut self, now: Millis) -> Option<(Millis, Effect)> {
        self.effects.release(now)
    }

    /// Nothing more of the run becomes durable in this process.
    pub(crate) fn lost(&mut self, error: &RunError) {
        self.acknowledgements.lost(error);
        self.effects.clear();
    }
}
