//! Durable runs: their inputs are journaled in a [`Store`], and an unfinished run resumes from its journal.
//!
//! 1. Effects and outputs that follow from an input are released once that input is durable.
//! 2. A resumed run is rebuilt by replaying its journal. It retains the definition with which it started.
//! 3. An effect that started and has no outcome is in doubt: `inDoubt` of its node or tool decides what happens, and the report
//!    records that.
//! 4. If the store fails, the run ends in this process with `STORE_ERROR`; its stored state is unchanged and can be resumed.
//!
//! `commands` change stored runs, `inspect` reads them, and both use `records`, which writes and reads the rows of a run.

mod claim;
mod commands;
mod doubt_question;
mod inspect;
mod peers;
mod records;
mod resources;
mod resume_error;
mod run_locks;
mod schedules;

use std::sync::{Arc, OnceLock};

use peers::Peers;
use pirn_actors::journal::Graphs;
use pirn_definition::Millis;
use pirn_store::Store;
use records::compiled::CompiledDefinitions;
use records::parts::Conversations;

pub(crate) use commands::dropped_events::{drop_events, report_of};
pub use commands::fork::ForkBuilder;
pub use commands::migrate::{Difference, Migration};
pub use commands::resume::ResumeBuilder;
pub use commands::run_command::{CommandOutcome, RunCommand};
pub(crate) use commands::started_runs::{follow_started, log_unsent};
pub(crate) use doubt_question::AskDoubt;
pub use doubt_question::{DoubtAnswer, DoubtQuestion};
pub use inspect::explain::EXPLAIN_LINES;
pub(crate) use inspect::failures::shortened;
pub use inspect::follow::RunFollower;
pub(crate) use inspect::outside_inputs::EventPositions;
pub use inspect::outside_inputs::{
    EventPosition, OutsideInput, OutsideInputKind, RecordedSession, RecordedSessionState,
};
pub use inspect::prefix::{FirstDifference, PrefixComparison, PrefixReason};
pub(crate) use inspect::recording::recording;
pub use inspect::recording::{
    RecordError, RecordedAnswer, RecordedRequest, RecordedRun, RecordedToolCall, Recording, RequestKey, SentMessage,
};
pub(crate) use inspect::requests::request;
pub use inspect::requests::{PinnedBlock, RequestContent, RequestPrefix, RequestSummary, RequestView, ResponseContent};
pub use inspect::threads::ThreadSpan;
pub use inspect::view::{OutcomeDiff, RunDiff, RunView, Step, StepKind};
pub(crate) use inspect::view::{diff, view};
pub(crate) use records::definition::Definitions;
pub(crate) use records::journal::StoreJournal;
pub(crate) use records::sessions::StoredSessions;
pub(crate) use records::stored::StoredRecords;
pub(crate) use resources::Resources;
pub use resume_error::ResumeError;

/// A store with the caches that an engine needs for it.
pub(crate) struct Durable {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) definitions: Arc<Definitions>,
    pub(crate) conversations: Arc<Conversations>,
    pub(crate) ask: Option<AskDoubt>,
    /// Milliseconds after which an idle waiting run is parked; `None`: never.
    parks_after: Option<Millis>,
    compiled: CompiledDefinitions,
    pub(crate) peers: Arc<Peers>,
    /// Set when the engine's tools and models are complete.
    resources: OnceLock<Resources>,
}

impl Durable {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        definitions: Arc<Definitions>,
        ask: Option<AskDoubt>,
        parks_after: Option<Millis>,
    ) -> Self {
        Self {
            peers: Peers::of(&store),
            store,
            // Filled when the engine registers its workflows, which happens after the store is set.
            definitions,
            conversations: Arc::default(),
            ask,
            parks_after,
            compiled: CompiledDefinitions::default(),
            resources: OnceLock::new(),
        }
    }

    /// Sets the tools, models and functions that the engine's runs can call.
    pub(crate) fn set_resources(&self, resources: Resources) {
        // An engine is built once, so the cell is empty.
        let _: Result<(), Resources> = self.resources.set(resources);
    }

    /// Returns the names that a run of this workflow may call and this engine lacks.
    fn missing(&self, graphs: &Graphs, workflow_id: &str) -> Arc<[String]> {
        let resources = self.resources.get();
        resources.map_or_else(Default::default, |resources| resources.missing(graphs, workflow_id))
    }
}
