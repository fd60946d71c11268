//! Start, resume and fork of runs, shared by all interfaces.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use serde_json::{Map, Value};

use crate::http::problem::{Problem, ProblemCode, draining, id_taken, resume_problem, start_problem, unknown};
use crate::memory::MemoryReservation;
use crate::recorder::BUFFER;
use crate::runs::{Run, RunInfo, now};
use crate::state::Service;
use pirn::{Events, ForkBuilder, Message, ResumeBuilder, ResumeError, RunErrorCode, RunHandle};
use pirn_actors::engine::check_name;

/// Maximum length of a run's id.
const MAX_ID: usize = 128;

/// A request to start a run.
#[derive(Debug, Default)]
pub(super) struct Start {
    pub(super) workflow: String,
    pub(super) input: Value,
    pub(super) conversation: Vec<Message>,
    pub(super) run_id: Option<String>,
    pub(super) metadata: Map<String, Value>,
    pub(super) session: Option<String>,
    pub(super) keep_on_failure: bool,
    /// Memory reserved for its input, until the run ends.
    pub(super) memory: Option<MemoryReservation>,
}

/// A run that was started, by the process that executes it.
pub(super) enum StartResult {
    /// This service executes the run.
    Local(Arc<Run>),
    /// Another process executes the run, or will take it over.
    Remote(Arc<str>),
}

impl Service {
    /// Starts a run: here, with its events recorded from the first one on, or through the store for another process.
    pub(super) async fn start_or_enqueue(&self, start: Start) -> Result<StartResult, Problem> {
        if !self.enqueue_only() {
            return self.start_local(start).await.map(StartResult::Local);
        }
        self.check(&start).await?;
        let prepared = self.prepared(start).await?;
        let run_id = prepared.enqueue().await.map_err(|error| resume_problem(&error))?;
        Ok(StartResult::Remote(run_id))
    }

    /// Waits at most `at_most` until a run has ended that another process executes.
    pub(super) async fn ended(&self, id: &str, at_most: Duration) {
        if let Some(claims) = self.engine().store().and_then(|store| store.claims()) {
            // Ignore errors and timeouts: the caller answers with the state that the store has at that time.
            drop(tokio::time::timeout(at_most, claims.ended(id)).await);
        }
    }

    /// Starts a run here and records its events from the first one on.
    pub(super) async fn start_local(&self, mut start: Start) -> Result<Arc<Run>, Problem> {
        self.check(&start).await?;
        let memory = start.memory.take();
        let (run_id, workflow_id, session) = (start.run_id.clone(), start.workflow.clone(), start.session.clone());
        let prepared = self.prepared(start).await?;
        let mut events = None;
        let run = self.runs().start(run_id.as_deref(), || {
            let mut prepared = prepared;
            // Subscribe before the start, so that the first event is not missed.
            events = Some(prepared.events(&[], BUFFER));
            let handle = prepared.start().map_err(|error| start_problem(&error))?;
            let info = RunInfo {
                workflow_id,
                session,
                started_at: now(),
            };
            Ok(self.new_run(handle, info, 1).holding(memory))
        })?;
        self.metrics().started(&run.info.workflow_id);
        if let Some(events) = events {
            self.record(&run, events);
        }
        // Answer only once the run is durable: the client may rely on its id even if this process crashes afterwards.
        if self.engine().store().is_some()
            && let Err(error) = run.handle.wait_durable().await
        {
            match error.code {
                // Another process has registered this id first.
                RunErrorCode::RunIdTaken => return Err(id_taken(run.id())),
                RunErrorCode::StoreError => return Err(Problem::new(ProblemCode::StoreFailed, error.to_string())),
                // The run has ended already: its report contains the error, if there was one.
                _has_ended => {}
            }
        }
        Ok(run)
    }

    /// Checks that a run can start.
    async fn check(&self, start: &Start) -> Result<(), Problem> {
        if self.is_draining() {
            return Err(draining());
        }
        let published = self
            .catalogue()
            .find(&start.workflow)
            .map_err(|problem| problem.at("/workflow"))?;
        published.check(&start.input)?;
        if let Some(id) = &start.run_id {
            check_id(id)?;
            if self.in_store(id).await?.is_some() {
                return Err(id_taken(id));
            }
        }
        if let Some(Err(detail)) = start.session.as_deref().map(|id| check_name("session", id)) {
            return Err(Problem::new(ProblemCode::InvalidValue, detail).at("/session"));
        }
        if start.keep_on_failure && start.session.is_none() {
            let detail =
                "keepOnFailure stores a failed run's conversation and variables in its session: name a `session`";
            return Err(Problem::new(ProblemCode::InvalidValue, detail).at("/keepOnFailure"));
        }
        Ok(())
    }

    async fn prepared(&self, start: Start) -> Result<pirn::RunBuilder, Problem> {
        if start.conversation.is_empty() {
            return Ok(prepare(self, start));
        }
        // Run on a blocking thread: counting the tokens of a long conversation takes CPU time.
        let service = self.clone();
        let prepared = tokio::task::spawn_blocking(move || prepare(&service, start)).await;
        prepared.map_err(|error| Problem::new(ProblemCode::Internal, error.to_string()))
    }

    fn new_run(&self, handle: RunHandle, info: RunInfo, first_piece: u64) -> Run {
        let event_bytes = Arc::clone(self.runs().event_bytes());
        Run::new(handle, info, self.limits(), first_piece, event_bytes)
    }

    /// Registers and records the runs that triggers and schedules of the engine start, from their first event on.
    pub(super) fn watch_started(&self) {
        let service = self.weak();
        self.engine().watch_started(BUFFER, move || {
            let service = service()?;
            Some(move |handle: RunHandle, workflow_id: &str, events: Events| {
                let info = RunInfo {
                    workflow_id: workflow_id.to_owned(),
                    session: None,
                    started_at: now(),
                };
                let run = service.runs().register(service.new_run(handle, info, 1));
                service.metrics().started(&run.info.workflow_id);
                service.record(&run, events);
            })
        });
    }

    /// Resumes a run of the store, and records its events from the first one on.
    async fn register(&self, stored: pirn::store::Run, mut resumed: ResumeBuilder) -> Result<Arc<Run>, ResumeError> {
        let events = resumed.events_after(0, &[], BUFFER);
        let handle = resumed.start().await?;
        let info = RunInfo {
            workflow_id: stored.workflow,
            session: stored.session,
            started_at: stored.started_at,
        };
        // Must exceed the piece numbers of all earlier processes: the time does, unless a run sends a piece every millisecond for
        // years.
        let first_piece = now();
        let run = self.runs().register(self.new_run(handle, info, first_piece));
        self.metrics().started(&run.info.workflow_id);
        self.record(&run, events);
        Ok(run)
    }

    /// Resumes every unfinished run of the engine's store and registers it with the service. Call this before the service accepts
    /// requests. Returns the runs that cannot be resumed, each with the reason.
    ///
    /// # Errors
    /// Fails if the store cannot be read.
    pub async fn recover(&self) -> Result<Vec<(String, ResumeError)>, ResumeError> {
        self.enter_runtime();
        let engine = self.engine().clone();
        if engine.store().is_none() {
            return Ok(Vec::new());
        }
        let resumed = engine
            .recover_with(async |run| self.register(run.clone(), engine.resume(run.id)).await)
            .await?;
        let left = resumed
            .into_iter()
            .filter_map(|(id, resumed)| Some((id, resumed.err()?)));
        Ok(left.collect())
    }

    /// Takes part in executing the runs of a store that several processes share, as [`Engine::work`](pirn::Engine::work) does; the
    /// service registers the runs that it takes over.
    ///
    /// # Errors
    /// Fails if the store has failed.
    pub async fn work(&self, at_most: usize) -> Result<(), ResumeError> {
        let engine = self.engine().clone();
        if engine.store().is_none() {
            return Ok(());
        }
        let service = self.clone();
        engine
            .work_with(at_most, move |run_id| service.clone().resume_assigned(run_id).boxed())
            .await
    }

    /// Resumes a run that the store has assigned to this process.
    async fn resume_assigned(self, run_id: String) -> Result<(), ResumeError> {
        let store = self.engine().store().ok_or(ResumeError::NoStore)?;
        match store.run(&run_id).await? {
            Some(run) => self.register(run, self.engine().resume(run_id)).await.map(drop),
            // The run was removed from the store.
            None => Ok(()),
        }
    }

    /// Resumes one run of the store.
    pub(super) async fn resume_stored(&self, id: &str) -> Result<Arc<Run>, Problem> {
        let stored = self.in_store(id).await?.ok_or_else(|| unknown(id))?;
        if self.is_draining() {
            return Err(draining());
        }
        let (service, resumed) = (self.clone(), self.engine().resume(id));
        let register = move || async move { service.register(stored, resumed).await };
        let resumed = self.replays().run(register).await?;
        resumed.map_err(|error| resume_problem(&error))
    }

    /// Starts a new run that continues from a step of another run.
    pub(super) async fn fork(&self, fork: ForkBuilder, id: Option<String>) -> Result<Arc<Run>, Problem> {
        if self.is_draining() {
            return Err(draining());
        }
        let id = match id {
            Some(id) => {
                check_id(&id)?;
                id
            }
            None => self.new_run_id(),
        };
        let service = self.clone();
        let register = move || async move {
            let made = fork.make(id.clone()).await.map_err(|error| resume_problem(&error))?;
            let stored = service.in_store(&id).await?.ok_or_else(|| unknown(&id))?;
            let resumed = service.register(stored, made).await;
            resumed.map_err(|error| resume_problem(&error))
        };
        // A fork replays the other run, so it counts as a replay.
        self.replays().run(register).await?
    }

    /// Returns a new run id.
    pub(super) fn new_run_id(&self) -> String {
        self.engine().new_run_id()
    }

    /// Returns the run's entry in the engine's store.
    pub(super) async fn in_store(&self, id: &str) -> Result<Option<pirn::store::Run>, Problem> {
        // A store contains no run with an invalid id, and some stores return an error for one.
        let Some(store) = self.engine().store().filter(|_| check_name("run", id).is_ok()) else {
            return Ok(None);
        };
        let run = store.run(id).await;
        run.map_err(|error| Problem::new(ProblemCode::StoreFailed, error.to_string()))
    }
}

fn prepare(service: &Service, start: Start) -> pirn::RunBuilder {
    let mut prepared = service.engine().run(start.workflow).input(start.input);
    if let Some(id) = start.run_id {
        prepared = prepared.run_id(id);
    }
    if !start.metadata.is_empty() {
        prepared = prepared.metadata(start.metadata);
    }
    if let Some(session) = start.session {
        prepared = prepared.session(session);
    }
    if start.keep_on_failure {
        prepared = prepared.keep_on_failure();
    }
    prepared.conversation(start.conversation)
}

fn check_id(id: &str) -> Result<(), Problem> {
    let is_plain = id
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    // HTTP clients normalize `.` and `..` in a path as folders, so such a run could not be requested.
    if is_plain && (1..=MAX_ID).contains(&id.len()) && !matches!(id, "." | "..") {
        return Ok(());
    }
    let detail =
        format!("a run's id has 1 to {MAX_ID} letters, digits, hyphens, dots and underscores, and is not `.` or `..`");
    Err(Problem::new(ProblemCode::InvalidValue, detail).at("/runId"))
}
