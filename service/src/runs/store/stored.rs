//! Runs that this process does not execute: those of the engine's store, or of an archive of the embedding program.
//!
//! Reports and events of such runs come from a replay. Their bytes are cached within a memory budget for later requests. If a run's
//! events are too large, only a part of them is cached.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::body::Bytes;
use serde_json::{Value, json};

use crate::http::problem::{Problem, ProblemCode, resume_problem};
use crate::limits::Limits;
use crate::memory::{Budget, MemoryReservation};
use crate::runs::events::event_log::{EventLog, RecordedEvent};
use crate::runs::events::position::Position;
use crate::runs::figures::Figures;
use crate::runs::forked_from;
use crate::runs::questions::Questions;
use crate::runs::store::archive::{RunArchive, RunQuery, RunSummary};
use crate::runs::store::replays::Replays;
use pirn::store::{Run, RunFilter, RunPlace, RunStatus, Store, WaitingFor};
use pirn::{Engine, Interaction, RunView};

/// Number of runs that one query of the store returns.
const PAGE: usize = 1_000;

/// Maximum number of runs that one request replays to read their questions.
const MAX_WAITING: usize = 50;

/// Minimum budget for the cached events of a run, in bytes.
const LEAST: usize = 1 << 20;

/// Number of locks for replays: requests for one run share a lock, so they wait for one replay.
const LOCKS: usize = 16;

/// Source of the runs that are not in the memory of the service.
pub(crate) enum Archive {
    /// The engine's store.
    Stored(StoredRuns),
    /// An archive of the embedding program.
    Other(Arc<dyn RunArchive>),
}

impl Archive {
    /// Returns the next events of a run, oldest first: at most `limit`, and at most `bytes` unless the first event is larger.
    pub(crate) async fn page(
        &self,
        run_id: &str,
        after: u64,
        limit: usize,
        bytes: usize,
    ) -> Result<Vec<RecordedEvent>, Problem> {
        match self {
            Self::Stored(stored) => stored.page(run_id, after, limit, bytes).await,
            Self::Other(archive) => {
                let events = archive
                    .events(run_id, after, limit)
                    .await
                    .map_err(|error| failed(&error))?;
                let log = EventLog::new((usize::MAX, usize::MAX), 1, Arc::default());
                for event in &events {
                    log.push(event);
                }
                Ok(log.after(Position::of(after), limit, bytes).events)
            }
        }
    }

    pub(crate) async fn runs(&self, query: &RunQuery) -> Result<Vec<RunSummary>, Problem> {
        match self {
            Self::Stored(stored) => stored.list(query).await,
            Self::Other(archive) => archive.runs(query).await.map_err(|error| failed(&error)),
        }
    }

    /// Returns the report of a run; `None` if the archive has no such run.
    pub(crate) async fn report(&self, run_id: &str) -> Result<Option<StoredReport>, Problem> {
        match self {
            Self::Stored(stored) => stored.report(run_id).await,
            Self::Other(archive) => {
                let report = archive.report(run_id).await.map_err(|error| failed(&error))?;
                Ok(report.map(|report| StoredReport::of(&report)))
            }
        }
    }
}

fn failed(error: &io::Error) -> Problem {
    Problem::new(ProblemCode::Internal, error.to_string())
}

/// Cache of replayed runs; see the module.
#[derive(Clone)]
pub(crate) struct StoredRuns {
    engine: Engine,
    replays: Replays,
    memory: Budget,
    /// Cached parts, the most recently used last.
    parts: Arc<Mutex<VecDeque<Arc<Part>>>>,
    locks: Arc<[tokio::sync::Mutex<()>; LOCKS]>,
}

/// State of a run after a step, and a part of its events.
struct Part {
    /// The run's entry in the store at that time.
    run: Run,
    report: StoredReport,
    /// The part contains the events after this one.
    after: u64,
    events: EventLog,
    /// The run's last event at the time of the replay.
    last: u64,
    questions: Vec<AskedQuestion>,
    figures: Figures,
    _memory: MemoryReservation,
}

/// An open question with its time, in milliseconds since the Unix epoch.
#[derive(Clone)]
pub(crate) struct AskedQuestion {
    pub(crate) question: Interaction,
    pub(crate) asked_at: Option<u64>,
}

/// The report of a run that this process does not execute.
#[derive(Clone)]
pub(crate) struct StoredReport {
    pub(crate) json: Bytes,
    pub(crate) status: String,
    pub(crate) error: Option<Value>,
}

impl StoredReport {
    fn of(report: &Value) -> Self {
        Self {
            status: report["status"].as_str().unwrap_or_default().to_owned(),
            error: report.get("error").filter(|error| !error.is_null()).cloned(),
            json: report.to_string().into(),
        }
    }
}

impl Part {
    fn is_of(&self, run: &Run) -> bool {
        (&self.run.id, self.run.steps, self.run.status) == (&run.id, run.steps, run.status)
    }

    /// True if the part contains the event after this one, or the run has none.
    fn reads_on(&self, after: u64) -> bool {
        self.after <= after && (after < self.events.last().0.sequence || after >= self.last)
    }
}

impl StoredRuns {
    pub(crate) fn new(engine: Engine, limits: &Limits, replays: Replays) -> Self {
        Self {
            engine,
            replays,
            memory: Budget::new(limits.stored_bytes),
            parts: Arc::default(),
            locks: Arc::default(),
        }
    }

    /// Returns the next events of a run; empty if no event follows.
    pub(crate) async fn page(
        &self,
        run_id: &str,
        after: u64,
        limit: usize,
        bytes: usize,
    ) -> Result<Vec<RecordedEvent>, Problem> {
        // Events never change, so a cached part of an older state of the run is still valid.
        let known = self.known(|part| part.run.id == run_id && part.reads_on(after) && after < part.last);
        let part = match known {
            Some(part) => Some(part),
            None => self.part(run_id, after).await?,
        };
        Ok(part.map_or_else(Vec::new, |part| {
            part.events.after(Position::of(after), limit, bytes).events
        }))
    }

    /// Returns the report of a run; `None` if the store has no such run.
    pub(crate) async fn report(&self, run_id: &str) -> Result<Option<StoredReport>, Problem> {
        let Some(run) = self.run(run_id).await? else {
            return Ok(None);
        };
        if let Some(known) = self.known(|part| part.is_of(&run)) {
            return Ok(Some(known.report.clone()));
        }
        let reduced = self.engine.report_without_events(&run).await;
        if let Some(report) = reduced.map_err(|error| resume_problem(&error))? {
            return Ok(Some(StoredReport::of(&report)));
        }
        Ok(self.part(run_id, 0).await?.map(|part| part.report.clone()))
    }

    async fn run(&self, run_id: &str) -> Result<Option<Run>, Problem> {
        let run = self.store()?.run(run_id).await;
        run.map_err(|error| Problem::new(ProblemCode::StoreFailed, error.to_string()))
    }

    /// Replays the run, and caches the part that contains the event after this one.
    async fn part(&self, run_id: &str, after: u64) -> Result<Option<Arc<Part>>, Problem> {
        let mut hasher = DefaultHasher::new();
        run_id.hash(&mut hasher);
        // Sharded by run id: concurrent requests for one run wait for one replay instead of repeating it.
        let _one = self.locks[(hasher.finish() % LOCKS as u64) as usize].lock().await;
        let Some(run) = self.run(run_id).await? else {
            return Ok(None);
        };
        // Check again under the lock: the request that held it before may have cached this part.
        if let Some(known) = self.known(|part| part.is_of(&run) && part.reads_on(after)) {
            return Ok(Some(known));
        }
        let stored = self.clone();
        let made = self.replays.run(move || async move {
            let view = stored.engine.view(&run.id, None).await;
            stored.make(view.map_err(|error| resume_problem(&error))?, after)
        });
        made.await?.map(Some)
    }

    fn make(&self, view: RunView, after: u64) -> Result<Arc<Part>, Problem> {
        let RunView {
            run,
            step,
            report,
            events,
            interactions,
            ..
        } = view;
        let asked = Questions::default();
        for event in &events {
            asked.observe(event);
        }
        let questions: Vec<AskedQuestion> = interactions
            .into_iter()
            .map(|question| AskedQuestion {
                asked_at: asked.asked_at(&question.id).map(|asked| asked.at),
                question,
            })
            .collect();
        let question_bytes: usize = questions
            .iter()
            .map(|asked| json!(asked.question).to_string().len())
            .sum();
        let figures = Figures::of(&report, None);
        let last = events.last().map_or(0, |event| event.sequence);
        // The sequence may be beyond the run's last event, which no event follows.
        let after = after.min(last);
        let mut shown = json!(report);
        drop(report);
        shown["steps"] = json!(step);
        if let Some(base) = forked_from(&run) {
            shown["forkedFrom"] = *base;
        }
        // The store's status is more precise for a run without an owner: UNFINISHED or WAITING.
        if !run.status.is_final() {
            shown["status"] = json!(run.status.as_str());
        }
        let report = StoredReport::of(&shown);
        drop(shown);
        let fixed = report.json.len() + question_bytes;
        let mut memory = self.reserve(fixed + LEAST)?;
        let most = (self.memory.limit() / 4).max(LEAST);
        let log = EventLog::new((usize::MAX, usize::MAX), 1, Arc::default());
        for event in events {
            if event.sequence <= after {
                continue;
            }
            let is_first = log.bytes() == 0;
            log.push(&event);
            let bytes = fixed + log.bytes();
            if !is_first && log.bytes() > most || bytes > memory.bytes() && !self.grow(&mut memory, bytes + LEAST) {
                if is_first {
                    return Err(self.full());
                }
                break;
            }
        }
        memory.shrink_to(fixed + log.bytes());
        let part = Arc::new(Part {
            run,
            report,
            after,
            events: log,
            last,
            questions,
            figures,
            _memory: memory,
        });
        let mut parts = self.parts();
        parts.retain(|known| known.run.id != part.run.id || known.after != part.after);
        parts.push_back(Arc::clone(&part));
        Ok(part)
    }

    fn reserve(&self, bytes: usize) -> Result<MemoryReservation, Problem> {
        loop {
            if let Some(reserved) = self.memory.reserve(bytes) {
                return Ok(reserved);
            }
            if !self.forget() {
                return Err(self.full());
            }
        }
    }

    fn grow(&self, reserved: &mut MemoryReservation, bytes: usize) -> bool {
        while !reserved.grow_to(bytes) {
            if !self.forget() {
                return false;
            }
        }
        true
    }

    /// Evicts the least recently used part. False if the cache is empty.
    fn forget(&self) -> bool {
        let oldest = self.parts().pop_front();
        oldest.is_some()
    }

    /// Evicts the parts of runs that were removed from the store.
    pub(crate) fn forget_runs(&self, ids: &[String]) {
        self.parts().retain(|part| !ids.contains(&part.run.id));
    }

    fn full(&self) -> Problem {
        let detail = format!("the stored runs in memory use all of {} MiB", self.memory.limit() >> 20);
        Problem::new(ProblemCode::TooManyReplays, detail).retry_after(1)
    }

    fn known(&self, fits: impl Fn(&Part) -> bool) -> Option<Arc<Part>> {
        let mut parts = self.parts();
        let place = parts.iter().rposition(|part| fits(part))?;
        let part = parts.remove(place)?;
        parts.push_back(Arc::clone(&part));
        Some(part)
    }

    fn parts(&self) -> MutexGuard<'_, VecDeque<Arc<Part>>> {
        // Ignore poisoning: every critical section preserves the invariants.
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn store(&self) -> Result<&Arc<dyn Store>, Problem> {
        let store = self.engine.store();
        store.ok_or_else(|| Problem::new(ProblemCode::NoStore, "the engine has no store"))
    }

    pub(crate) async fn list(&self, query: &RunQuery) -> Result<Vec<RunSummary>, Problem> {
        let filter = RunFilter {
            status: query.status.clone(),
            session: query.session.clone(),
            workflow: query.workflow.clone(),
            owner: query.id_prefix.as_deref().map(owner),
            youngest_first: true,
            ..RunFilter::default()
        };
        let store = self.store()?;
        let mut before = query.before.clone().map(|(started_at, id)| RunPlace { started_at, id });
        let mut found = Vec::new();
        while found.len() < query.limit {
            let wanted = (query.limit - found.len()).min(PAGE);
            let page = store.runs(filter.clone(), before, wanted).await;
            let page = page.map_err(|error| Problem::new(ProblemCode::StoreFailed, error.to_string()))?;
            let is_last = page.len() < wanted;
            before = page.last().map(Run::place);
            found.extend(page.into_iter().map(|run| self.summary(run)));
            if is_last {
                break;
            }
        }
        Ok(found)
    }

    /// Returns the summary of a run, with the figures of an earlier replay if the run has not changed since.
    fn summary(&self, run: Run) -> RunSummary {
        let known = self.parts().iter().rev().find(|part| part.is_of(&run)).cloned();
        let mut summary = summary(run);
        if let Some(part) = known {
            (summary.tokens, summary.cost) = (part.figures.tokens, part.figures.cost);
            summary.open_questions = Some(part.questions.len());
            summary.last_sequence = part.last;
        }
        summary
    }

    /// Returns runs that wait for an answer and that `is_asked` accepts, with their questions. Runs are replayed, so at most
    /// [`MAX_WAITING`] of them are read.
    pub(crate) async fn waiting(
        &self,
        id_prefix: Option<&str>,
        is_asked: impl Fn(&str) -> bool,
    ) -> Result<Vec<(Run, Vec<AskedQuestion>)>, Problem> {
        let filter = RunFilter {
            status: Some(RunStatus::Waiting(WaitingFor::Interaction).as_str().to_owned()),
            owner: id_prefix.map(owner),
            ..RunFilter::default()
        };
        let runs = self.store()?.runs(filter, None, PAGE).await;
        let runs = runs.map_err(|error| Problem::new(ProblemCode::StoreFailed, error.to_string()))?;
        let waits = |run: &Run| run.status.waiting_for() == Some(WaitingFor::Interaction) && is_asked(&run.id);
        let mut found = Vec::new();
        for run in runs.into_iter().filter(waits).take(MAX_WAITING) {
            let known = self.known(|part| part.is_of(&run));
            let part = match known {
                Some(part) => Some(part),
                None => self.part(&run.id, 0).await?,
            };
            // The run may have been removed in between.
            let Some(part) = part else { continue };
            found.push((run, part.questions.clone()));
        }
        Ok(found)
    }
}

/// Returns the owner of the runs with this prefix.
fn owner(id_prefix: &str) -> String {
    id_prefix.trim_end_matches(Run::OWNER_END).to_owned()
}

pub(crate) fn summary(run: Run) -> RunSummary {
    let is_final = run.status.is_final();
    RunSummary {
        run_id: run.id,
        workflow_id: run.workflow,
        session: run.session,
        status: run.status.as_str().to_owned(),
        started_at: run.started_at,
        updated_at: run.updated_at,
        last_sequence: 0,
        duration_ms: is_final.then(|| run.updated_at.saturating_sub(run.started_at)),
        tokens: None,
        cost: None,
        open_questions: is_final.then_some(0),
        waiting_for: run.status.waiting_for().map(WaitingFor::as_str),
    }
}
