//! State shared by the runs of one engine.
//!
//! Not here: anything that belongs to one run (`run_context`, `mailbox`).

mod admission;
mod depths;
mod elsewhere;
mod local;
mod rebuild;
mod run_ids;
mod runs;
mod schedules;
mod started;
mod triggers;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};

use pirn_conversation::conversation::Tokenizer;
use pirn_core::run::{Control, EventInterest, Message};
use pirn_core::thread::FiringId;
use pirn_definition::error::RunError;
use pirn_definition::graph::Graph;
use pirn_events::trigger::Owner;
use pirn_sync::{Completion, DrainGate, Registry, close_and_list, completion};
use serde_json::{Map, Value};

use crate::answer::Answer;
use crate::contain::Exit;
use crate::history::History;
use crate::host::{ArbiterLease, Host};
use crate::journal::Graphs;
use crate::ports::{Ports, ScriptStats};
use crate::protocol::bus::{BusMsg, Subscriber};
use crate::protocol::engine::{DetachedRun, EngineHandle, RunEnded};
pub use crate::protocol::engine::{FollowStarted, OnEnd, StartedRunLeft};
use crate::protocol::events::{Deliver, EventFilter, Subscription};
pub use crate::protocol::matcher::TriggerRefused;
pub use crate::protocol::supervisor::RunEnd;
use crate::protocol::supervisor::{SupervisorHandle, SupervisorMsg};
use crate::sessions::Sessions;
pub use admission::{AdmittedRun, InvalidName, RunRequest, SessionRequest, check_name};
pub use depths::MailboxDepths;
use local::Local;
use run_ids::RunIds;
use runs::Runs;
use schedules::Schedules;
pub use started::StartedRun;

/// Work to start on an arbiter.
pub type StartJob = Box<dyn FnOnce(&Host, Option<ArbiterLease>) + Send>;

/// Starts work on the arbiters of an engine.
pub trait Spawner: Send + Sync {
    /// Number of arbiters; at least one.
    fn arbiters(&self) -> usize;

    /// Runs a job on this arbiter, after the jobs that this thread sent there before.
    ///
    /// # Errors
    /// Fails if the engine has stopped; the job is dropped.
    fn start_on(&self, arbiter: usize, job: StartJob) -> Result<(), RunError>;

    /// Runs a job on the arbiter with the least load.
    ///
    /// # Errors
    /// Fails as [`Spawner::start_on`] does.
    fn start(&self, job: StartJob) -> Result<(), RunError>;
}

/// A watcher's part in a run started by a trigger or schedule.
pub struct Watch {
    /// Receives the run's events from the first one on.
    pub subscription: Subscription,
    /// Receives the run and its workflow id before the first step, on the thread that starts the run.
    pub take: Box<TakeStarted>,
}

/// Receives a started run and its workflow id.
pub type TakeStarted = dyn FnOnce(StartedRun, &str) + Send;

/// Called for each run started by a trigger or schedule. Returning none removes the watcher.
pub type WatchStarted = dyn Fn() -> Option<Watch> + Send + Sync;

/// Parameters of an engine.
pub struct EngineParts {
    /// Models, tools, scripts.
    pub ports: Ports,
    /// Maximum number of concurrent runs; further runs fail with OVERLOADED.
    pub max_runs: usize,
    /// Places runs on arbiters.
    pub spawner: Box<dyn Spawner>,
    /// Seed of the run ids.
    pub run_id_seed: u64,
    /// Seed of the random numbers that scripts draw. None: scripts cannot draw any.
    pub seed: Option<u64>,
    /// Maximum number of runs that wait for one session; further runs fail with SESSION_BUSY.
    pub max_waiting: usize,
    /// Number of the first run in a session. Must exceed the numbers of all earlier processes.
    pub first_number: u64,
}

/// State shared by every run of an engine.
pub struct EngineShared {
    ports: Arc<Ports>,
    graphs: RwLock<Graphs>,
    /// Locked while a change is sent to all arbiters, so that they receive all changes in one order.
    trigger_changes: Mutex<()>,
    schedules: Schedules,
    watchers: Mutex<Vec<Box<WatchStarted>>>,
    follow_started: OnceLock<Box<FollowStarted>>,
    runs: Runs,
    gate: DrainGate,
    spawner: Box<dyn Spawner>,
    run_ids: RunIds,
    seed: Option<u64>,
    next_run: AtomicU64,
    uid: u64,
    sessions: Arc<Sessions>,
}

static ENGINES: AtomicU64 = AtomicU64::new(1);

impl EngineShared {
    /// Creates the engine and starts an event bus and a trigger matcher on every arbiter.
    ///
    /// # Errors
    /// Fails if the threads have stopped.
    pub fn start(parts: EngineParts) -> Result<Arc<Self>, RunError> {
        let keeper = Arc::clone(&parts.ports.sessions);
        let engine = Arc::new(Self {
            sessions: Arc::new(Sessions::new(keeper, parts.max_waiting, parts.first_number)),
            ports: Arc::new(parts.ports),
            graphs: RwLock::default(),
            trigger_changes: Mutex::new(()),
            schedules: Schedules::default(),
            watchers: Mutex::default(),
            follow_started: OnceLock::new(),
            runs: Runs::default(),
            gate: DrainGate::new(parts.max_runs),
            spawner: parts.spawner,
            run_ids: RunIds::new(parts.run_id_seed),
            seed: parts.seed,
            next_run: AtomicU64::new(1),
            // Relaxed, because ids must be unique and need no order.
            uid: ENGINES.fetch_add(1, Ordering::Relaxed),
        });
        // Queued before the engine is returned, so the job of every run finds the bus of its arbiter.
        for arbiter in 0..engine.spawner.arbiters() {
            let started = Arc::clone(&engine);
            engine
                .spawner
                .start_on(arbiter, Box::new(move |host, _| Local::start(&started, host)))?;
        }
        Ok(engine)
    }

    /// Returns the registered graphs. Later registrations do not change the returned map.
    pub fn all_graphs(&self) -> Graphs {
        // The lock is held for the clone of one pointer.
        Arc::clone(&self.graphs.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the graph of a workflow.
    pub fn graph(&self, workflow_id: &str) -> Option<Arc<Graph>> {
        self.all_graphs().get(workflow_id).cloned()
    }

    /// Returns every registered graph, ordered by workflow id.
    pub fn graphs(&self) -> Vec<Arc<Graph>> {
        self.all_graphs().values().cloned().collect()
    }

    /// Counts messages with the workflow's tokenizer, so that runs start without counting. Returns them unchanged if this
    /// tokenizer has counted them already. A long history takes time, so the work is done on the caller's thread and not on an
    /// arbiter.
    pub fn history(&self, workflow_id: &str, messages: impl Into<History>) -> History {
        let messages = messages.into();
        // Nothing to count, and the choice of a tokenizer would search the workflow.
        if messages.is_empty() {
            return messages;
        }
        let graph = self.graph(workflow_id);
        messages.counted_by(self.tokenizer(graph.as_deref()))
    }

    fn tokenizer(&self, graph: Option<&Graph>) -> Arc<dyn Tokenizer> {
        self.ports.tokenizer_of(&*self.ports.models, graph)
    }

    /// Subscribes to events raised after the arbiters have processed the subscription. A subscription to an ended run ends at
    /// once.
    pub fn subscribe(&self, filter: EventFilter, deliver: Box<dyn Deliver>) {
        let mask = filter.mask();
        if let Some(run_id) = filter.run_id {
            // If the run has ended, the message is dropped and the subscription with it.
            let _: Result<(), RunEnded> = self.tell_run(&run_id, SupervisorMsg::Subscribe { mask, deliver });
            return;
        }
        for arbiter in 0..self.spawner.arbiters() {
            // The bus of each arbiter owns a sender.
            let deliver = deliver.another();
            self.on_arbiter(arbiter, move |local| {
                let subscriber = Subscriber {
                    of_run: None,
                    mask,
                    after: 0,
                    deliver,
                };
                local.interest.subscribe(&local.bus, subscriber);
            });
        }
    }

    /// Stops every bus and matcher. Each completes once all earlier events were delivered.
    pub fn stop(&self) -> Vec<Completion<()>> {
        self.ask_every_arbiter(|local, answer| local.bus.do_send(BusMsg::Stop(answer)))
    }

    /// Runs a query on every arbiter. The answer of a stopped arbiter is lost.
    fn ask_every_arbiter<T: Clone + Send + Sync + 'static>(
        &self,
        ask: impl Fn(&Local, Answer<T>) + Clone + Send + 'static,
    ) -> Vec<Completion<T>> {
        (0..self.spawner.arbiters())
            .map(|arbiter| {
                let (setter, completion) = completion();
                let answer = Answer::new(move |result| {
                    // A lost answer drops the setter, which the waiter receives as an error.
                    if let Ok(value) = result {
                        setter.set(value);
                    }
                });
                let ask = ask.clone();
                self.on_arbiter(arbiter, move |local| ask(local, answer));
                completion
            })
            .collect()
    }

    fn on_arbiter(&self, arbiter: usize, act: impl FnOnce(&Local) + Send + 'static) {
        let uid = self.uid;
        let job: StartJob = Box::new(move |_, _| {
            if let Some(local) = Local::of(uid) {
                act(&local);
            }
        });
        // Nothing to do if the engine has stopped.
        let _: Result<(), RunError> = self.spawner.start_on(arbiter, job);
    }

    /// Returns the running run with this id.
    pub fn find(&self, run_id: &str) -> Option<StartedRun> {
        let supervisor = self.runs.find(run_id)?;
        let (outcome, settled) = supervisor.ends.clone();
        Some(StartedRun {
            run_id: run_id.into(),
            outcome,
            settled,
            supervisor,
        })
    }

    /// Adds a watcher that is called for each run started by a trigger or schedule.
    pub fn watch_started(&self, watch: Box<WatchStarted>) {
        self.watchers().push(watch);
    }

    /// Sets the function that follows started runs which have left this engine. Without one, such a run counts as failed in its starter.
    pub fn follow_started_with(&self, follow: Box<FollowStarted>) {
        // Set once, when the engine is built.
        drop(self.follow_started.set(follow));
    }

    /// Reports to a run of this engine how a run that it started has stopped. Returns false if this engine has no such run.
    pub fn started_run_ended(&self, starter: &str, firing: FiringId, end: RunEnd<'_>) -> bool {
        self.tell_run(starter, SupervisorMsg::started_run_ended(firing, end))
            .is_ok()
    }

    fn watchers(&self) -> MutexGuard<'_, Vec<Box<WatchStarted>>> {
        // Every critical section leaves the list consistent.
        self.watchers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the engine's ports.
    pub fn ports(&self) -> &Ports {
        &self.ports
    }

    /// Returns statistics of the script threads.
    pub fn script_stats(&self) -> ScriptStats {
        self.ports.scripts.stats()
    }

    /// Stops background processes of the tools. May block for some seconds.
    pub fn close_tools(&self) {
        self.ports.tools.close();
    }

    /// Returns a run id that is unique in this engine.
    pub fn next_run_id(&self) -> Arc<str> {
        self.run_ids.id_of(self.next_run.fetch_add(1, Ordering::Relaxed))
    }

    /// Returns the engine behind the interface that its actors use.
    fn handle(self: &Arc<Self>) -> Arc<dyn EngineHandle> {
        Arc::clone(self) as Arc<dyn EngineHandle>
    }

    /// Number of runs in progress.
    pub fn live_runs(&self) -> usize {
        self.gate.inside()
    }

    /// Stops admitting runs.
    pub fn close(&self) {
        // Schedules first: one that fires after the gate has closed would log a failed start.
        self.schedules.stop();
        self.gate.close();
    }

    /// Ends durable runs in this process as soon as they wait for people or events only. They can be resumed by another process.
    pub fn keep_waiting(&self) {
        for supervisor in self.runs.list() {
            supervisor.do_send(SupervisorMsg::Closing);
        }
    }

    /// The admission gate, for waiting until all runs have left.
    pub fn gate(&self) -> &DrainGate {
        &self.gate
    }

    /// Stops admitting runs and cancels every run in progress, for a shutdown.
    pub fn cancel_all(&self) {
        // The gate is closed before the runs are listed (`pirn_sync`), so that no run is missed.
        for supervisor in close_and_list(&self.gate, &self.runs) {
            supervisor.do_send(SupervisorMsg::Control(Control::Shutdown));
        }
    }
}

impl EngineHandle for EngineShared {
    fn next_run_id(&self) -> Arc<str> {
        self.next_run_id()
    }

    fn is_closed(&self) -> bool {
        self.gate.is_closed()
    }

    fn owns_run(&self, run_id: &str) -> bool {
        self.carries(run_id)
    }

    fn tell_run(&self, run_id: &str, message: SupervisorMsg) -> Result<(), RunEnded> {
        match self.runs.find(run_id) {
            Some(supervisor) => {
                supervisor.do_send(message);
                Ok(())
            }
            None => Err(RunEnded {
                run_id: run_id.to_owned(),
            }),
        }
    }

    fn follow_started(&self, left: StartedRunLeft) {
        if let Some(follow) = self.follow_started.get() {
            return follow(left);
        }
        let StartedRunLeft { starter, firing, error } = left;
        self.tell(&starter, Message::started_run_ended(firing, Err(error)));
    }

    fn start_detached(self: Arc<Self>, run: DetachedRun) -> Result<(), RunError> {
        self.admit_detached(run)
    }

    fn store_detached(
        self: Arc<Self>,
        run: DetachedRun,
        host: &Host,
        listening: EventInterest,
    ) -> Result<(), RunError> {
        self.put_detached(run, host, listening)
    }

    fn forget_run(&self, run_id: &Arc<str>, run: &Arc<SupervisorHandle>) {
        self.runs.forget(run_id, run);
    }

    fn seed(&self) -> Option<u64> {
        self.seed
    }

    fn workflows(&self) -> Graphs {
        self.all_graphs()
    }

    fn metadata_of(&self, run_id: &str) -> Option<Arc<Map<String, Value>>> {
        self.runs.find(run_id)?.metadata().cloned()
    }

    fn disable_used_up(&self, trigger_id: &str) {
        // Not awaited: the caller is a trigger matcher, and one of the answers is its own.
        drop(self.enable_trigger(&Owner::Engine, trigger_id, false));
    }
}

fn log_exit(what: &'static str, exit: Exit) {
    if let Exit::Panicked { message } = exit {
        tracing::error!(what, message, "an actor panicked and was contained");
    }
}
