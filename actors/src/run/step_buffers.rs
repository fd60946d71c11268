//! Buffers for the effects of a step, lent to the run whose turn it is. A waiting run holds none, so memory grows with the
//! arbiters instead of the runs.

use std::cell::RefCell;
use std::rc::Rc;

use pirn_core::run::{Effect, EffectBuffers, RunMachine};

/// The buffers that the runs of one arbiter share.
pub(crate) type SharedBuffers = Rc<RefCell<StepBuffers>>;

/// Maximum capacity that is retained. The capacity that a large fork needed is released.
const MOST: usize = 1_024;

/// Buffers of one arbiter; see the module.
#[derive(Default)]
pub(crate) struct StepBuffers {
    effects: Vec<Effect>,
    buffers: EffectBuffers,
}

impl StepBuffers {
    /// Swaps the buffers into a run for its turn.
    pub(crate) fn lend(&mut self, machine: &mut RunMachine, effects: &mut Vec<Effect>) {
        machine.swap_buffers(&mut self.buffers);
        std::mem::swap(&mut self.effects, effects);
    }

    /// Swaps the buffers out of a run after its effects were executed.
    pub(crate) fn take_back(&mut self, machine: &mut RunMachine, effects: &mut Vec<Effect>) {
        // The second swap reverses the first.
        self.lend(machine, effects);
        if self.effects.capacity() > MOST || self.buffers.capacity() > MOST {
            *self = Self::default();
        }
    }
}
