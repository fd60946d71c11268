//! Rebuilding runs.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use pirn_core::run::{Begun, Effect, RunMachine, Told};

use super::EngineShared;
use crate::in_place::InPlace;
use crate::world::RunWorld;

impl EngineShared {
    /// A run of this engine as it was, and what it wanted done all along, from what a [journal](crate::journal) has of it.
    /// Nothing of that is done: what is called in place alone is called again.
    pub fn rebuild(self: &Arc<Self>, begun: Begun, told: impl IntoIterator<Item = Told>) -> (RunMachine, Vec<Effect>) {
        let evaluator = Rc::new(RefCell::new((self.ports.evaluator)()));
        let in_place = InPlace::new(Arc::clone(&self.ports), self.handle(), evaluator);
        let run_id = Arc::clone(&begun.seed.run_id);
        let metadata = begun.seed.metadata.clone();
        let mut world = RunWorld::rebuilding(&run_id, metadata.as_ref(), &in_place, begun.listening);
        let mut effects = Vec::new();
        let machine = RunMachine::rebuild(begun, told, &mut world, RunWorld::listen, &mut effects);
        (machine, effects)
    }
}
