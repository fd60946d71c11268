//! Histories of stored runs: their steps, threads, model calls and definitions, each from one replay.
//!
//! A client reads a history in pages. The last used histories are cached within a memory budget, so that a page costs no replay.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::body::Bytes;
use serde_json::json;

use crate::http::problem::{Problem, ProblemCode, resume_problem, unknown};
use crate::limits::Limits;
use crate::memory::{Budget, MemoryReservation};
use crate::runs::events::threads::written_by;
use crate::runs::store::replays::Replays;
use pirn::store::Run;
use pirn::{Engine, RequestSummary, RunView, Step, ThreadSpan};

/// Maximum number of cached histories.
const MOST: usize = 64;

/// Estimated memory of a step or a thread, in addition to the ids in it.
const ENTRY: usize = 256;

/// Number of locks for replays: requests for one run share a lock, so they wait for one replay.
const LOCKS: usize = 16;

/// History of a run up to a state of its journal.
pub(crate) struct RunHistory {
    /// The run's entry in the store at that time.
    run: Run,
    /// Every step, the start first.
    pub(crate) steps: Vec<Step>,
    /// Every thread, in start order.
    pub(crate) threads: Vec<ThreadSpan>,
    /// Every model call, in the order of the requests.
    pub(crate) requests: Vec<RequestSummary>,
    /// Text of at most [`pirn::EXPLAIN_LINES`] lines.
    pub(crate) explanation: String,
    /// `{"workflows": [...]}`: the definitions of the threads' workflows.
    pub(crate) definition: Bytes,
    /// The definitions of the workflows that were written during the run, by id.
    pub(crate) written: BTreeMap<String, String>,
    /// Memory of the cached history. Released on drop, and never read otherwise.
    memory: Option<MemoryReservation>,
}

impl RunHistory {
    fn of(view: RunView) -> Self {
        let definition = json!({"workflows": view.workflow_definitions()});
        Self {
            definition: definition.to_string().into(),
            written: view.events.iter().filter_map(|event| written_by(event)).collect(),
            explanation: view.explain(),
            run: view.run,
            steps: view.history,
            threads: view.threads,
            requests: view.requests,
            memory: None,
        }
    }

    fn is_of(&self, run: &Run) -> bool {
        (&self.run.id, self.run.steps, self.run.status) == (&run.id, run.steps, run.status)
    }

    fn bytes(&self) -> usize {
        // A model call has more fields than a step.
        let entries = self.steps.len() + self.threads.len() + 2 * self.requests.len();
        let written: usize = self.written.iter().map(|(id, text)| id.len() + text.len()).sum();
        self.definition.len() + written + self.explanation.len() + entries * (ENTRY + 3 * self.run.id.len())
    }
}

/// Cache of histories; see the module.
#[derive(Clone)]
pub(crate) struct Histories {
    engine: Engine,
    replays: Replays,
    memory: Budget,
    /// The most recently used last.
    known: Arc<Mutex<VecDeque<Arc<RunHistory>>>>,
    locks: Arc<[tokio::sync::Mutex<()>; LOCKS]>,
}

impl Histories {
    pub(crate) fn new(engine: Engine, limits: &Limits, replays: Replays) -> Self {
        Self {
            engine,
            replays,
            memory: Budget::new(limits.history_bytes),
            known: Arc::default(),
            locks: Arc::default(),
        }
    }

    /// Returns the history of a run of the engine's store.
    pub(crate) async fn of(&self, id: &str) -> Result<Arc<RunHistory>, Problem> {
        if let Some(known) = self.find(&self.run(id).await?) {
            return Ok(known);
        }
        let mut hasher = DefaultHasher::new();
        id.hash(&mut hasher);
        let _one = self.locks[(hasher.finish() % LOCKS as u64) as usize].lock().await;
        // Read again under the lock: the request that held it before may have cached this history.
        let run = self.run(id).await?;
        if let Some(known) = self.find(&run) {
            return Ok(known);
        }
        let engine = self.engine.clone();
        let read = move || async move { engine.view(&run.id, None).await.map(RunHistory::of) };
        let made = self.replays.run(read).await?;
        Ok(self.keep(made.map_err(|error| resume_problem(&error))?))
    }

    /// Evicts the histories of runs that were removed from the store.
    pub(crate) fn forget_runs(&self, ids: &[String]) {
        self.known().retain(|history| !ids.contains(&history.run.id));
    }

    async fn run(&self, id: &str) -> Result<Run, Problem> {
        let no_store = || Problem::new(ProblemCode::NoStore, "the engine has no store");
        let run = self.engine.store().ok_or_else(no_store)?.run(id).await;
        let run = run.map_err(|error| Problem::new(ProblemCode::StoreFailed, error.to_string()))?;
        run.ok_or_else(|| unknown(id))
    }

    fn find(&self, run: &Run) -> Option<Arc<RunHistory>> {
        let mut known = self.known();
        let place = known.iter().rposition(|history| history.is_of(run))?;
        let history = known.remove(place)?;
        known.push_back(Arc::clone(&history));
        Some(history)
    }

    /// Caches a history, unless the budget is too small for it.
    fn keep(&self, mut made: RunHistory) -> Arc<RunHistory> {
        let mut known = self.known();
        // A newer history of the run replaces the earlier one.
        known.retain(|history| history.run.id != made.run.id);
        while known.len() >= MOST {
            known.pop_front();
        }
        made.memory = loop {
            let reserved = self.memory.reserve(made.bytes());
            // An evicted history that a request still reads keeps its memory reserved, so this may not free enough.
            if reserved.is_some() || known.pop_front().is_none() {
                break reserved;
            }
        };
        let is_reserved = made.memory.is_some();
        let made = Arc::new(made);
        if is_reserved {
            known.push_back(Arc::clone(&made));
        }
        made
    }

    fn known(&self) -> MutexGuard<'_, VecDeque<Arc<RunHistory>>> {
        // Ignore poisoning: every critical section preserves the invariants.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
