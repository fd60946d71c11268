//! The runs in memory: unfinished ones, and the last that ended.
//!
//! The other files of this folder are the parts of a run (its progress, questions, handle; `events` is its log), the runs that are
//! not in memory (`store`), views of both for a caller (`scoped`), and the keys of requests that started
//! runs (`idempotency`). They know no service:
//! whatever starts, steers or records runs is above this folder.

pub(crate) mod changes;
pub(crate) mod events;
pub(crate) mod figures;
pub(crate) mod followed;
pub(crate) mod handle;
pub(crate) mod idempotency;
pub(crate) mod progress;
pub(crate) mod questions;
pub(crate) mod quota;
pub(crate) mod scoped;
pub(crate) mod store;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use axum::body::Bytes;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::http::problem::{Problem, ProblemCode};
use crate::limits::{Limits, StreamGate};
use crate::memory::MemoryReservation;
use crate::runs::changes::Changes;
use crate::runs::events::event_log::EventLog;
use crate::runs::events::json_text::{self, SHORT, json_of};
use crate::runs::events::position::Position;
use crate::runs::figures::FigureCounter;
use crate::runs::handle::Handle;
use crate::runs::progress::Progress;
use crate::runs::questions::Questions;
use crate::runs::quota::CountedRun;
use crate::runs::store::archive::{RunQuery, RunSummary};
use pirn::store::Run as StoredRun;
use pirn::{RunError, RunErrorCode, RunHandle, RunReport, ThreadStatus};

/// Status of a run that waits for the earlier runs of its session.
pub(crate) const QUEUED: &str = "QUEUED";

/// A run that was started or resumed by this service, or a run of another process that streams of this service read.
pub(crate) struct Run {
    pub(crate) handle: Handle,
    pub(crate) info: RunInfo,
    /// Status in the store of a run that continues in another process, or later in this one.
    left: OnceLock<&'static str>,
    /// True once the run's termination is final here, or the run continues in another process. The log is closed at that time.
    decided: watch::Sender<bool>,
    pub(crate) log: EventLog,
    pub(crate) progress: Progress,
    pub(crate) questions: Questions,
    pub(crate) figures: FigureCounter,
    pub(crate) streams: StreamGate,
    /// Memory reserved for its input, until the run ends.
    input: Mutex<Option<MemoryReservation>>,
    /// Another process executes the run. Its events are read from the store.
    pub(crate) is_followed: bool,
    /// Counts the run as one of its tenant's, until the run ends.
    counted: Mutex<Option<CountedRun>>,
    pub(crate) replayed: Replayed,
    /// Ids of the front end's messages with which the run started.
    first_messages: OnceLock<Vec<String>>,
}

/// The part of a run's events that is repeated when this process resumes or forks the run. The times are in milliseconds since the
/// Unix epoch, and 0 if there is no such part.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Replayed {
    /// Time of the last event before this process executed the run. Metrics count only later events.
    pub(crate) until: u64,
    /// Time of the last event that a fork may share with its base. Tokens up to then are those of the base.
    pub(crate) shared_until: u64,
}

/// Facts about a run that do not depend on its progress.
pub(crate) struct RunInfo {
    pub(crate) workflow_id: String,
    pub(crate) session: Option<String>,
    /// Milliseconds since the Unix epoch. Of a new run, the time of the request: see [`Runs::began`].
    pub(crate) started_at: AtomicU64,
    /// Base and step of a fork, as in its report. Boxed, because few runs are forks.
    pub(crate) forked_from: Option<Box<Value>>,
}

/// Returns `forkedFrom` of the report of a stored run.
pub(crate) fn forked_from(stored: &StoredRun) -> Option<Box<Value>> {
    let base = stored.base.as_ref()?;
    Some(Box::new(json!({"runId": base.run, "step": base.step})))
}

/// The final report of a fork.
#[derive(Serialize)]
struct ForkReport<'a> {
    #[serde(flatten)]
    report: &'a RunReport,
    #[serde(rename = "forkedFrom")]
    forked_from: &'a Value,
}

impl Run {
    /// Creates a run; for `first_piece`, see [`EventLog::new`].
    pub(crate) fn new(
        handle: RunHandle,
        info: RunInfo,
        limits: &Limits,
        first_piece: u64,
        event_bytes: Arc<AtomicUsize>,
    ) -> Self {
        Self::of(Handle::new(handle), info, limits, first_piece, event_bytes)
    }

    /// Creates a run that another process executes.
    pub(crate) fn followed(run_id: &str, info: RunInfo, limits: &Limits, event_bytes: Arc<AtomicUsize>) -> Self {
        Self {
            is_followed: true,
            // The events from the store have no pieces, whose first number this is.
            ..Self::of(Handle::followed(run_id), info, limits, 1, event_bytes)
        }
    }

    fn of(handle: Handle, info: RunInfo, limits: &Limits, first_piece: u64, event_bytes: Arc<AtomicUsize>) -> Self {
        let log_limits = (limits.events_per_run, limits.event_bytes_per_run);
        Self {
            handle,
            info,
            left: OnceLock::new(),
            decided: watch::Sender::new(false),
            log: EventLog::new(log_limits, first_piece, event_bytes),
            progress: Progress::default(),
            questions: Questions::default(),
            figures: FigureCounter::default(),
            streams: StreamGate::new(limits.streams_per_run),
            input: Mutex::default(),
            is_followed: false,
            counted: Mutex::default(),
            replayed: Replayed::default(),
            first_messages: OnceLock::new(),
        }
    }

    /// Adds the memory reservation of the run's input.
    pub(crate) fn holding(mut self, input: Option<MemoryReservation>) -> Self {
        self.input = Mutex::new(input);
        self
    }

    /// Adds the count of the run among those of its tenant.
    pub(crate) fn counted(mut self, counted: Option<CountedRun>) -> Self {
        self.counted = Mutex::new(counted);
        self
    }

    /// Sets the part of the run's events that is repeated.
    pub(crate) fn replaying(mut self, replayed: Replayed) -> Self {
        self.replayed = replayed;
        self
    }

    /// Sets the ids of the front end's messages with which the run started.
    pub(crate) fn started_with(&self, messages: Vec<String>) {
        // They are set once, after the start.
        drop(self.first_messages.set(messages));
    }

    /// Returns true if the run started with the front end's message with this id.
    pub(crate) fn was_started_with(&self, message: &str) -> bool {
        self.first_messages.get().into_iter().flatten().any(|id| id == message)
    }

    pub(crate) fn id(&self) -> &str {
        self.handle.run_id()
    }

    /// Time of its start, in milliseconds since the Unix epoch.
    pub(crate) fn started_at(&self) -> u64 {
        self.info.started_at.load(Ordering::Relaxed)
    }

    /// Returns the id of the main thread.
    pub(crate) fn main_thread(&self) -> String {
        format!("{}.0", self.id())
    }

    /// Returns the report of a run that has ended.
    pub(crate) fn outcome(&self) -> Option<Arc<RunReport>> {
        self.told()?;
        self.handle.try_outcome()
    }

    /// Returns how the run has ended, unless it continues elsewhere.
    fn told(&self) -> Option<(ThreadStatus, Option<RunError>)> {
        let (status, error) = self.handle.ended()?;
        let is_told =
            self.left.get().is_none() && (*self.decided.borrow() || !may_go_on_elsewhere(status, error.as_ref()));
        is_told.then_some((status, error))
    }

    /// True if the run has ended in this process with an outcome that may be local to it: another process may have continued the run
    /// from its last step in the store.
    pub(crate) fn may_continue_elsewhere(&self) -> bool {
        let ended = self.handle.ended();
        ended.is_some_and(|(status, error)| may_go_on_elsewhere(status, error.as_ref()))
    }

    /// Marks the run as decided: its recorder has read every event, and the service has checked whether the run continues
    /// elsewhere.
    pub(crate) fn decided(&self) {
        self.decided.send_replace(true);
    }

    /// Records the status in the store of a run that continues elsewhere. Only the first status is recorded.
    pub(crate) fn leave(&self, status: &'static str) {
        self.left.get_or_init(|| status);
    }

    /// True if the run continues in another process, or later in this one.
    pub(crate) fn has_left(&self) -> bool {
        self.left.get().is_some()
    }

    /// Waits until the service has decided whether a run that ended in this process continues elsewhere. Any other outcome is final
    /// at once, even while detached branches of the run are active.
    pub(crate) async fn until_decided(&self) {
        if self.may_continue_elsewhere() {
            // The wait cannot fail: `self` owns the sender.
            let _: Result<_, _> = self.decided.subscribe().wait_for(|decided| *decided).await;
        }
    }

    pub(crate) fn status(&self) -> &'static str {
        if let Some(left) = self.left.get() {
            return left;
        }
        let told = self.told();
        match told {
            Some((status, _)) => status.as_str(),
            None if self.is_queued() => QUEUED,
            None => self.progress.status(),
        }
    }

    /// True if the run waits for the earlier runs of its session. Such a run has no event.
    fn is_queued(&self) -> bool {
        self.info.session.is_some() && !self.is_followed && self.log.last().0 == Position::START
    }

    /// True if the final report is available.
    pub(crate) fn has_ended(&self) -> bool {
        self.told().is_some()
    }

    /// Returns the reason why a run that has ended did not complete.
    pub(crate) fn error(&self) -> Option<RunError> {
        self.told().and_then(|(_, error)| error)
    }

    /// Returns the sequence and the time of the last change.
    fn last_change(&self) -> (Position, u64) {
        let (last, last_at) = self.log.last();
        // The events that a fork shares with its base are older than the fork.
        (last, last_at.unwrap_or_default().max(self.started_at()))
    }

    /// Returns the time from the start of a run that has ended to its end, in milliseconds. The report of a fork states the time from
    /// the start of its base.
    pub(crate) fn duration_ms(&self, report: &RunReport) -> u64 {
        if self.replayed.shared_until == 0 {
            return report.elapsed_ms;
        }
        self.last_change().1.saturating_sub(self.started_at())
    }

    pub(crate) fn summary(&self) -> RunSummary {
        let (last, updated_at) = self.last_change();
        let figures = self.figures.figures();
        let has_ended = self.has_ended();
        // Detached branches may open questions after the main thread has ended.
        let open_questions = if self.log.is_closed() {
            0
        } else {
            self.questions.count()
        };
        let started_at = self.started_at();
        let elapsed = updated_at.saturating_sub(started_at);
        RunSummary {
            run_id: self.id().to_owned(),
            workflow_id: self.info.workflow_id.clone(),
            session: self.info.session.clone(),
            status: self.status().to_owned(),
            started_at,
            updated_at,
            last_sequence: last.sequence,
            // The final report arrives shortly after the end.
            duration_ms: figures.duration_ms.or(has_ended.then_some(elapsed)),
            tokens: figures.tokens,
            cost: figures.cost,
            open_questions: Some(open_questions),
            waiting_for: None,
        }
    }

    /// Returns the final report as JSON if the run has ended, otherwise the report so far.
    pub(crate) async fn report(&self) -> Bytes {
        if self.has_ended() {
            return self.last_report().await;
        }
        let status = match self.handle.active() {
            Some(handle) => handle.status().await,
            None => None,
        };
        let (threads, waiting) =
            status.map_or_else(Default::default, |status| (status.threads, status.waiting_messages));
        // Check again: the run may have ended during the `await`.
        if self.has_ended() {
            return self.last_report().await;
        }
        let summary = self.summary();
        let mut report = json!({
            "runId": summary.run_id,
            "threadId": self.main_thread(),
            "workflowId": summary.workflow_id,
            "status": summary.status,
            "output": null,
            "nodes": self.progress.nodes(),
            "threads": threads,
            "elapsedMs": summary.updated_at.saturating_sub(summary.started_at),
            "startedAt": summary.started_at,
            "lastSequence": summary.last_sequence,
        });
        if !waiting.is_empty() {
            report["waitingMessages"] = json!(waiting);
        }
        if let Some(base) = &self.info.forked_from {
            report["forkedFrom"] = (**base).clone();
        }
        report.to_string().into()
    }

    async fn last_report(&self) -> Bytes {
        match self.handle.report() {
            Some(report) => report,
            None => self.final_json(self.handle.outcome().await).await,
        }
    }

    async fn final_json(&self, report: Arc<RunReport>) -> Bytes {
        let Some(base) = self.info.forked_from.clone() else {
            return json_of(report).await;
        };
        let written = tokio::task::spawn_blocking(move || {
            json_text::json(&ForkReport {
                report: &report,
                forked_from: &base,
            })
        });
        written.await.unwrap_or_default()
    }

    /// Releases the values of a run that has ended; its report is retained as JSON.
    pub(crate) async fn release(self: &Arc<Self>, report: Arc<RunReport>) {
        self.progress.forget();
        self.figures.end(&report, self.duration_ms(&report));
        drop(self.counted.lock().unwrap_or_else(PoisonError::into_inner).take());
        let json = self.final_json(Arc::clone(&report)).await;
        let input = self.input.lock().unwrap_or_else(PoisonError::into_inner).take();
        if json.len() <= SHORT {
            drop(input);
            return self.handle.release(&report, json);
        }
        let run = Arc::clone(self);
        // Dropping large values takes time, so it happens on a blocking thread.
        let freed = tokio::task::spawn_blocking(move || {
            run.handle.release(&report, json);
            drop((report, input));
        });
        freed
            .await
            .unwrap_or_else(|error| tracing::error!(%error, "releasing a run failed"));
    }

    /// Returns the memory of a run that has ended.
    fn bytes(&self) -> usize {
        self.log.bytes() + self.handle.report().map_or(0, |report| report.len()) + OVERHEAD
    }

    /// Returns the handle of an active run, for steering.
    pub(crate) fn live(&self) -> Result<RunHandle, Problem> {
        let active = self.handle.active().filter(|_| !self.has_ended());
        active.ok_or_else(|| ended(self.id()))
    }
}

/// True if this outcome may be local to this process: the engine was shut down, the run was parked, or its store failed.
fn may_go_on_elsewhere(status: ThreadStatus, error: Option<&RunError>) -> bool {
    let code = error.map(|error| error.code);
    status == ThreadStatus::Failed && matches!(code, Some(RunErrorCode::Cancelled | RunErrorCode::StoreError))
}

/// Estimated memory of a run in addition to its events and its report.
const OVERHEAD: usize = 4 << 10;

pub(crate) fn ended(id: &str) -> Problem {
    Problem::new(ProblemCode::RunEnded, format!("run {id} has ended"))
}

/// Sort key of lists: (start, id).
type Place = (u64, Arc<str>);

pub(crate) struct Runs {
    state: Mutex<State>,
    max_ended: usize,
    max_ended_bytes: usize,
    max_event_bytes: usize,
    /// Memory of the events of all runs.
    event_bytes: Arc<AtomicUsize>,
    /// Modified while `state` is locked, so that changes are in the order of the registrations.
    changes: Changes,
}

#[derive(Default)]
struct State {
    by_id: BTreeMap<Arc<str>, Arc<Run>>,
    by_place: BTreeMap<Place, Arc<Run>>,
    /// Ids of runs that are being started.
    starting: BTreeSet<String>,
    /// Ended runs with their memory, in the order of their ends.
    ended: VecDeque<(Place, usize)>,
    ended_bytes: usize,
}

/// Reservation of a run id, until the run is registered: no other run can take the id.
struct Starting<'a> {
    runs: &'a Runs,
    id: &'a str,
}

impl Drop for Starting<'_> {
    fn drop(&mut self) {
        self.runs.state().starting.remove(self.id);
    }
}

impl State {
    /// Removes the run that ended first. `Some(None)` if that run was removed before; `None` if no run has ended.
    #[allow(clippy::option_option)] // none is another answer than a run that is gone
    fn forget(&mut self, changes: &Changes) -> Option<Option<Arc<Run>>> {
        let (place, bytes) = self.ended.pop_front()?;
        self.ended_bytes -= bytes;
        // A newer run may have the id now: compare the start times.
        if self.by_id.get(&place.1).is_some_and(|run| run.started_at() == place.0) {
            self.by_id.remove(&place.1);
            changes.forget(&place.1);
        }
        Some(self.by_place.remove(&place))
    }

    /// True if this run, and no later one, has its id.
    fn is_registered(&self, run: &Run) -> bool {
        let known = self.by_id.get(run.id());
        known.is_some_and(|known| std::ptr::eq(&raw const **known, run))
    }

    fn put(&mut self, run: Run) -> Arc<Run> {
        let run = Arc::new(run);
        let id: Arc<str> = run.id().into();
        // Its recorder may still hold an earlier run of this id: remove that one from the list.
        if let Some(before) = self.by_id.insert(Arc::clone(&id), Arc::clone(&run)) {
            self.by_place.remove(&(before.started_at(), Arc::clone(&id)));
        }
        self.by_place.insert((run.started_at(), id), Arc::clone(&run));
        run
    }
}

impl Runs {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            state: Mutex::default(),
            max_ended: limits.ended_runs,
            max_ended_bytes: limits.ended_bytes,
            max_event_bytes: limits.event_bytes,
            event_bytes: Arc::default(),
            changes: Changes::new(now()),
        }
    }

    pub(crate) fn changes(&self) -> &Changes {
        &self.changes
    }

    /// Records a change of a run, unless it is not in memory any more.
    pub(crate) fn changed(&self, run: &Run) {
        let state = self.state();
        if state.is_registered(run) {
            self.changes.add(run.id());
        }
    }

    /// Returns the counter of the memory of all runs' events.
    pub(crate) fn event_bytes(&self) -> &Arc<AtomicUsize> {
        &self.event_bytes
    }

    /// Starts a run, unless its id is taken.
    pub(crate) fn start(
        &self,
        run_id: Option<&str>,
        start: impl FnOnce() -> Result<Run, Problem>,
    ) -> Result<Arc<Run>, Problem> {
        let Some(id) = run_id else {
            return Ok(self.register(start()?));
        };
        {
            let mut state = self.state();
            if state.by_id.contains_key(id) || !state.starting.insert(id.to_owned()) {
                let detail = format!("run {id} exists already");
                return Err(Problem::new(ProblemCode::RunIdTaken, detail).at("/runId"));
            }
        }
        // Start outside of the lock, which every request takes.
        let _starting = Starting { runs: self, id };
        Ok(self.register(start()?))
    }

    /// Registers a run that is resumed.
    pub(crate) fn register(&self, run: Run) -> Arc<Run> {
        let mut state = self.state();
        let run = state.put(run);
        self.changes.add(run.id());
        run
    }

    /// Replaces the time when a new run was requested with the time when it began, as the store has it. Lists have one order and one
    /// time for the run, whether they read it from the memory or from the store.
    pub(crate) fn began(&self, run: &Arc<Run>) {
        let Some(began_at) = run.handle.active().and_then(|handle| handle.started_at()) else {
            return;
        };
        let mut state = self.state();
        // The lock is held during the change, because the place in the list contains the time.
        let requested_at = run.info.started_at.swap(began_at, Ordering::Relaxed);
        if requested_at != began_at && state.is_registered(run) {
            let id: Arc<str> = run.id().into();
            state.by_place.remove(&(requested_at, Arc::clone(&id)));
            state.by_place.insert((began_at, id), Arc::clone(run));
            self.changes.add(run.id());
        }
    }

    /// Removes a run that has ended in this process but has `status` in the store, since it continues elsewhere. Another run of
    /// this id may be registered already, and is not removed.
    pub(crate) fn leave(&self, run: &Arc<Run>, status: &'static str) {
        run.leave(status);
        let mut state = self.state();
        if state.is_registered(run) {
            self.changes.leave(run.summary());
            state.by_id.remove(run.id());
            state.by_place.remove(&(run.started_at(), run.id().into()));
        }
    }

    pub(crate) fn find(&self, id: &str) -> Option<Arc<Run>> {
        self.state().by_id.get(id).cloned()
    }

    /// Returns the unfinished runs with ids that start with `prefix`.
    pub(crate) fn with_prefix(&self, prefix: &str) -> Vec<Arc<Run>> {
        let state = self.state();
        let from = (Bound::Included(prefix), Bound::Unbounded);
        let runs = state.by_id.range::<str, _>(from).map(|(_, run)| run);
        runs.take_while(|run| run.id().starts_with(prefix))
            .filter(|run| !run.has_ended())
            .cloned()
            .collect()
    }

    /// Returns the youngest run for which `is_asked` is true.
    pub(crate) fn youngest(&self, is_asked: impl Fn(&Run) -> bool) -> Option<Arc<Run>> {
        let state = self.state();
        state.by_place.values().rev().find(|run| is_asked(run)).cloned()
    }

    /// Returns the oldest run for which `is_asked` is true.
    pub(crate) fn oldest(&self, is_asked: impl Fn(&Run) -> bool) -> Option<Arc<Run>> {
        let state = self.state();
        state.by_place.values().find(|run| is_asked(run)).cloned()
    }

    /// Records that a run has ended and its log is closed. The run is retained until the limits on ended runs are exceeded.
    pub(crate) fn ended(&self, run: &Run) {
        let mut forgotten = Vec::new();
        let mut state = self.state();
        // A run that was removed by `leave`, and then resumed to its end before the recorder looked, is not the registered run of
        // its id.
        if !state.is_registered(run) {
            return;
        }
        let bytes = run.bytes();
        state.ended_bytes += bytes;
        state.ended.push_back(((run.started_at(), run.id().into()), bytes));
        while state.ended.len() > self.max_ended || state.ended_bytes > self.max_ended_bytes {
            let Some(oldest) = state.forget(&self.changes) else {
                break;
            };
            forgotten.extend(oldest);
        }
        drop(state);
        // Dropping many events takes time, so it happens outside of the lock.
        drop(forgotten);
    }

    /// Removes a run that has ended, if it is in memory.
    pub(crate) fn forget_ended(&self, id: &str) {
        let mut state = self.state();
        let Some(run) = state.by_id.get(id).filter(|run| run.has_ended()).cloned() else {
            return;
        };
        state.by_id.remove(id);
        state.by_place.remove(&(run.started_at(), id.into()));
        self.changes.forget(id);
        drop(state);
        // Dropping many events takes time, so it happens outside of the lock.
        drop(run);
    }

    /// Makes room for an event of this run if the events of all runs exceed their limit: drops those of ended runs first, then the
    /// oldest of this run.
    pub(crate) fn make_room(&self, run: &Run) {
        let excess = || {
            self.event_bytes
                .load(Ordering::Relaxed)
                .saturating_sub(self.max_event_bytes)
        };
        while excess() > 0 {
            let oldest = self.state().forget(&self.changes);
            match oldest {
                Some(oldest) => drop(oldest),
                None => return run.log.free(excess()),
            }
        }
    }

    /// Returns up to `limit` runs with open questions, in the order of their first open questions.
    pub(crate) fn asking(&self, is_asked: impl Fn(&Run) -> bool, limit: usize) -> Vec<Arc<Run>> {
        let state = self.state();
        let runs = state.by_place.values();
        let mut asking: Vec<(u64, Arc<Run>)> = runs
            .filter(|run| is_asked(run) && !run.log.is_closed())
            .filter_map(|run| Some((run.questions.first_at()?, Arc::clone(run))))
            .collect();
        drop(state);
        asking.sort_by_key(|(at, _)| *at);
        asking.truncate(limit);
        asking.into_iter().map(|(_, run)| run).collect()
    }

    /// Lists runs that `are_met` accepts, youngest first, down to the first one that `ends_at` accepts.
    pub(crate) fn list(
        &self,
        query: &RunQuery,
        are_met: impl Fn(&RunSummary) -> bool,
        ends_at: impl Fn(&RunSummary) -> bool,
    ) -> Vec<RunSummary> {
        let state = self.state();
        let runs: Box<dyn Iterator<Item = &Arc<Run>>> = match &query.before {
            Some((started_at, id)) => {
                let before: Place = (*started_at, id.as_str().into());
                Box::new(state.by_place.range(..before).rev().map(|(_, run)| run))
            }
            None => Box::new(state.by_place.values().rev()),
        };
        let is_asked = |run: &&Arc<Run>| {
            query
                .id_prefix
                .as_ref()
                .is_none_or(|prefix| run.id().starts_with(prefix))
                && query.workflow.as_ref().is_none_or(|id| *id == run.info.workflow_id)
                && (query.session.is_none() || query.session == run.info.session)
                && query.status.as_ref().is_none_or(|status| status == run.status())
        };
        runs.filter(is_asked)
            .map(|run| run.summary())
            .take_while(|run| !ends_at(run))
            .filter(are_met)
            .take(query.limit)
            .collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Ignore poisoning: every critical section preserves the invariants.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns milliseconds since the Unix epoch.
pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
