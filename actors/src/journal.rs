//! The journal of the inputs of runs.
//!
//! A run is determined by its start and the sequence of its inputs: its machine is deterministic. Evaluations and calls that run
//! inline are not inputs; a replay executes them again.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::BoxFuture;
use pirn_core::run::{Effect, JournaledInput, RunStart, Setting};
use pirn_core::thread::FiringId;
use pirn_definition::Millis;
use pirn_definition::error::{RunError, RunErrorCode};
use pirn_definition::graph::Graph;

/// Graphs by workflow id, as they were when the run started. Sub-workflows are resolved here.
pub type Graphs = Arc<BTreeMap<String, Arc<Graph>>>;

/// Records the inputs of an engine's runs.
pub trait Journal: Send + Sync + 'static {
    /// Opens the journal of a new run over these workflows. Called on the run's own thread; must not block.
    fn begun(&self, begun: &RunStart, graphs: &Graphs) -> Box<dyn RunJournal>;

    /// Stores the start of a run that no process executes yet. The store has the commit when this function returns; the future waits
    /// until it is durable.
    ///
    /// # Errors
    /// Fails if the start cannot be serialized.
    fn put(&self, _begun: &RunStart, _graphs: &Graphs) -> Result<JournalFlush, RunError> {
        let never = "this journal stores no run that is not executed";
        Err(RunError::new(RunErrorCode::StoreError, never))
    }

    /// True if another process can resume runs from this journal.
    ///
    /// Durable runs raise their events even without subscribers, so that sequences are equal in every process. Pieces of replies
    /// differ in each attempt and take the number of the event before them.
    fn is_durable(&self) -> bool {
        false
    }
}

/// Records the inputs of one run. Called on the run's own thread, in order; must not block.
pub trait RunJournal: Send {
    /// Records an input.
    fn record(&mut self, input: &JournaledInput);

    /// Adds configuration that the run used since its last input, or since its start. Returns the settings that no longer fit
    /// into that input's record; they are passed again with the next input.
    fn went_by(&mut self, settings: Vec<Setting>) -> Vec<Setting> {
        settings
    }

    /// Notes an effect that the run requested.
    fn did(&mut self, effect: &Effect);

    /// Notes that a run that this run has started left the process without an end.
    fn started_run_left(&mut self, _firing: FiringId) {}

    /// Makes all inputs so far durable. None: no effect has to wait for that.
    fn keep(&mut self) -> Option<JournalFlush> {
        None
    }

    /// Milliseconds without input after which the run is parked. None if the run waits for more than people, events and timers,
    /// or is never parked.
    fn parks_after(&self) -> Option<Millis> {
        None
    }

    /// True if the run waits only for people, for events, or for started runs that have left the process.
    fn waits_outside(&self) -> bool {
        false
    }

    /// True if the run waits only for its turn in its session.
    fn waits_for_session(&self) -> bool {
        false
    }

    /// Reads the run's start and inputs. Called only after [`Self::parks_after`] returned a value, and once all inputs are
    /// durable.
    fn read(&self, _graphs: &Graphs) -> JournalRead {
        let never = "this journal cannot be read again";
        Box::pin(std::future::ready(Err(RunError::new(RunErrorCode::StoreError, never))))
    }
}

/// The start of a run and all of its inputs.
pub type JournalRead = BoxFuture<'static, Result<(RunStart, Vec<JournaledInput>), RunError>>;

/// Resolves once the inputs are durable. On an error they never will be, and effects that follow from them must not run.
pub type JournalFlush = BoxFuture<'static, Result<(), RunError>>;
