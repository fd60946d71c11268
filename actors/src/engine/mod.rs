//! What the runs of one engine share.

mod admission;
mod run_ids;
mod started;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use actix::Addr;
use actix::dev::channel::channel;
use dashmap::DashMap;
use foldhash::fast::RandomState;
use pirn_core::conversation::Tokenizer;
use pirn_core::definition::TriggerDefinition;
use pirn_core::error::RunError;
use pirn_core::graph::Evaluator;
use pirn_core::graph::Graph;
use pirn_core::trigger::{Owner, TriggerState};
use pirn_sync::DrainGate;

use crate::answer::Answer;
use crate::contain::{Exit, start_contained_on, start_contained_with};
use crate::events::{BusMsg, Deliver, EventBusActor, EventFilter, Interest};
use crate::history::History;
use crate::host::{Host, Seat};
use crate::line::{BusLine, bus_line};
use crate::ports::Ports;
use crate::run::SupervisorAddr;
use crate::supervisor::{Control, SupervisorMsg};
use crate::triggers::{MatcherMsg, TriggerMatcherActor};
pub use admission::{AdmittedRun, RunRequest};
pub(crate) use admission::{DetachedRun, OnEnd};
use run_ids::RunIds;
pub use started::StartedRun;

/// Work for an arbiter.
pub type Placed = Box<dyn FnOnce(&Host, Option<Seat>) + Send>;

/// Puts work on the arbiter with the least load; an error where the engine is stopping.
pub type Place = Box<dyn Fn(Placed) -> Result<(), RunError> + Send + Sync>;

/// What an engine is built from.
pub struct EngineParts {
    /// Models, tools, scripts.
    pub ports: Ports,
    /// Runs at once; one more is OVERLOADED.
    pub max_runs: usize,
    /// Whether a virtual clock runs everything on one thread.
    pub is_simulated: bool,
    /// Where runs are put.
    pub place: Place,
    /// Seeds run ids.
    pub run_id_seed: u64,
    /// Seeds what scripts draw; none: they can not.
    pub seed: Option<u64>,
}

/// Shared by every run of an engine.
pub struct EngineShared {
    pub(crate) ports: Ports,
    graphs: RwLock<BTreeMap<String, Arc<Graph>>>,
    pub(crate) interest: Arc<Interest>,
    pub(crate) bus: BusLine,
    matcher: Addr<TriggerMatcherActor>,
    runs: DashMap<Arc<str>, SupervisorAddr, RandomState>,
    gate: DrainGate,
    pub(crate) is_simulated: bool,
    place: Place,
    run_ids: RunIds,
    pub(crate) seed: Option<u64>,
    next_run: AtomicU64,
    uid: u64,
}

/// An evaluator that the runs of one arbiter share.
pub(crate) type SharedEvaluator = Rc<RefCell<Box<dyn Evaluator>>>;

thread_local! {
    /// By engine, on this arbiter.
    static EVALUATORS: RefCell<BTreeMap<u64, SharedEvaluator>> = const { RefCell::new(BTreeMap::new()) };
}

static ENGINES: AtomicU64 = AtomicU64::new(1);

impl EngineShared {
    /// Starts the engine's own actors (bus and matcher) on `home`, by a `place` that may only send.
    pub fn start(parts: EngineParts) -> Result<Arc<Self>, RunError> {
        let interest = Arc::new(Interest::default());
        let cell: Arc<OnceLock<Arc<Self>>> = Arc::new(OnceLock::new());
        let (bus, bus_mail) = bus_line();
        let (matcher_mail, matcher_receiver) = channel(16);
        let matcher = Addr::new(matcher_mail);
        let home = (Arc::clone(&cell), Arc::clone(&interest), bus.clone(), matcher.clone());
        (parts.place)(Box::new(move |host, seat| {
            let (cell, interest, bus, matcher) = home;
            // The bus and the matcher live as long as the engine; their seat keeps runs off their arbiter while it can.
            let actor = TriggerMatcherActor::new(cell, host.clone());
            let matcher = actor.reached_by(matcher);
            start_contained_on(host, matcher_receiver, actor, move |exit| {
                // Where the bus was first to stop, nobody is left to be told.
                bus.do_send(BusMsg::MatcherGone);
                log_exit("the trigger matcher")(exit);
            });
            let seat = Cell::new(seat);
            start_contained_with(
                host,
                |context| EventBusActor::new(interest, matcher, bus_mail, context),
                move |exit| {
                    drop(seat.take());
                    log_exit("the event bus")(exit);
                },
            );
        }))?;
        let engine = Arc::new(Self {
            ports: parts.ports,
            graphs: RwLock::new(BTreeMap::new()),
            interest,
            bus,
            matcher,
            runs: DashMap::default(),
            gate: DrainGate::new(parts.max_runs),
            is_simulated: parts.is_simulated,
            place: parts.place,
            run_ids: RunIds::new(parts.run_id_seed),
            seed: parts.seed,
            next_run: AtomicU64::new(1),
            uid: ENGINES.fetch_add(1, Ordering::Relaxed),
        });
        if cell.set(Arc::clone(&engine)).is_err() {
            tracing::error!("the engine was set twice");
        }
        Ok(engine)
    }

    /// The graph of a workflow.
    pub fn graph(&self, workflow_id: &str) -> Option<Arc<Graph>> {
        self.graphs
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(workflow_id)
            .cloned()
    }

    /// Every registered graph, by workflow id.
    pub fn graphs(&self) -> Vec<Arc<Graph>> {
        self.graphs
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .values()
            .cloned()
            .collect()
    }

    /// Messages counted with the workflow's tokenizer, for runs to start with; as they are where they were. A long history
    /// takes its time: this is the caller's thread, not the one that a run will share with others.
    pub fn history(&self, workflow_id: &str, messages: impl Into<History>) -> History {
        let messages = messages.into();
        if messages.is_empty() {
            return messages;
        }
        let graph = self.graph(workflow_id);
        messages.counted_by(self.tokenizer(graph.as_deref()))
    }

    fn tokenizer(&self, graph: Option<&Graph>) -> Arc<dyn Tokenizer> {
        (self.ports.tokenizer)(graph.and_then(|graph| graph.config.tokenizer.as_deref()))
    }

    /// Registers a graph and its triggers; a graph of the same id is replaced for runs to come.
    pub fn register(&self, graph: &Arc<Graph>) {
        let id = graph.workflow_id.to_string();
        let owner = Owner::Workflow(Arc::clone(&graph.workflow_id));
        let before = self
            .graphs
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(id, Arc::clone(graph));
        for trigger in before.iter().flat_map(|graph| &graph.triggers) {
            self.matcher.do_send(MatcherMsg::Remove {
                owner: owner.clone(),
                id: trigger.id.clone(),
            });
        }
        for trigger in &graph.triggers {
            self.add(owner.clone(), trigger.clone(), Answer::new(|_| ()));
        }
    }

    /// Adds a trigger that watches every run.
    pub fn add_trigger(&self, definition: TriggerDefinition, answer: Answer<Result<(), String>>) {
        self.add(Owner::Engine, definition, answer);
    }

    fn add(&self, owner: Owner, definition: TriggerDefinition, answer: Answer<Result<(), String>>) {
        self.matcher.do_send(MatcherMsg::Add {
            owner,
            definition: Arc::new(definition),
            answer,
        });
    }

    /// Answers when the triggers that were registered before watch.
    pub fn triggers_in_place(&self, answer: Answer<()>) {
        self.matcher.do_send(MatcherMsg::InPlace(answer));
    }

    /// Enables or disables a trigger: whether that changed anything, or none where there is no such trigger.
    pub fn enable_trigger(&self, owner: Owner, id: String, enabled: bool, answer: Answer<Option<bool>>) {
        self.matcher.do_send(MatcherMsg::Enable {
            owner,
            id,
            enabled,
            answer,
        });
    }

    /// The triggers of an owner.
    pub fn triggers(&self, owner: Owner, answer: Answer<Vec<TriggerState>>) {
        self.matcher.do_send(MatcherMsg::States { owner, answer });
    }

    /// Subscribes; `ready` is called when every event from then on is delivered.
    pub fn subscribe(&self, filter: EventFilter, deliver: Box<dyn Deliver>, ready: Box<dyn FnOnce() + Send>) {
        if filter.run_id.is_some() {
            self.interest.set_in_one_run();
        }
        self.bus.do_send(BusMsg::Subscribe { filter, deliver, ready });
    }

    /// Stops the bus and the matcher, and calls `done` when every event raised before has been delivered.
    pub fn stop(&self, done: Box<dyn FnOnce() + Send>) {
        self.bus.do_send(BusMsg::Stop(done));
    }

    /// Ends what the tools keep running. May block for some seconds.
    pub fn close_tools(&self) {
        self.ports.tools.close();
    }

    /// A run id that no other run of this engine has.
    pub fn next_run_id(&self) -> Arc<str> {
        self.run_ids.id_of(self.next_run.fetch_add(1, Ordering::Relaxed))
    }

    fn evaluator(&self) -> SharedEvaluator {
        EVALUATORS.with_borrow_mut(|evaluators| {
            let made = evaluators
                .entry(self.uid)
                .or_insert_with(|| Rc::new(RefCell::new((self.ports.evaluator)())));
            Rc::clone(made)
        })
    }

    pub(crate) fn forget_run(&self, run_id: &str) {
        self.runs.remove(run_id);
    }

    pub(crate) fn tell_run(&self, run_id: &str, message: SupervisorMsg) -> Result<(), String> {
        let address = self.runs.get(run_id).map(|entry| entry.value().clone());
        match address {
            Some(address) => {
                address.do_send(message);
                Ok(())
            }
            None => Err(format!("run {run_id} has ended")),
        }
    }

    /// Runs under way.
    pub fn live_runs(&self) -> usize {
        self.gate.inside()
    }

    /// Admits no more runs.
    pub fn close(&self) {
        self.gate.close();
    }

    /// The gate that runs enter by: for waiting until all have left.
    pub fn gate(&self) -> &DrainGate {
        &self.gate
    }

    /// Cancels every run under way, because the engine shuts down.
    pub fn cancel_all(&self) {
        let supervisors: Vec<_> = self.runs.iter().map(|entry| entry.value().clone()).collect();
        for supervisor in supervisors {
            supervisor.do_send(SupervisorMsg::Control(Control::Shutdown));
        }
    }

    /// Forgets this engine's evaluator on the calling thread (a simulated engine that ends).
    pub fn forget_evaluator(&self) {
        let gone = EVALUATORS.with_borrow_mut(|evaluators| evaluators.remove(&self.uid));
        drop(gone);
    }
}

fn log_exit(what: &'static str) -> impl FnOnce(Exit) {
    move |exit| {
        if let Exit::Panicked { message } = exit {
            tracing::error!(what, message, "an actor panicked and was contained");
        }
    }
}
