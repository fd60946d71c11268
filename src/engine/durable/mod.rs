//! Runs that survive their process: what they are told is kept in a [`Store`], and a run that has not ended goes on from there.
//!
//! 1. What follows from something that a run was told begins, and is told, when that is durable.
//! 2. A run that goes on is rebuilt by stepping it through its journal. It keeps the definition that it began with.
//! 3. What had begun and has no outcome is in doubt: `inDoubt` of its node or tool says what happens, and the report that it did.
//! 4. Where the store fails, a run ends here with `STORE_ERROR` and stays as it is there.

mod claim;
mod compiled;
mod definition;
mod doubts;
mod elsewhere;
mod fork;
mod journal;
mod migrate;
mod offline;
mod parts;
mod resources;
mod results;
mod resume;
mod run_locks;
mod schedules;
mod sessions;
mod steer;
mod view;
mod work;

use std::sync::{Arc, OnceLock};

use compiled::CompiledDefinitions;
use parts::Conversations;
use pirn_actors::journal::Graphs;
use pirn_core::Millis;
use pirn_store::Store;
use run_locks::RunLocks;

pub(crate) use definition::Definitions;
pub(crate) use doubts::AskDoubt;
pub use doubts::{DoubtAnswer, DoubtQuestion};
pub use fork::ForkBuilder;
pub(crate) use journal::StoreJournal;
pub use migrate::{Difference, Migration};
pub(crate) use resources::Resources;
pub(crate) use resume::Stored;
pub use resume::{ResumeBuilder, ResumeError};
pub(crate) use sessions::StoredSessions;
pub use steer::{Steered, Steering};
pub use view::{OutcomeDiff, RunDiff, RunView, Step, StepKind};
pub(crate) use view::{diff, view};

/// A store, and what an engine keeps there of itself.
pub(crate) struct Durable {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) definitions: Definitions,
    pub(crate) conversations: Arc<Conversations>,
    pub(crate) ask: Option<AskDoubt>,
    /// Milliseconds that a run which waits stays in memory; none: for ever.
    parks_after: Option<Millis>,
    compiled: CompiledDefinitions,
    run_locks: RunLocks,
    /// Known once the engine's tools and models are.
    resources: OnceLock<Resources>,
}

impl Durable {
    pub(crate) fn new(store: Arc<dyn Store>, ask: Option<AskDoubt>, parks_after: Option<Millis>) -> Self {
        Self {
            store,
            definitions: Definitions::default(),
            conversations: Arc::default(),
            ask,
            parks_after,
            compiled: CompiledDefinitions::default(),
            run_locks: RunLocks::default(),
            resources: OnceLock::new(),
        }
    }

    /// Takes what the engine's runs can call.
    pub(crate) fn has(&self, resources: Resources) {
        // An engine is built once.
        let _: Result<(), Resources> = self.resources.set(resources);
    }

    /// Returns what a run of this workflow may call and this engine does not have.
    fn missing(&self, graphs: &Graphs, workflow_id: &str) -> Arc<[String]> {
        let resources = self.resources.get();
        resources.map_or_else(Default::default, |resources| resources.missing(graphs, workflow_id))
    }
}
