//! The engine, which registers workflows and executes runs.

mod auto_responder;
mod builder;
mod compression;
pub(crate) mod durable;
mod events;
mod handle;
mod run;
mod runtime;
mod workflow;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use pirn_actors::engine::{EngineShared, StartedRun, Watch};
pub use pirn_actors::engine::{MailboxDepths, TriggerRefused};
use pirn_actors::events::Subscription;
use pirn_actors::host::survive;
use pirn_actors::sessions::MemorySessions;
use pirn_conversation::conversation::TokenUsage;
use pirn_core::run::{Diverged, Effect, JournaledInput, RunStart};
use pirn_definition::definition::{Fault, Loaded, Profile, SourceFile, TriggerDefinition};
use pirn_definition::error::RunError;
use pirn_definition::graph::{CompileContext, Compiled, Graph, compile_inline, compile_loaded};
use pirn_events::trigger::{Owner, TriggerState};
use pirn_store::{Run, RunFilter, Store, StoreError};
use pirn_sync::{Completion, Lost, completion};
use serde::Serialize;
use serde_json::Value;

use crate::check::budgets::budget_faults;
use crate::check::{schema_faults, unknown_tokenizers};
use durable::{
    Definitions, Durable, ForkBuilder, RecordError, RecordedRun, RequestView, ResumeBuilder, ResumeError, RunDiff,
    RunFollower, RunView, StoredRecords, diff, drop_events, recording, report_of, request, view,
};
use pirn_models::{ModelCatalog, ModelRegistry, ModelRequests};
use pirn_script::{ScriptStats, TextSyntax};

pub(crate) use auto_responder::AutoResponder;
pub(crate) use builder::Plan;
pub use builder::{BuildError, EngineBuilder};
pub use compression::Compression;
pub use events::{BlockingEvents, EventFilter, Events, SubscriptionItem};
pub(crate) use events::{EventMemory, blocking};
pub use handle::{CancelOnDrop, RunHandle};
pub use pirn_actors::host::NotLocalContext;
pub use pirn_actors::journal::{Graphs, Journal, JournalFlush, RunJournal};
pub use pirn_actors::{History, ThreadList};
pub use pirn_core::run::RunStatus;
pub use pirn_core::run::SessionState;
pub use pirn_core::run::{FiringOutcome, FiringReport, NodeReport, RunReport, ThreadReport};
pub use run::RunBuilder;
pub(crate) use run::input_of;
use runtime::{EngineRuntime, WeakRuntime};
pub(crate) use runtime::{virtual_host, with_inline_spawner};
pub use workflow::{NodeInfo, WorkflowInfo};

/// Time within which the engine's actors, or a virtual clock's thread, must start.
const STARTS_WITHIN: Duration = Duration::from_secs(30);

/// Runs workflows. A cheap handle: clones share the engine. The engine stops on [`Engine::shutdown`], or without grace when the
/// last handle is dropped.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// use pirn::Engine;
/// use serde_json::json;
///
/// let engine = Engine::builder()
///     .function("double", |input| Ok(json!(input["n"].as_i64().unwrap_or(0) * 2)))
///     .workflows(r#"{"id": "twice", "nodes": [
///         {"id": "start", "type": "START"},
///         {"id": "double", "type": "CODE", "config": {"function": "double"}},
///         {"id": "end", "type": "END"}],
///       "edges": [{"from": "start", "to": "double"}, {"from": "double", "to": "end"}]}"#)
///     .build()?;
/// let report = engine.start("twice", json!({"n": 21}))?.outcome().await;
/// assert_eq!(report.output, json!(42));
/// engine.shutdown(std::time::Duration::from_secs(1)).await;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Engine {
    shared: Arc<EngineShared>,
    runtime: EngineRuntime,
    durable: Option<Arc<Durable>>,
    definitions: Arc<Definitions>,
    event_memory: EventMemory,
}

/// A handle that does not prevent the engine from stopping.
#[derive(Clone)]
pub struct WeakEngine {
    shared: Weak<EngineShared>,
    runtime: WeakRuntime,
    durable: Option<Weak<Durable>>,
    definitions: Arc<Definitions>,
    event_memory: EventMemory,
}

impl WeakEngine {
    /// Returns the engine, unless its last handle was dropped.
    pub fn upgrade(&self) -> Option<Engine> {
        Some(Engine {
            // All parts are upgraded or none: an engine without its threads or its store cannot execute a run.
            shared: self.shared.upgrade()?,
            runtime: self.runtime.upgrade()?,
            durable: match &self.durable {
                Some(durable) => Some(durable.upgrade()?),
                None => None,
            },
            definitions: Arc::clone(&self.definitions),
            event_memory: self.event_memory.clone(),
        })
    }
}

/// Report of an engine's shutdown: the runs that had to be cancelled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShutdownReport {
    /// Runs that had not ended when the grace was over; they were cancelled.
    pub runs_cancelled: usize,
    /// Runs that did not end even after cancellation.
    pub runs_left: usize,
    /// Actors and other tasks that were dropped.
    pub tasks_left: usize,
    /// Model and tool calls still in flight.
    pub work_left: usize,
}

impl Engine {
    /// Returns a builder of an engine.
    pub fn builder() -> EngineBuilder {
        EngineBuilder::default()
    }

    /// Registers every workflow, trigger and profile of a file in addition to those that are registered. All faults are reported at
    /// once, and then nothing is registered. Triggers watch every run that is started afterwards. If a function that the engine
    /// calls inline loads them, they watch the runs that are started after it has returned.
    pub fn load(&self, name: &str, text: &str) -> Result<Vec<Fault>, Vec<Fault>> {
        self.register(&Loaded::of(&[SourceFile::new(name, text)]), &self.shared.graphs())
    }

    /// Like [`Engine::load`] for several files that may refer to each other. A definition replaces the one with its id for future
    /// runs: an edited file can be reloaded while the engine works. A profile of [`EngineBuilder::profiles`] is not replaced.
    pub fn load_files(&self, files: &[SourceFile]) -> Result<Vec<Fault>, Vec<Fault>> {
        let loaded = Loaded::of(files);
        let is_replaced = |graph: &Arc<Graph>| {
            let mut workflows = loaded.workflows.iter();
            workflows.any(|workflow| *workflow.value.id == *graph.workflow_id)
        };
        let mut others = self.shared.graphs();
        // The compiler refuses an id that is registered already, so the graphs that this load replaces are hidden from it.
        others.retain(|graph| !is_replaced(graph));
        self.register(&loaded, &others)
    }

    fn register(&self, loaded: &Loaded, beside: &[Arc<Graph>]) -> Result<Vec<Fault>, Vec<Fault>> {
        let names = self.runtime.names();
        let profiles = profiles_of(loaded);
        // The models are only built here. They take effect after the compilation, because a load with faults must change nothing.
        let models = names.models.with_files(&profiles);
        let models = models.map_err(|faults| crate::check::located_all(&faults, loaded))?;
        let compiled = compiled(loaded, (names, &models), beside)?;
        names.models.load(&profiles, models);
        self.register_compiled(loaded, &compiled);
        Ok(compiled.warnings)
    }

    fn register_compiled(&self, loaded: &Loaded, compiled: &Compiled) {
        // Must precede the registration of the graphs: a run may start as soon as its graph is registered, and its first commit
        // needs the definition.
        self.definitions.extend(loaded, compiled, &self.shared.all_graphs());
        for graph in &compiled.graphs {
            self.shared.register(graph);
        }
        for trigger in &loaded.triggers {
            self.shared.replace_trigger(trigger.value.clone());
        }
        let has_triggers =
            compiled.graphs.iter().any(|graph| !graph.triggers.is_empty()) || !loaded.triggers.is_empty();
        // The matchers are actors, so a run that starts before they have the trigger could raise an event that they miss.
        if has_triggers && self.runtime.may_wait() {
            for in_place in self.shared.triggers_in_place() {
                // Without a matcher no trigger can fire, so an error is ignored.
                let _: Option<Result<(), Lost>> = in_place.wait_timeout(STARTS_WITHIN);
            }
        }
    }

    /// Returns the ids of the registered workflows.
    pub fn workflow_ids(&self) -> Vec<String> {
        self.shared
            .graphs()
            .iter()
            .map(|graph| graph.workflow_id.to_string())
            .collect()
    }

    /// Returns descriptions of the registered workflows, by id.
    pub fn workflows(&self) -> Vec<WorkflowInfo> {
        let graphs = self.shared.graphs();
        graphs.iter().map(|graph| WorkflowInfo::of(graph)).collect()
    }

    /// Returns the valid values of a node's `profileId`: the ids of the engine's profiles and of the built-in ones.
    pub fn profile_ids(&self) -> Vec<String> {
        let models = self.runtime.names().models.now();
        // A defined profile may have the id of a built-in one, which it replaces.
        let mut listed = BTreeSet::new();
        let ids = models.known_ids().filter(|id| listed.insert(*id));
        ids.map(str::to_owned).collect()
    }

    /// Returns the definition of a registered workflow, in the format of a workflow file.
    ///
    /// ```
    /// let text = r#"{"id": "greet", "nodes": [{"id": "s", "type": "START"}, {"id": "e", "type": "END"}],
    ///     "edges": [{"from": "s", "to": "e"}]}"#;
    /// let engine = pirn::Engine::builder().workflows(text).build()?;
    /// assert!(engine.workflow_definition("greet").is_some_and(|definition| definition.contains("START")));
    /// assert_eq!(engine.workflow_definition("other"), None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn workflow_definition(&self, id: &str) -> Option<String> {
        let graphs = self.shared.graphs();
        let graph = graphs.iter().find(|graph| *graph.workflow_id == *id)?;
        self.definitions.workflow(graph)
    }

    /// Returns a plan of the loaded workflows and triggers for runs apart from those of this engine: without its store, sessions,
    /// schedules and notifications, and with separate model limits and usage.
    pub(crate) fn trial_plan(&self) -> Result<Plan, BuildError> {
        let mut ports = self.shared.ports().clone();
        ports.journal = None;
        ports.schedules = None;
        ports.sessions = Arc::new(MemorySessions::default());
        ports.notify = Arc::new(|_, _| ());
        ports.models = self.runtime.names().models.apart().map_err(BuildError::Profiles)?;
        Ok(Plan {
            ports,
            graphs: self.shared.graphs(),
            triggers: self.definitions.triggers(),
        })
    }

    /// Starts a run. Errors: WORKFLOW_NOT_FOUND if no workflow has this id, OVERLOADED if the engine is full, CANCELLED while it
    /// shuts down, INVALID_INPUT if the input cannot be represented as JSON.
    ///
    /// ```
    /// # let engine = pirn::Engine::builder()
    /// #     .workflows(r#"{"id": "greet", "edges": [{"from": "start", "to": "end"}],
    /// #         "nodes": [{"id": "start", "type": "START"}, {"id": "end", "type": "END", "config": {"output": "input.name"}}]}"#)
    /// #     .build()?;
    /// #[derive(serde::Serialize)]
    /// struct Guest {
    ///     name: String,
    /// }
    /// let report = engine.start("greet", Guest { name: "Ada".to_owned() })?.outcome_blocking();
    /// assert_eq!(report.output_as::<&str>()?, "Ada");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn start(&self, workflow_id: impl Into<String>, input: impl Serialize) -> Result<RunHandle, RunError> {
        self.run(workflow_id).input(input).start()
    }

    /// Returns a builder of a run with more options than an input: a conversation to start with, pinned context, events from the
    /// first one on.
    pub fn run(&self, workflow_id: impl Into<String>) -> RunBuilder {
        RunBuilder::new(self.clone(), workflow_id.into())
    }

    /// Prepares messages with which any number of runs start. Their tokens are counted once, with the workflow's tokenizer, and
    /// they are immutable. The time to start a run from them does not depend on their number. Other workflows and engines may use
    /// them too; with another tokenizer, each run counts them again, like plain messages.
    ///
    /// ```
    /// # use pirn::{Engine, Message, Role};
    /// # use serde_json::Value;
    /// # let engine = Engine::builder()
    /// #     .workflows(r#"{"id": "ask", "nodes": [{"id": "s", "type": "START"},
    /// #         {"id": "ask", "type": "LLM", "config": {"prompt": "{{input}}"}}, {"id": "e", "type": "END"}],
    /// #       "edges": [{"from": "s", "to": "ask"}, {"from": "ask", "to": "e"}]}"#)
    /// #     .build()?;
    /// let base = engine.history("ask", vec![Message::new(Role::System, "You know our handbook: ...")]);
    /// for question in ["How?", "Why?"] {
    ///     let run = engine.run("ask").input(question).conversation(base.clone()).start()?;
    ///     assert_eq!(run.outcome_blocking().conversation.messages[1].content, question);
    /// }
    /// assert_eq!(base.len(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn history(&self, workflow_id: &str, messages: impl Into<History>) -> History {
        self.shared.history(workflow_id, messages)
    }

    /// Calls `watch` for each run that a trigger or a schedule starts from now on, before its first step. The function that it
    /// returns receives the run, its workflow id, and its events from the first one on with a buffer of `capacity`; it runs on the
    /// engine's thread and must not block. When `watch` returns `None` or panics, it is not called again.
    pub fn watch_started<T>(&self, capacity: usize, watch: impl Fn() -> Option<T> + Send + Sync + 'static)
    where
        T: FnOnce(RunHandle, &str, Events) + Send + 'static,
    {
        // The engine holds this function: a strong handle in it would never be dropped.
        let engine = self.downgrade();
        self.shared.watch_started(Box::new(move || {
            let (engine, take) = (engine.upgrade()?, survive("the watcher of started runs", &watch)??);
            let (deliver, events) = engine.event_memory.stream(capacity);
            // All types, from the first event: the run has not taken its first step.
            let subscription = Subscription {
                types: Vec::new(),
                after: 0,
                deliver,
            };
            let take = move |started: StartedRun, workflow_id: &str| {
                let call = || take(engine.handle(started), workflow_id, events);
                // The caller is the actor that starts the run.
                survive("the receiver of a started run", call);
            };
            Some(Watch {
                subscription,
                take: Box::new(take),
            })
        }));
    }

    /// Returns a run id that no run of this engine has, for [`RunBuilder::run_id`] or [`ForkBuilder::make`].
    pub fn new_run_id(&self) -> String {
        self.shared.next_run_id().to_string()
    }

    /// Returns events of every run as an async stream with a buffer of `capacity` events, and of the memory that [`Events`] states.
    pub fn events(&self, filter: EventFilter, capacity: usize) -> Events {
        let (deliver, events) = self.event_memory.stream(capacity);
        self.shared.subscribe(filter, deliver);
        // Under virtual time the subscription is a message that nothing processes until the clock's thread has a job.
        self.runtime.wake();
        events
    }

    /// Adds a trigger that watches every run.
    ///
    /// # Errors
    /// Returns an error if a trigger with its id exists, its schedule is invalid, or the engine has stopped.
    ///
    /// # Cancel safety
    /// The trigger is added even if the future is dropped after its first poll.
    pub async fn add_trigger(&self, trigger: TriggerDefinition) -> Result<(), TriggerRefused> {
        // A schedule is a task of the engine, not of the matchers, because it has no run and no event to react to.
        if trigger.schedule.is_some() {
            return self.shared.add_schedule(&trigger);
        }
        let added = answers(self.shared.add_trigger(trigger)).await;
        // Every arbiter has its own matcher, and all of them must have the trigger. No answer at all means that all have stopped.
        let added = added.into_iter().reduce(Result::and);
        added.unwrap_or(Err(TriggerRefused::Stopped))
    }

    /// Enables or disables a trigger of a workflow, or of the engine. Returns whether that changed anything, or `None` if there is
    /// no such trigger.
    ///
    /// # Cancel safety
    /// The change takes effect even if the future is dropped after its first poll.
    pub async fn enable_trigger(&self, workflow_id: Option<&str>, id: &str, enabled: bool) -> Option<bool> {
        let owner = owner(workflow_id);
        // Schedules are not in the matchers. `None` means that no schedule has this id, so it belongs to an event trigger or to nothing.
        if let Some(changed) = self.shared.enable_schedule(&owner, id, enabled) {
            self.runtime.wake();
            return Some(changed);
        }
        let changed = answers(self.shared.enable_trigger(&owner, id, enabled)).await;
        // Each arbiter answers for its own matcher: the trigger exists if one has it, and changed if one has changed it.
        let is_there = changed.iter().any(Option::is_some);
        is_there.then(|| changed.into_iter().flatten().any(|changed| changed))
    }

    /// Returns the triggers of a workflow, or of the engine.
    ///
    /// # Cancel safety
    /// Cancel safe: the call only reads.
    pub async fn triggers(&self, workflow_id: Option<&str>) -> Vec<TriggerState> {
        let mut by_arbiter = answers(self.shared.triggers(&owner(workflow_id))).await.into_iter();
        // Every arbiter has the same triggers but counts its own firings, so the first list is the base and the others are added.
        let mut states = by_arbiter.next().unwrap_or_default();
        for state in by_arbiter.flatten() {
            if let Some(known) = states.iter_mut().find(|known| known.id == state.id) {
                known.fired += state.fired;
                known.enabled &= state.enabled;
            }
        }
        states.extend(self.shared.schedules(&owner(workflow_id)));
        states
    }

    /// Waits, under virtual time, until the engine can make no progress without further calls from outside. Returns at once on real
    /// threads, and in a function that the engine calls: the clock is idle only after that function has returned.
    pub fn wait_idle(&self) {
        self.runtime.wait_idle(Duration::MAX);
    }

    /// Waits, under virtual time, until the engine is idle, and cancels the run if it has not ended by that time: it is deadlocked.
    /// Does nothing on real threads, and in a function that the engine calls.
    pub fn cancel_if_deadlocked(&self, run: &RunHandle) {
        // Only a virtual clock can tell that nothing is pending. On real threads an answer may still arrive from outside. On the
        // clock's own thread the caller is itself pending.
        if !self.runtime.is_virtual() || self.runtime.carries_actors_here() {
            return;
        }
        self.wait_idle();
        if run.try_outcome().is_none() {
            run.cancel("deadlock: the run waits for ever, no timer or work is pending");
            self.wait_idle();
        }
    }

    /// Returns the effects that a run requested, in order, rebuilt from its [`Journal`]. No effect is performed and nothing outside
    /// the process is called. Expressions, templates and inline functions are evaluated again.
    ///
    /// The journal must have been written by this engine or by one with equal workflows; otherwise the effects differ.
    ///
    /// # Errors
    /// Fails if an input in the journal does not fit the run's workflows: another engine wrote it, or a step is missing.
    pub fn rebuild(
        &self,
        begun: RunStart,
        told: impl IntoIterator<Item = JournaledInput>,
    ) -> Result<Vec<Effect>, Diverged> {
        self.shared.rebuild(begun, told).map(|(_, effects)| effects)
    }

    /// Returns the tokens and costs that the models of each profile have reported to this engine, by profile id. Every attempt
    /// counts for the profile that was called, fallbacks included. The built-in models count under their names.
    pub fn usage_by_profile(&self) -> BTreeMap<String, TokenUsage> {
        let requests = self.requests_by_profile().into_iter();
        requests
            .filter(|(_, requests)| !requests.usage.is_nothing())
            .map(|(profile, requests)| (profile, requests.usage))
            .collect()
    }

    /// Returns the requests that the models of each profile have answered or failed to answer in this engine, by profile id. Every
    /// attempt counts for the profile that was called, fallbacks included. The built-in models count under their names.
    pub fn requests_by_profile(&self) -> BTreeMap<String, ModelRequests> {
        self.runtime.names().models.now().requests()
    }

    /// Returns the profile that a model call of this engine's workflows uses. `None` selects the default profile, as a call without
    /// `profileId` does; so does an unknown id.
    pub fn profile(&self, id: Option<&str>) -> Arc<Profile> {
        let models = &self.shared.ports().models;
        // Profiles that the workflow files define have precedence over those of the builder.
        let of_files = models.of_run(&self.shared.all_graphs());
        of_files.as_ref().unwrap_or(models).choose(id).0
    }

    /// Returns the run of this id, if this engine executes it.
    pub fn find(&self, run_id: &str) -> Option<RunHandle> {
        self.shared.find(run_id).map(|started| self.handle(started))
    }

    /// Returns the state of a session; its version is 0 if no run has stored a result in it.
    ///
    /// # Cancel safety
    /// Cancel safe: the call only reads.
    ///
    /// # Errors
    /// `STORE_ERROR`: the store can not be read.
    pub async fn session(&self, id: &str) -> Result<SessionState, RunError> {
        self.shared.ports().sessions.state(&id.into(), None).await
    }

    /// Returns the store of the engine's runs, or `None` if runs are not persisted.
    pub fn store(&self) -> Option<&Arc<dyn Store>> {
        self.durable.as_ref().map(|durable| &durable.store)
    }

    /// Resumes a run of the engine's store that has no owner.
    pub fn resume(&self, run_id: impl Into<String>) -> ResumeBuilder {
        ResumeBuilder::new(self.clone(), run_id.into())
    }

    /// Resumes every unfinished run of the engine's store. Returns the id of each with its handle or error. A run that cannot be
    /// resumed does not prevent others from being resumed.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// # use pirn::Engine;
    /// use pirn::store::MemoryStore;
    ///
    /// let store = MemoryStore::new();
    /// let engine = Engine::builder()
    ///     .store(store)
    ///     .workflows(r#"{"id": "short", "edges": [{"from": "start", "to": "end"}],
    ///         "nodes": [{"id": "start", "type": "START"}, {"id": "end", "type": "END"}]}"#)
    ///     .build()?;
    /// for (run_id, resumed) in engine.recover().await? {
    ///     match resumed {
    ///         Ok(run) => println!("{run_id}: {:?}", run.outcome().await.status),
    ///         Err(error) => println!("{run_id}: {error}"),
    ///     }
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Cancel safety
    /// If the future is dropped, the runs resumed so far continue, and the others stay as they are in the store.
    pub async fn recover(&self) -> Result<Vec<(String, Result<RunHandle, ResumeError>)>, ResumeError> {
        self.recover_each(|run| run).await
    }

    /// Like [`Engine::recover`], with a function that prepares each run before it resumes, for example with an event subscription
    /// or with answers.
    ///
    /// # Cancel safety
    /// As [`Engine::recover`].
    pub async fn recover_each(
        &self,
        prepare: impl Fn(ResumeBuilder) -> ResumeBuilder,
    ) -> Result<Vec<(String, Result<RunHandle, ResumeError>)>, ResumeError> {
        self.recover_with(async |run| prepare(self.resume(run.id)).start().await)
            .await
    }

    /// Like [`Engine::recover_each`], with a function that resumes each run. Returns the result of this function for each run.
    ///
    /// # Cancel safety
    /// As [`Engine::recover`].
    ///
    /// # Errors
    /// Fails if the engine has no store, or the store cannot be read.
    pub async fn recover_with<T>(
        &self,
        resume: impl AsyncFn(Run) -> Result<T, ResumeError>,
    ) -> Result<Vec<(String, Result<T, ResumeError>)>, ResumeError> {
        /// Number of runs read from the store per page.
        // Pages bound the memory of a recovery: a store may have more unfinished runs than fit into memory at once.
        const PAGE: usize = 1_000;
        let durable = self.durable()?;
        let (mut resumed, mut after) = (Vec::new(), None);
        let mut later = Vec::new();
        loop {
            let page = durable.store.runs(RunFilter::live(), after, PAGE).await?;
            after = page.last().map(Run::place);
            for run in page {
                // A parent run that was resumed earlier in this loop has resumed this run too.
                if !self.shared.carries(&run.id) {
                    match resume(run.clone()).await {
                        // The earlier run of the session may be on a later page, or may itself fail to resume.
                        Err(ResumeError::SessionBusy { .. }) => later.push(run),
                        // Another process owns the run.
                        Err(ResumeError::Store(StoreError::RunHeld { .. })) => {}
                        result => resumed.push((run.id, result)),
                    }
                }
            }
            if after.is_none() {
                break;
            }
        }
        // Runs that wait for a session are resumed after the earlier runs of that session.
        loop {
            let (waiting, tried) = (later.len(), std::mem::take(&mut later));
            let mut refused = Vec::new();
            for run in tried {
                match resume(run.clone()).await {
                    Err(error @ ResumeError::SessionBusy { .. }) => {
                        refused.push((run.id.clone(), Err(error)));
                        later.push(run);
                    }
                    result => resumed.push((run.id, result)),
                }
            }
            // Each further round has fewer runs, so the loop ends. The runs that remain blocked are reported with their error.
            if later.len() == waiting {
                resumed.extend(refused);
                return Ok(resumed);
            }
        }
    }

    /// Returns the definition that a run of the engine's store currently uses, as JSON source.
    ///
    /// # Cancel safety
    /// Cancel safe: the call only reads.
    ///
    /// # Errors
    /// Fails if there is no such run.
    pub async fn definition_of(&self, run_id: &str) -> Result<Arc<str>, ResumeError> {
        let durable = self.durable()?;
        Ok(StoredRecords::read(&durable, run_id).await?.definition)
    }

    /// Returns a builder of a fork: a new run that shares the steps of a stored run up to this one.
    pub fn fork(&self, run_id: impl Into<String>, step: u64) -> ForkBuilder {
        ForkBuilder::new(self.clone(), run_id.into(), step)
    }

    /// Returns the difference between two runs of the engine's store.
    ///
    /// # Cancel safety
    /// Cancel safe: the call only reads.
    pub async fn diff(&self, a: &str, b: &str) -> Result<RunDiff, ResumeError> {
        let durable = self.durable()?;
        diff(self, &durable, a, b).await
    }

    /// Returns a run of the engine's store as it was after a step, or as it is now if `step` is `None`. The run may have ended.
    ///
    /// # Cancel safety
    /// Cancel safe: the call only reads.
    pub async fn view(&self, run_id: &str, step: Option<u64>) -> Result<RunView, ResumeError> {
        let durable = self.durable()?;
        view(self, &durable, run_id, step).await
    }

    /// Returns a reader of the events of a stored run after a sequence, whichever process executes the run.
    ///
    /// Use it for runs of other processes that share the engine's store. The caller decides how often to look for further steps.
    ///
    /// ```
    /// # futures::executor::block_on(async {
    /// # let engine = pirn::Engine::builder().store(pirn::store::MemoryStore::new()).workflows(r#"{"id": "short", "nodes": [
    /// #     {"id": "s", "type": "START"}, {"id": "e", "type": "END"}], "edges": [{"from": "s", "to": "e"}]}"#).build()?;
    /// # let run = engine.start("short", serde_json::Value::Null)?;
    /// # run.wait_all_ended().await;
    /// let mut follower = engine.follow(run.run_id(), 0);
    /// while !follower.is_over() {
    ///     for event in follower.read().await? {
    ///         println!("{}", event.to_json());
    ///     }
    ///     // ... wait, for example for 100 ms
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    pub fn follow(&self, run_id: impl Into<String>, after: u64) -> RunFollower {
        RunFollower::new(self.clone(), run_id.into(), after)
    }

    /// Drops the events and steps of an ended run of the engine's store: only its entry in lists and its report stay. Returns false, and
    /// changes nothing, if the run has not ended, was reduced before, is the base of forks, which share its steps, or was started by a
    /// trigger of an unfinished run, which rebuilds it when it is resumed.
    ///
    /// # Cancel safety
    /// If the future is dropped, the events may or may not be dropped.
    ///
    /// # Errors
    /// Fails if the run cannot be replayed, or if the store is on a server.
    pub async fn drop_events(&self, run: &Run) -> Result<bool, ResumeError> {
        let durable = self.durable()?;
        drop_events(self, &durable, run).await
    }

    /// Returns the report of a run whose events were dropped, with `"eventsDropped": true`; `None` for every other run of the store.
    ///
    /// # Cancel safety
    /// Cancel safe: the call only reads.
    ///
    /// # Errors
    /// Fails if the report cannot be read.
    pub async fn report_without_events(&self, run: &Run) -> Result<Option<Value>, ResumeError> {
        let durable = self.durable()?;
        report_of(&*durable.store, run).await
    }

    /// Returns a model request of a stored run as it was sent, with its reply. `effect_id` is that of
    /// [`RunView::requests`](crate::RunView::requests).
    ///
    /// # Errors
    /// Fails if there is no such run or request, or if the run cannot be rebuilt.
    pub async fn model_request(&self, run_id: &str, effect_id: &str) -> Result<RequestView, ResumeError> {
        let durable = self.durable()?;
        request(self, &durable, run_id, effect_id).await
    }

    /// Returns everything that a run of the engine's store received from outside, with its outcome. Profiles and tools of its
    /// requests are those of this engine.
    ///
    /// # Cancel safety
    /// Cancel safe: the call only reads.
    ///
    /// # Errors
    /// Fails if the run has not ended, was cancelled by a shutdown, did not get its turn in its session, or used a profile that this
    /// engine does not have.
    pub async fn recording(&self, run_id: &str) -> Result<RecordedRun, RecordError> {
        let durable = self.durable()?;
        recording(self, &durable, run_id).await
    }

    /// Returns a handle that does not prevent the engine from stopping.
    pub fn downgrade(&self) -> WeakEngine {
        WeakEngine {
            shared: Arc::downgrade(&self.shared),
            runtime: self.runtime.downgrade(),
            durable: self.durable.as_ref().map(Arc::downgrade),
            definitions: Arc::clone(&self.definitions),
            event_memory: self.event_memory.clone(),
        }
    }

    pub(crate) fn durable(&self) -> Result<Arc<Durable>, ResumeError> {
        self.durable.clone().ok_or(ResumeError::NoStore)
    }

    /// Compiles the workflows of a file without those of the engine. Their runs can call the file's profiles and those with which
    /// the engine was configured.
    pub(crate) fn graphs_alone(&self, name: &str, text: &str) -> Result<Graphs, Vec<Fault>> {
        let loaded = Loaded::of(&[SourceFile::new(name, text)]);
        let names = self.runtime.names();
        // A stored run keeps the profiles of its own definition, so these models do not replace those of the engine.
        let models = names.models.with_definition(&profiles_of(&loaded));
        let models = models.map_err(|faults| crate::check::located_all(&faults, &loaded))?;
        let compiled = compiled(&loaded, (names, &models), &[])?;
        let by_id = |graph: Arc<Graph>| (graph.workflow_id.to_string(), graph);
        let graphs = Arc::new(compiled.graphs.into_iter().map(by_id).collect());
        names.models.bring(&graphs, models);
        Ok(graphs)
    }

    pub(crate) fn shared(&self) -> &Arc<EngineShared> {
        &self.shared
    }

    pub(crate) fn handle(&self, started: StartedRun) -> RunHandle {
        RunHandle::new(started, self.runtime.clone())
    }

    pub(crate) fn runtime(&self) -> WeakRuntime {
        self.runtime.downgrade()
    }

    /// Returns the number of runs in progress.
    pub fn live_runs(&self) -> usize {
        self.shared.live_runs()
    }

    /// Counts the messages in the mailboxes of the engine's actors. Each of the engine's threads counts between two of its tasks,
    /// so the call takes as long as the longest of these tasks.
    pub fn mailbox_depths(&self) -> impl Future<Output = MailboxDepths> + Send + use<> {
        self.shared.mailbox_depths()
    }

    /// Returns the numbers of waiting, running and stuck jobs of the script threads.
    pub fn script_stats(&self) -> ScriptStats {
        self.shared.script_stats()
    }

    /// Admits no more runs, waits up to `grace` for those in progress, cancels the rest, stops every thread and returns a report.
    /// Durable runs that only wait for people or events are persisted at once, the other durable runs when the grace is over. A
    /// dedicated thread waits, by the real clock.
    ///
    /// # Cancel safety
    /// The shutdown begins when the future is first polled and completes even if the future is dropped; then its report is lost.
    pub async fn shutdown(&self, grace: Duration) -> ShutdownReport {
        // First, or this process could claim runs that the shutdown would only release again.
        self.carry_no_more();
        match self.begin_shutdown(grace) {
            Some(report) => report.wait().await.unwrap_or_default(),
            // No thread could be started, so shut down on the caller's.
            None => self.shutdown_blocking(grace),
        }
    }

    /// Like [`Engine::shutdown`], for callers outside async code. On a thread that runs the engine's actors (the thread of a
    /// [local](EngineBuilder::local) engine, or the caller of an inline function), the call only starts the shutdown, which continues
    /// as that thread runs its tasks; the report then counts the runs that have not ended yet.
    pub fn shutdown_blocking(&self, grace: Duration) -> ShutdownReport {
        self.carry_no_more();
        // On a thread of its actors the engine cannot wait for them: they run only when this call has returned.
        if !self.runtime.carries_actors_here() {
            return runtime::shut_down(&self.shared, &self.runtime, grace);
        }
        // Closed here and not only on the other thread, so that no run is admitted once this call has returned.
        self.shared.close();
        if self.begin_shutdown(grace).is_none() {
            // Without a thread nothing can wait for the grace period, so it is zero.
            self.shared.cancel_all();
        }
        ShutdownReport {
            runs_left: self.live_runs(),
            ..ShutdownReport::default()
        }
    }

    /// Stops claiming runs without an owner, so that other processes can claim them.
    fn carry_no_more(&self) {
        if let Some(claims) = self.durable.as_ref().and_then(|durable| durable.store.claims()) {
            // Runs that this process owns already are not affected by a limit of zero.
            claims.carry(0);
        }
    }

    /// Shuts down on a dedicated thread. Returns `None` if that thread cannot be started.
    fn begin_shutdown(&self, grace: Duration) -> Option<Completion<ShutdownReport>> {
        let (shared, runtime) = (Arc::clone(&self.shared), self.runtime.clone());
        let (setter, report) = completion();
        // Before the thread starts, so that no run is admitted after the first poll of `shutdown`. A virtual clock first completes
        // the work that was started.
        if !runtime.is_virtual() {
            shared.close();
        }
        // A thread of its own, because the wait blocks and the caller may be on the runtime that the engine's actors need.
        let stopping = std::thread::Builder::new()
            .name("pirn-shutdown".to_owned())
            .spawn(move || {
                let report = runtime::shut_down(&shared, &runtime, grace);
                // The caller that receives the report may reopen the engine's store at once, so drop every reference to it first.
                drop((shared, runtime));
                setter.set(report);
            });
        stopping.ok().map(|_| report)
    }
}

impl std::fmt::Debug for WeakEngine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WeakEngine").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("live_runs", &self.live_runs())
            .finish_non_exhaustive()
    }
}

/// The names that an engine's workflows may refer to.
struct Names {
    functions: BTreeSet<String>,
    models: Arc<ModelCatalog>,
    tokenizers: BTreeSet<String>,
}

fn profiles_of(loaded: &Loaded) -> Vec<&Profile> {
    loaded.profiles.iter().map(|profile| &profile.value).collect()
}

thread_local! {
    /// Creating a realm takes longer than checking most files, so each thread reuses one.
    static SYNTAX: TextSyntax = TextSyntax::default();
}

/// Compiles the loaded workflows and returns the graphs with the warnings, or all faults.
fn compiled(
    loaded: &Loaded,
    (names, models): (&Names, &ModelRegistry),
    registered: &[Arc<Graph>],
) -> Result<Compiled, Vec<Fault>> {
    // Without configured profiles, the set of valid ids is unknown at compile time; a call of a named profile then fails at run
    // time.
    let profiles = (!models.is_offline()).then(|| models.known_ids().map(str::to_owned).collect());
    let mut compiled = SYNTAX.with(|syntax| {
        let context = CompileContext {
            syntax,
            functions: Some(&names.functions),
            profiles: profiles.as_ref(),
            registered,
            first_uid: crate::check::next_uids(loaded.workflows.len()),
            ..CompileContext::default()
        };
        compile_loaded(loaded, &context)
    });
    // These checks need the models and tokenizers of the engine, which the compiler in `pirn-core` does not know.
    compiled.faults.extend(budget_faults(loaded, models));
    compiled.faults.extend(schema_faults(loaded));
    compiled
        .faults
        .extend(unknown_tokenizers(loaded, Some(&names.tokenizers)));
    if compiled.faults.is_empty() {
        Ok(compiled)
    } else {
        Err(compiled.faults)
    }
}

/// Compiles a workflow that was written during a run.
fn compiled_inline(source: &Arc<str>, registered: &[Arc<Graph>]) -> Result<Arc<Graph>, Vec<Fault>> {
    let graph = SYNTAX.with(|syntax| {
        let context = CompileContext {
            syntax,
            registered,
            first_uid: crate::check::next_uids(1),
            // No functions, profiles and tools: a replay in a process with another configuration must compile the same graph.
            ..CompileContext::default()
        };
        compile_inline(source, &context)
    })?;
    let wrong = schema_faults(&Loaded::of(&[SourceFile::new("workflow", Arc::clone(source))]));
    if wrong.is_empty() { Ok(graph) } else { Err(wrong) }
}

/// Collects the answers of the arbiters, without those that have stopped.
async fn answers<T: Clone>(asked: Vec<Completion<T>>) -> Vec<T> {
    let mut answers = Vec::with_capacity(asked.len());
    // All requests are already sent, so waiting for one after the other takes as long as the slowest.
    for answer in asked {
        answers.extend(answer.wait().await);
    }
    answers
}

fn owner(workflow_id: Option<&str>) -> Owner {
    workflow_id.map_or(Owner::Engine, |id| Owner::Workflow(id.into()))
}
