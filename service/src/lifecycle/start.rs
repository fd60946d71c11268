//! Start, resume and fork of runs, shared by all interfaces.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use serde_json::{Map, Value};

use crate::audit;
use crate::events::recorder::BUFFER;
use crate::http::problem::{Problem, ProblemCode, draining, id_taken, resume_problem, start_problem, unknown};
use crate::http::tenant::Scope;
use crate::memory::MemoryReservation;
use crate::runs::quota::CountedRun;
use crate::runs::{Replayed, Run, RunInfo, forked_from, now};
use crate::state::Service;
use pirn::store::RunStatus;
use pirn::{
    Events, ForkBuilder, Message, ResumeBuilder, ResumeError, RunError, RunErrorCode, RunHandle, ToolDefinition,
};
use pirn_actors::engine::check_name;

/// The field of a run's metadata with its tenant.
const TENANT: &str = "tenant";

/// Maximum length of a run's id.
pub const MAX_RUN_ID: usize = 128;

/// A request to start a run.
#[derive(Debug, Default)]
pub(crate) struct Start {
    pub(crate) workflow: String,
    pub(crate) input: Value,
    pub(crate) conversation: Vec<Message>,
    pub(crate) run_id: Option<String>,
    pub(crate) metadata: Map<String, Value>,
    pub(crate) session: Option<String>,
    pub(crate) keep_on_failure: bool,
    /// Tools that the client executes.
    pub(crate) client_tools: Vec<ToolDefinition>,
    /// Memory reserved for its input, until the run ends.
    pub(crate) memory: Option<MemoryReservation>,
}

/// A run that was started, by the process that executes it.
pub(crate) enum StartResult {
    /// This service executes the run.
    Local(Arc<Run>),
    /// Another process executes the run, or will take it over.
    Remote(Arc<str>),
}

impl Service {
    /// Starts a run: here, with its events recorded from the first one on, or through the store for another process.
    pub(crate) async fn start_or_enqueue(&self, start: Start) -> Result<StartResult, Problem> {
        if !self.enqueue_only() {
            return self.start_local(start).await.map(StartResult::Local);
        }
        let start = self.scoped(start)?;
        self.check(&start).await?;
        let enqueue = |counted: Option<CountedRun>| async move {
            // Other processes execute the run, so it does not count as one in progress here.
            drop(counted);
            let prepared = self.prepared(start).await?;
            prepared.enqueue().await.map_err(|error| resume_problem(&error))
        };
        let run_id = self.admitted(enqueue).await?;
        self.audit_start(&run_id);
        Ok(StartResult::Remote(run_id))
    }

    /// Waits at most `at_most` until a run has ended that another process executes.
    pub(crate) async fn ended(&self, id: &str, at_most: Duration) {
        let id = &*self.scope().run_id(id);
        if let Some(claims) = self.engine().store().and_then(|store| store.claims()) {
            // Ignore errors and timeouts: the caller answers with the state that the store has at that time.
            drop(tokio::time::timeout(at_most, claims.ended(id)).await);
        }
    }

    /// Starts a run here and records its events from the first one on.
    pub(crate) async fn start_local(&self, start: Start) -> Result<Arc<Run>, Problem> {
        let start = self.scoped(start)?;
        self.check(&start).await?;
        self.admitted(|counted| self.start_admitted(start, counted)).await
    }

    async fn start_admitted(&self, mut start: Start, counted: Option<CountedRun>) -> Result<Arc<Run>, Problem> {
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
                started_at: now().into(),
                forked_from: None,
            };
            Ok(self.new_run(handle, info, 1).holding(memory).counted(counted))
        })?;
        self.metrics().started(&run.info.workflow_id);
        self.audit_start(run.id());
        if let Some(events) = events {
            self.record(&run, events);
        }
        // Answer only once the run is durable: the client may rely on its id even if this process crashes afterwards. Without a store,
        // the run has begun then and has its start time.
        if let Err(error) = run.handle.wait_durable().await {
            match error.code {
                // Another process has registered this id first.
                RunErrorCode::RunIdTaken => return Err(id_taken(run.id())),
                // Otherwise the run has ended already: its report contains the error, if there was one.
                code => {
                    let refused = self.forget_unstored(&run).await;
                    if let Some(error) = refused.or((code == RunErrorCode::StoreError).then_some(error)) {
                        return Err(Problem::new(ProblemCode::StoreFailed, error.to_string()));
                    }
                }
            }
        }
        self.runs().began(&run);
        Ok(run)
    }

    /// Removes a run that the store refused, so that the client may repeat the request with its id. Returns the store's error;
    /// `None` if the store has the run, or cannot be read: the id stays taken.
    async fn forget_unstored(&self, run: &Run) -> Option<RunError> {
        let store = self.engine().store()?;
        let report = run.handle.outcome().await;
        let refused = report
            .error
            .clone()
            .filter(|error| error.code == RunErrorCode::StoreError)?;
        if !matches!(store.run(run.id()).await, Ok(None)) {
            return None;
        }
        tracing::warn!(run_id = run.id(), error = %refused, "the store did not accept the start of a run");
        run.until_decided().await;
        self.runs().forget_ended(run);
        Some(refused)
    }

    /// Writes the start of a run to the audit log, if callers have names.
    fn audit_start(&self, run_id: &str) {
        if self.access().needs_token() {
            audit::started(self.caller(), run_id);
        }
    }

    /// Converts a request to one for a run of the caller's tenant.
    fn scoped(&self, mut start: Start) -> Result<Start, Problem> {
        let scope = self.scope();
        if let Some(id) = &start.run_id {
            check_id(own_part(scope, id))?;
            start.run_id = Some(scope.run_id(id).into_owned());
        }
        if let Some(session) = &start.session {
            check_name("session", session)
                .map_err(|invalid| Problem::new(ProblemCode::InvalidValue, invalid.to_string()).at("/session"))?;
            start.session = Some(scope.session(session).into_owned());
        }
        let Some(tenant) = &scope.0 else {
            return Ok(start);
        };
        start.run_id.get_or_insert_with(|| self.new_run_id());
        let own = Value::from(tenant.name());
        match start.metadata.insert(TENANT.to_owned(), own.clone()) {
            Some(other) if other != own => {
                let detail = format!("the token is of the tenant {}", tenant.name());
                Err(Problem::new(ProblemCode::InvalidValue, detail).at("/metadata/tenant"))
            }
            Some(_) | None => Ok(start),
        }
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
        if let Some(id) = &start.run_id
            && self.in_store(id).await?.is_some()
        {
            return Err(id_taken(id));
        }
        if let Some(Err(invalid)) = start.session.as_deref().map(|id| check_name("session", id)) {
            return Err(Problem::new(ProblemCode::InvalidValue, invalid.to_string()).at("/session"));
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
    pub(crate) fn watch_started(&self) {
        let service = self.weak();
        self.engine().watch_started(BUFFER, move || {
            let service = service()?;
            Some(move |handle: RunHandle, workflow_id: &str, events: Events| {
                let info = RunInfo {
                    workflow_id: workflow_id.to_owned(),
                    session: None,
                    started_at: now().into(),
                    forked_from: None,
                };
                let counted = service.quotas().count(handle.run_id());
                let run = service.new_run(handle, info, 1).counted(counted);
                let run = service.runs().register(run);
                service.metrics().started(&run.info.workflow_id);
                service.record(&run, events);
            })
        });
    }

    /// Resumes a run of the store, and records its events from the first one on.
    /// `admitted` counts the run already if it was admitted before.
    async fn register(
        &self,
        stored: pirn::store::Run,
        mut resumed: ResumeBuilder,
        admitted: Option<CountedRun>,
    ) -> Result<Arc<Run>, ResumeError> {
        // Before the run is registered, which replaces its last change.
        let is_new = self.is_new(&stored);
        let replayed = replayed(&stored, is_new);
        let events = resumed.events_after(0, &[], BUFFER);
        let handle = resumed.start().await?;
        let info = RunInfo {
            forked_from: forked_from(&stored),
            workflow_id: stored.workflow,
            session: stored.session,
            started_at: stored.started_at.into(),
        };
        // Must exceed the piece numbers of all earlier processes: the time does, unless a run sends a piece every millisecond for
        // years.
        let first_piece = now();
        let counted = admitted.or_else(|| self.quotas().count(handle.run_id()));
        let run = self.new_run(handle, info, first_piece);
        let run = self.runs().register(run.counted(counted).replaying(replayed));
        if is_new {
            self.metrics().started(&run.info.workflow_id);
        }
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
            .recover_with(async |run| self.register(run.clone(), engine.resume(run.id), None).await)
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
            Some(run) => self.register(run, self.engine().resume(run_id), None).await.map(drop),
            // The run was removed from the store.
            None => Ok(()),
        }
    }

    /// Resumes one run of the store.
    pub(crate) async fn resume_stored(&self, id: &str) -> Result<Arc<Run>, Problem> {
        let stored = self.in_store(id).await?.ok_or_else(|| unknown(id))?;
        if self.is_draining() {
            return Err(draining());
        }
        let (service, resumed) = (self.clone(), self.engine().resume(stored.id.as_str()));
        let register = move || async move { service.register(stored, resumed, None).await };
        let resumed = self.replays().run(register).await?;
        resumed.map_err(|error| resume_problem(&error))
    }

    /// Prepares a fork of a run of the caller.
    pub(crate) fn fork_of(&self, id: &str, step: u64) -> ForkBuilder {
        self.engine().fork(self.scope().run_id(id), step)
    }

    /// Returns the definition of a run of the caller.
    pub(crate) async fn definition_of(&self, id: &str) -> Result<Arc<str>, ResumeError> {
        self.engine().definition_of(&self.scope().run_id(id)).await
    }

    /// Starts a new run that continues from a step of another run.
    pub(crate) async fn fork(&self, fork: ForkBuilder, id: Option<String>) -> Result<Arc<Run>, Problem> {
        if self.is_draining() {
            return Err(draining());
        }
        let id = match id {
            Some(id) => {
                check_id(own_part(self.scope(), &id))?;
                self.scope().run_id(&id).into_owned()
            }
            None => self.new_run_id(),
        };
        let make = |counted: Option<CountedRun>| async move {
            let service = self.clone();
            let register = move || async move {
                let made = fork.make(id.clone()).await.map_err(|error| resume_problem(&error))?;
                let stored = service.in_store(&id).await?.ok_or_else(|| unknown(&id))?;
                let resumed = service.register(stored, made, counted).await;
                resumed.map_err(|error| resume_problem(&error))
            };
            // A fork replays the other run, so it counts as a replay.
            self.replays().run(register).await?
        };
        let run = self.admitted(make).await?;
        self.audit_start(run.id());
        Ok(run)
    }

    /// Returns a new run id without the prefix of a tenant.
    pub(crate) fn engine_run_id(&self) -> String {
        self.engine().new_run_id()
    }

    /// Returns a new id for a run of the caller.
    pub(crate) fn new_run_id(&self) -> String {
        self.scope().run_id(&self.engine().new_run_id()).into_owned()
    }

    /// True if no process has executed the stored run yet: the run is a new fork, or was enqueued.
    fn is_new(&self, stored: &pirn::store::Run) -> bool {
        let is_unchanged = match &stored.base {
            // A new fork has a step for each variable that it assigns.
            Some(_) => stored.updated_at <= stored.started_at,
            None => stored.steps == 0,
        };
        // A run that was parked during its first call has no step either.
        is_unchanged && stored.status == RunStatus::Unfinished && !self.runs().changes().has_left(&stored.id)
    }

    /// Returns the run's entry in the engine's store.
    pub(crate) async fn in_store(&self, id: &str) -> Result<Option<pirn::store::Run>, Problem> {
        let id = &*self.scope().run_id(id);
        // A store contains no run with an invalid id, and some stores return an error for one.
        let Some(store) = self.engine().store().filter(|_| check_name("run", id).is_ok()) else {
            return Ok(None);
        };
        let run = store.run(id).await;
        run.map_err(|error| Problem::new(ProblemCode::StoreFailed, error.to_string()))
    }
}

/// Returns the part of a stored run's events that is repeated when the run is resumed.
fn replayed(stored: &pirn::store::Run, is_new: bool) -> Replayed {
    // A fork starts later than the steps that it shares with its base.
    let before_start = stored.started_at.saturating_sub(1);
    Replayed {
        until: if is_new { before_start } else { stored.updated_at },
        shared_until: if stored.base.is_some() { before_start } else { 0 },
    }
}

/// Returns the part of an id that the caller has chosen.
fn own_part<'a>(scope: &Scope, id: &'a str) -> &'a str {
    scope.prefix().and_then(|prefix| id.strip_prefix(prefix)).unwrap_or(id)
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
    if !start.client_tools.is_empty() {
        prepared = prepared.client_tools(start.client_tools);
    }
    prepared.conversation(start.conversation)
}

/// True for an id that a client may choose for a run: 1 to [`MAX_RUN_ID`] letters, digits, hyphens, dots and underscores, and not `.` or
/// `..`.
pub fn is_run_id(id: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    // HTTP clients normalize `.` and `..` in a path as folders, so such a run could not be requested.
    id.bytes().all(is_plain) && (1..=MAX_RUN_ID).contains(&id.len()) && !matches!(id, "." | "..")
}

fn check_id(id: &str) -> Result<(), Problem> {
    if is_run_id(id) {
        return Ok(());
    }
    let detail = format!(
        "a run's id has 1 to {MAX_RUN_ID} letters, digits, hyphens, dots and underscores, and is not `.` or `..`"
    );
    Err(Problem::new(ProblemCode::InvalidValue, detail).at("/runId"))
}
