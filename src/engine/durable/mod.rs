//! Durable runs: their inputs are journaled in a [`Store`], and an unfinished run resumes from its journal.
//!
//! 1. Effects and outputs that follow from an input are released once that input is durable.
//! 2. A resumed run is rebuilt by replaying its journal. It retains the definition with which it started.
//! 3. An effect that started and has no outcome is in doubt: `inDoubt` of its node or tool decides what happens, and the report
//!    records that.
//! 4. If the store fails, the run ends in this process with `STORE_ERROR`; its stored state is unchanged and can be resumed.

mod claim;
mod compiled;
mod definition;
mod doubt_question;
mod doubts;
mod dropped_events;
mod enqueue;
mod explain;
mod failures;
mod fork;
mod journal;
mod mask;
mod migrate;
mod offline;
mod outside_inputs;
mod parts;
mod prefix;
mod recording;
mod requests;
mod resources;
mod results;
mod resume;
mod resume_error;
mod run_command;
mod run_locks;
mod schedules;
mod sent_call;
mod sessions;
mod stored;
mod threads;
mod view;
mod work;

use std::sync::{Arc, OnceLock};

use compiled::CompiledDefinitions;
use parts::Conversations;
use pirn_actors::journal::Graphs;
use pirn_definition::Millis;
use pirn_store::Store;
use run_locks::RunLocks;

pub(crate) use definition::Definitions;
pub(crate) use doubt_question::AskDoubt;
pub use doubt_question::{DoubtAnswer, DoubtQuestion};
pub(crate) use dropped_events::{drop_events, report_of};
pub use explain::EXPLAIN_LINES;
pub(crate) use failures::shortened;
pub use fork::ForkBuilder;
pub(crate) use journal::StoreJournal;
pub use migrate::{Difference, Migration};
pub(crate) use outside_inputs::EventPositions;
pub use outside_inputs::{EventPosition, OutsideInput, OutsideInputKind, RecordedSession, RecordedSessionState};
pub use prefix::{FirstDifference, PrefixComparison, PrefixReason};
pub(crate) use recording::recording;
pub use recording::{
    RecordError, RecordedAnswer, RecordedRequest, RecordedRun, RecordedToolCall, Recording, RequestKey, SentMessage,
};
pub(crate) use requests::request;
pub use requests::{PinnedBlock, RequestContent, RequestPrefix, RequestSummary, RequestView, ResponseContent};
pub(crate) use resources::Resources;
pub use resume::ResumeBuilder;
pub use resume_error::ResumeError;
pub use run_command::{CommandOutcome, RunCommand};
pub(crate) use sessions::StoredSessions;
pub(crate) use stored::StoredRecords;
pub use threads::ThreadSpan;
pub use view::{OutcomeDiff, RunDiff, RunView, Step, StepKind};
pub(crate) use view::{diff, view};

/// A store with the caches that an engine needs for it.
pub(crate) struct Durable {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) definitions: Arc<Definitions>,
    pub(crate) conversations: Arc<Conversations>,
    pub(crate) ask: Option<AskDoubt>,
    /// Milliseconds after which an idle waiting run is parked; `None`: never.
    parks_after: Option<Millis>,
    compiled: CompiledDefinitions,
    run_locks: RunLocks,
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
            store,
            // Filled when the engine registers its workflows, which happens after the store is set.
            definitions,
            conversations: Arc::default(),
            ask,
            parks_after,
            compiled: CompiledDefinitions::default(),
            run_locks: RunLocks::default(),
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
