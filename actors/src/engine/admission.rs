//! The admission of a run: asked for, admitted, placed on an arbiter.

use std::rc::Rc;
use std::sync::Arc;

use actix::Addr;
use actix::dev::channel::channel;
use pirn_core::conversation::Conversation;
use pirn_core::definition::{Pinned, nearest};
use pirn_core::error::{RunError, RunErrorCode};
use pirn_core::graph::Graph;
use pirn_core::run::SessionSeed;
use pirn_core::value::{TOO_DEEP, has_too_deep, is_too_deep};
use pirn_sync::{Refused, admit, completion};
use serde_json::{Map, Value};

use super::local::Local;
use super::{EngineShared, StartJob, StartedRun, log_exit};
use crate::cause;
use crate::contain::{Exit, start_contained_on};
use crate::history::History;
use crate::in_place::InPlace;
use crate::journal::Graphs;
use crate::mailbox::RunActor;
use crate::protocol::engine::{DetachedRun, EngineHandle, OnEnd};
use crate::protocol::events::Subscription;
use crate::protocol::supervisor::SupervisorHandle;
use crate::run_context::RunContext;
use crate::sessions::SessionSeat;
use crate::supervisor::{Beginning, NewRun, RunSpec};

/// A request for a run.
#[derive(Clone, Debug, Default)]
pub struct RunRequest {
    /// Its workflow.
    pub workflow_id: String,
    /// Its input.
    pub input: Value,
    /// The messages that its conversation starts with.
    pub conversation: History,
    /// Laid over the workflow's pinned context.
    pub pinned: Pinned,
    /// Its caller's metadata; models, tools and functions get it.
    pub metadata: Option<Arc<Map<String, Value>>>,
    /// Milliseconds until the run is stopped, beside the workflow's own limit.
    pub deadline_ms: Option<u64>,
    /// The session that it belongs to.
    pub session: Option<SessionRequest>,
}

impl RunRequest {
    fn deep_part(&self) -> Option<&'static str> {
        if is_too_deep(&self.input) {
            return Some("the input");
        }
        if self.metadata.as_deref().is_some_and(has_too_deep) {
            return Some("the metadata");
        }
        self.conversation
            .is_too_deep()
            .then_some("a message of the conversation")
    }
}

/// The session that a run belongs to.
#[derive(Clone, Debug)]
pub struct SessionRequest {
    /// Names it.
    pub id: Arc<str>,
    /// The outcome is left in the session even where the run does not complete.
    pub keeps_on_failure: bool,
}

/// Options of a run's start.
struct Start {
    is_unlimited: bool,
    trigger_depth: u32,
    attached: Attached,
}

/// The things that belong to a run beside what it begins with.
#[derive(Default)]
pub(super) struct Attached {
    /// Told of its end.
    pub(super) on_end: Option<OnEnd>,
    pub(super) session: Option<SessionSeat>,
    /// Nobody waits for it: under virtual time it goes on while others do.
    pub(super) is_background: bool,
}

/// A run that has its place and not yet taken its first step.
pub struct AdmittedRun {
    engine: Arc<EngineShared>,
    run_id: Arc<str>,
    supervisor: Arc<SupervisorHandle>,
    job: StartJob,
}

impl EngineShared {
    /// Admits a run: OVERLOADED where the engine is full, CANCELLED where it is shutting down. It takes its first step
    /// after [`AdmittedRun::go`], and subscribers hear it from that one on. Where code that a trigger called asks for it, it
    /// stands as far down the chain as that.
    pub fn admit_run(
        self: &Arc<Self>,
        run_id: Arc<str>,
        request: RunRequest,
        subscriptions: Vec<Subscription>,
    ) -> Result<(StartedRun, AdmittedRun), RunError> {
        let from = Start {
            is_unlimited: false,
            trigger_depth: cause::trigger_depth(),
            attached: Attached::default(),
        };
        self.admit(run_id, request, subscriptions, from)
    }

    pub(super) fn admit_detached(self: &Arc<Self>, run: DetachedRun) -> Result<(), RunError> {
        let request = RunRequest {
            workflow_id: run.workflow_id,
            input: run.input,
            conversation: run.messages.into(),
            metadata: run.metadata,
            ..RunRequest::default()
        };
        let from = Start {
            is_unlimited: run.is_unlimited,
            trigger_depth: run.trigger_depth,
            attached: Attached {
                on_end: Some(run.on_end),
                session: None,
                is_background: run.is_background,
            },
        };
        let (mut subscriptions, mut takers) = (Vec::new(), Vec::new());
        self.watchers().retain(|watch| {
            let watch = watch();
            let stays = watch.is_some();
            if let Some(watch) = watch {
                subscriptions.push(watch.subscription);
                takers.push(watch.take);
            }
            stays
        });
        let workflow_id = request.workflow_id.clone();
        let (started, admitted) = self.admit(run.run_id, request, subscriptions, from)?;
        for take in takers {
            take(started.clone(), &workflow_id);
        }
        admitted.go()
    }

    fn admit(
        self: &Arc<Self>,
        run_id: Arc<str>,
        request: RunRequest,
        subscriptions: Vec<Subscription>,
        from: Start,
    ) -> Result<(StartedRun, AdmittedRun), RunError> {
        check_names(&run_id, &request)?;
        let graphs = self.all_graphs();
        let graph = self.asked_graph(&graphs, &request)?;
        let metadata = request.metadata.clone();
        let seat = self.seat(&run_id, &request)?;
        let session = seat.as_ref().map(SessionSeat::seed);
        let from_trigger = (from.is_unlimited, from.trigger_depth);
        let beginning = || Beginning::New(Box::new(self.new_run(graph, request, session, from_trigger)));
        let attached = Attached {
            session: seat,
            ..from.attached
        };
        self.let_in((run_id, metadata), graphs, beginning, subscriptions, attached)
    }

    /// The workflow that is asked for.
    ///
    /// # Errors
    /// There is none, the input does not fit its schema, or what the run would begin with is nested too deeply to be recorded.
    pub(super) fn asked_graph(&self, graphs: &Graphs, request: &RunRequest) -> Result<Arc<Graph>, RunError> {
        if let Some(what) = request.deep_part() {
            return Err(RunError::new(RunErrorCode::InvalidInput, format!("{what}: {TOO_DEEP}")));
        }
        let graph = graphs.get(&request.workflow_id).cloned();
        let graph = graph.ok_or_else(|| self.no_workflow(&request.workflow_id))?;
        if let Some(schema) = &graph.about.input_schema {
            // A schema may refer to itself, so it is handed on as a whole.
            let schema = Value::Object(schema.clone());
            (self.ports.fits)(&schema, &request.input).map_err(|fault| {
                let message = format!("the input does not fit `inputSchema` of {}: {fault}", graph.workflow_id);
                RunError::new(RunErrorCode::InvalidInput, message)
            })?;
        }
        Ok(graph)
    }

    /// The place of a run in the session that it asks for.
    pub(super) fn seat(&self, run_id: &Arc<str>, request: &RunRequest) -> Result<Option<SessionSeat>, RunError> {
        let asked = request.session.clone();
        let seat = asked.map(|asked| self.sessions.enter(asked.id, asked.keeps_on_failure, run_id));
        seat.transpose()
    }

    /// The beginning of a run, its metadata apart.
    pub(super) fn new_run(
        &self,
        graph: Arc<Graph>,
        request: RunRequest,
        session: Option<SessionSeed>,
        (is_unlimited, trigger_depth): (bool, u32),
    ) -> NewRun {
        let conversation = self.conversation(&graph, request.conversation);
        let pinned = laid_over(graph.config.pinned.clone().unwrap_or_default(), request.pinned);
        NewRun {
            graph,
            input: Arc::new(request.input),
            conversation,
            pinned,
            is_unlimited,
            deadline_ms: request.deadline_ms,
            trigger_depth,
            session,
        }
    }

    /// Admits a run, new or not; what it begins with is made ready when it is in.
    pub(super) fn let_in(
        self: &Arc<Self>,
        (run_id, metadata): (Arc<str>, Option<Arc<Map<String, Value>>>),
        graphs: Graphs,
        beginning: impl FnOnce() -> Beginning,
        subscriptions: Vec<Subscription>,
        attached: Attached,
    ) -> Result<(StartedRun, AdmittedRun), RunError> {
        let (mail, receiver) = channel(16);
        let (outcome_setter, outcome) = completion();
        let (settled_setter, settled) = completion();
        let ends = (outcome.clone(), settled.clone());
        let supervisor = Arc::new(SupervisorHandle::new(Addr::new(mail).recipient(), metadata, ends));
        // In one step: of two runs of one id that come together one is refused.
        if !self.runs.claim(&run_id, &supervisor) {
            return Err(RunError::new(
                RunErrorCode::RunIdTaken,
                format!("there is a run {run_id} already, and it is under way"),
            ));
        }
        let permit = admit(&self.gate, &self.runs, &run_id, Arc::clone(&supervisor)).map_err(refused)?;
        let beginning = beginning();
        let (engine, id, address) = (Arc::clone(self), Arc::clone(&run_id), Arc::clone(&supervisor));
        let job: StartJob = Box::new(move |host, lease| {
            let Some(local) = Local::of(engine.uid) else {
                // The engine has stopped here.
                return engine.forget_run(&id, &address);
            };
            let background = attached.is_background.then(|| host.in_background());
            let host = background.as_ref().unwrap_or(host);
            let ports = Arc::clone(&engine.ports);
            let in_place = InPlace::new(ports, engine.handle(), graphs, local.evaluator);
            let (host_of, heard_by) = ((host.clone(), engine.seed), (local.bus, local.interest));
            let run = RunContext::new(
                (Arc::clone(&id), beginning.workflow_id()),
                address,
                host_of,
                heard_by,
                (local.backlog, local.room),
                in_place,
                beginning.last_at(),
            );
            let run = Rc::new(run);
            let own = Rc::clone(&run);
            let spec = RunSpec {
                beginning,
                subscriptions,
                outcome: outcome_setter,
                settled: settled_setter,
                on_end: attached.on_end,
                permit,
                seat: lease,
                session: attached.session,
            };
            start_contained_on(host, receiver, RunActor::new(run, spec), move |exit| {
                match &exit {
                    // It said so itself, before it settled.
                    Exit::Stopped => {}
                    // Whoever awaits the outcome is told that it is lost.
                    Exit::Panicked { .. } | Exit::Dropped => {
                        engine.forget_run(&id, &own.supervisor);
                        own.leave_bus();
                    }
                }
                log_exit("a supervisor", exit);
            });
        });
        let started = StartedRun {
            run_id,
            outcome,
            settled,
            supervisor,
        };
        let admitted = AdmittedRun {
            engine: Arc::clone(self),
            run_id: Arc::clone(&started.run_id),
            supervisor: Arc::clone(&started.supervisor),
            job,
        };
        Ok((started, admitted))
    }

    fn no_workflow(&self, id: &str) -> RunError {
        let graphs = self.graphs();
        let near = nearest(id, graphs.iter().map(|graph| &*graph.workflow_id));
        let meant = near.map_or_else(String::new, |near| format!("; did you mean {near}?"));
        RunError::new(
            RunErrorCode::WorkflowNotFound,
            format!("there is no workflow {id}{meant}"),
        )
    }

    fn conversation(&self, graph: &Graph, history: History) -> Conversation {
        if history.is_empty() {
            return Conversation::new();
        }
        history.begin(&self.tokenizer(Some(graph)))
    }
}

impl AdmittedRun {
    /// Starts it.
    pub fn go(self) -> Result<(), RunError> {
        self.engine
            .spawner
            .start(self.job)
            .inspect_err(|_| self.engine.forget_run(&self.run_id, &self.supervisor))
    }
}

/// The most bytes in the id of a run or a session. Stores accept as many.
const MAX_NAME: usize = 512;

/// Checks the id of a run or a session.
///
/// # Errors
/// A sentence.
pub fn check_name(what: &str, id: &str) -> Result<(), String> {
    if (1..=MAX_NAME).contains(&id.len()) && !id.contains('\0') {
        return Ok(());
    }
    Err(format!(
        "the id of a {what} has 1 to {MAX_NAME} bytes, none of them NUL; this one has {}",
        id.len()
    ))
}

/// Checks the ids that a run is asked for with.
pub(super) fn check_names(run_id: &str, request: &RunRequest) -> Result<(), RunError> {
    let session = request
        .session
        .as_ref()
        .map(|session| check_name("session", &session.id));
    let checked = check_name("run", run_id).and(session.unwrap_or(Ok(())));
    checked.map_err(|why| RunError::new(RunErrorCode::InvalidInput, why))
}

fn refused(refused: Refused) -> RunError {
    match refused {
        Refused::Full { limit } => RunError::new(
            RunErrorCode::Overloaded,
            format!("{limit} runs are under way, no more are admitted"),
        ),
        Refused::Closed => RunError::new(RunErrorCode::Cancelled, "the engine is shutting down"),
    }
}

fn laid_over(below: Pinned, above: Pinned) -> Pinned {
    Pinned {
        role: above.role.or(below.role),
        todo: above.todo.or(below.todo),
        useful_info: above.useful_info.or(below.useful_info),
        folder_notes: above.folder_notes.or(below.folder_notes),
    }
}
