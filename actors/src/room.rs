//! Room for what a step wants done, lent to whichever run of an arbiter takes its turn: a run that waits has none.

use std::cell::RefCell;
use std::rc::Rc;

use pirn_core::run::{Effect, EffectBuffers, RunMachine};

/// The room that the runs of one arbiter share.
pub(crate) type SharedRoom = Rc<RefCell<Room>>;

/// The most effects that there stays room for: what a large fork needed is given back.
const MOST: usize = 1_024;

/// See the module.
#[derive(Default)]
pub(crate) struct Room {
    effects: Vec<Effect>,
    buffers: EffectBuffers,
}

impl Room {
    /// Lends the room to a run for its turn.
    pub(crate) fn lend(&mut self, machine: &mut RunMachine, effects: &mut Vec<Effect>) {
        machine.swap_buffers(&mut self.buffers);
        std::mem::swap(&mut self.effects, effects);
    }

    /// Takes it back, from a run whose effects are carried out.
    pub(crate) fn take_back(&mut self, machine: &mut RunMachine, effects: &mut Vec<Effect>) {
        self.lend(machine, effects);
        if self.effects.capacity() > MOST || self.buffers.capacity() > MOST {
            *self = Self::default();
        }
    }
}
