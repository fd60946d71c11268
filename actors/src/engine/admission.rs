//! Admission of runs: validate, take a slot, place on an arbiter.

use std::rc::Rc;
use std::sync::Arc;

use actix::Addr;
use actix::dev::channel::channel;
use pirn_conversation::conversation::Conversation;
use pirn_core::run::SessionSeed;
use pirn_definition::definition::{Pinned, ToolDefinition, ToolEntry, nearest};
use pirn_definition::error::{RunError, RunErrorCode};
use pirn_definition::graph::{Graph, NodeKind};
use pirn_definition::message::Message;
use pirn_definition::value::{TOO_DEEP, has_too_deep, is_too_deep};
use pirn_sync::{Refused, admit, completion};
use serde_json::{Map, Value};

use super::local::Local;
use super::{EngineShared, StartJob, StartedRun, log_exit};
use crate::calls::current_call;
use crate::contain::{Exit, start_contained_on};
use crate::history::History;
use crate::journal::Graphs;
use crate::mailbox::RunActor;
use crate::protocol::engine::{DetachedRun, EngineHandle, OnEnd};
use crate::protocol::events::Subscription;
use crate::protocol::supervisor::SupervisorHandle;
use crate::run::inline_services::InlineServices;
use crate::run::run_context::RunContext;
use crate::sessions::SessionSeat;
use crate::supervisor::{Beginning, NewRun, RunSpec};

/// A request for a run.
#[derive(Clone, Debug, Default)]
pub struct RunRequest {
    /// Id of the workflow.
    pub workflow_id: String,
    /// Input of the run.
    pub input: Value,
    /// Initial messages of the conversation.
    pub conversation: History,
    /// Overrides the workflow's pinned context.
    pub pinned: Pinned,
    /// Metadata from the caller; passed to models, tools and functions.
    pub metadata: Option<Arc<Map<String, Value>>>,
    /// Time limit in milliseconds, in addition to the workflow's own limit.
    pub deadline_ms: Option<u64>,
    /// The session that the run belongs to.
    pub session: Option<SessionRequest>,
    /// Tools that the client of the run executes.
    pub client_tools: Vec<ToolDefinition>,
    /// Number from which the run derives its random numbers; `None`: a new one.
    pub run_seed: Option<u64>,
}

impl RunRequest {
    /// Returns the request for a run that a trigger or schedule starts.
    pub(super) fn of_detached(
        workflow_id: String,
        input: Value,
        messages: Vec<Message>,
        metadata: Option<Arc<Map<String, Value>>>,
    ) -> Self {
        Self {
            workflow_id,
            input,
            conversation: messages.into(),
            metadata,
            ..Self::default()
        }
    }

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
    /// Id of the session.
    pub id: Arc<str>,
    /// The conversation is saved in the session even if the run fails.
    pub keeps_on_failure: bool,
}

/// Options of a run's start.
struct Start {
    is_unlimited: bool,
    summary_profile: Option<Arc<str>>,
    trigger_depth: u32,
    attached: RunAttachments,
}

/// Parts of a run that are not stored in its record.
#[derive(Default)]
pub(super) struct RunAttachments {
    /// Called with the outcome.
    pub(super) on_end: Option<OnEnd>,
    pub(super) session: Option<SessionSeat>,
    /// Background run: under virtual time the clock does not advance for it alone.
    pub(super) is_background: bool,
}

/// An admitted run that has not taken its first step.
pub struct AdmittedRun {
    engine: Arc<EngineShared>,
    run_id: Arc<str>,
    supervisor: Arc<SupervisorHandle>,
    job: StartJob,
}

impl EngineShared {
    /// Admits a run. Fails with OVERLOADED if the engine is full, and with CANCELLED while it shuts down.
    ///
    /// [`AdmittedRun::go`] starts the run, and subscribers receive its events from the first step on. A call from code that a
    /// trigger called inherits the trigger depth.
    pub fn admit_run(
        self: &Arc<Self>,
        run_id: Arc<str>,
        request: RunRequest,
        subscriptions: Vec<Subscription>,
    ) -> Result<(StartedRun, AdmittedRun), RunError> {
        let from = Start {
            is_unlimited: false,
            summary_profile: None,
            trigger_depth: current_call::trigger_depth(),
            attached: RunAttachments::default(),
        };
        self.admit(run_id, request, subscriptions, from)
    }

    pub(super) fn admit_detached(self: &Arc<Self>, run: DetachedRun) -> Result<(), RunError> {
        let request = RunRequest::of_detached(run.workflow_id, run.input, run.messages, run.metadata);
        let from = Start {
            is_unlimited: run.is_unlimited,
            summary_profile: run.summary_profile,
            trigger_depth: run.trigger_depth,
            attached: RunAttachments {
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
        // `admit` consumes the request, and the watchers need the id afterwards.
        let workflow_id = request.workflow_id.clone();
        let (started, admitted) = self.admit(run.run_id, request, subscriptions, from)?;
        // Watchers subscribe before the first step, so that they receive every event.
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
        // One snapshot for the whole run, so that a registration in the meantime cannot mix two versions of a workflow.
        let graphs = self.all_graphs();
        let graph = self.asked_graph(&graphs, &request)?;
        let metadata = request.metadata.clone();
        // The seat is taken before admission, because it is part of the run's seed. If admission fails, dropping the seat releases
        // it.
        let seat = self.seat(&run_id, &request)?;
        let session = seat.as_ref().map(SessionSeat::seed);
        let from_trigger = (from.is_unlimited, from.trigger_depth, from.summary_profile);
        let beginning = || Beginning::New(Box::new(self.new_run(graph, request, session, from_trigger)));
        let attached = RunAttachments {
            session: seat,
            ..from.attached
        };
        self.let_in((run_id, metadata), graphs, beginning, subscriptions, attached)
    }

    /// Returns the requested workflow.
    ///
    /// # Errors
    /// Fails if the workflow does not exist, if the input does not match its schema, or if an initial value is nested too deeply
    /// to be recorded.
    pub(super) fn asked_graph(&self, graphs: &Graphs, request: &RunRequest) -> Result<Arc<Graph>, RunError> {
        if let Some(what) = request.deep_part() {
            return Err(RunError::new(RunErrorCode::InvalidInput, format!("{what}: {TOO_DEEP}")));
        }
        let graph = graphs.get(&request.workflow_id).cloned();
        let graph = graph.ok_or_else(|| self.no_workflow(&request.workflow_id))?;
        check_client_tools(graphs, &graph, &request.client_tools)?;
        self.check_input(&graph, &request.input)?;
        Ok(graph)
    }

    /// Checks the input of a run.
    ///
    /// # Errors
    /// Fails if the input does not match the workflow's schema.
    pub fn check_input(&self, graph: &Graph, input: &Value) -> Result<(), RunError> {
        let Some(schema) = &graph.about.input_schema else {
            return Ok(());
        };
        // A schema may refer to itself, so it is passed as a whole.
        (self.ports.fits)(&Value::Object(schema.clone()), input).map_err(|fault| {
            let message = format!("the input does not fit `inputSchema` of {}: {fault}", graph.workflow_id);
            RunError::new(RunErrorCode::InvalidInput, message)
        })
    }

    /// Reserves a seat in the requested session.
    pub(super) fn seat(&self, run_id: &Arc<str>, request: &RunRequest) -> Result<Option<SessionSeat>, RunError> {
        let asked = request.session.clone();
        let seat = asked.map(|asked| self.sessions.enter(asked.id, asked.keeps_on_failure, run_id));
        seat.transpose()
    }

    /// The beginning of a run, without its metadata.
    pub(super) fn new_run(
        &self,
        graph: Arc<Graph>,
        request: RunRequest,
        session: Option<SessionSeed>,
        (is_unlimited, trigger_depth, summary_profile): (bool, u32, Option<Arc<str>>),
    ) -> NewRun {
        let conversation = self.conversation(&graph, request.conversation);
        let pinned = laid_over(graph.config.pinned.clone().unwrap_or_default(), request.pinned);
        NewRun {
            graph,
            input: Arc::new(request.input),
            conversation,
            pinned,
            is_unlimited,
            summary_profile,
            deadline_ms: request.deadline_ms,
            trigger_depth,
            session,
            client_tools: (!request.client_tools.is_empty()).then(|| Arc::new(request.client_tools)),
            run_seed: request.run_seed,
        }
    }

    /// Admits a new or resumed run. `beginning` is called only after admission, because it may be expensive.
    pub(super) fn let_in(
        self: &Arc<Self>,
        (run_id, metadata): (Arc<str>, Option<Arc<Map<String, Value>>>),
        graphs: Graphs,
        beginning: impl FnOnce() -> Beginning,
        subscriptions: Vec<Subscription>,
        attached: RunAttachments,
    ) -> Result<(StartedRun, AdmittedRun), RunError> {
        // The capacity bounds nothing, because `do_send` ignores it. Admission bounds the number of runs instead.
        let (mail, receiver) = channel(16);
        let (outcome_setter, outcome) = completion();
        let (settled_setter, settled) = completion();
        let ends = (outcome.clone(), settled.clone());
        // The handle exists before the actor: messages that arrive in between wait in the channel.
        let supervisor = Arc::new(SupervisorHandle::new(Addr::new(mail).recipient(), metadata, ends));
        // The claim is atomic: of two concurrent runs with one id, one is refused.
        if !self.runs.claim(&run_id, &supervisor) {
            return Err(RunError::new(
                RunErrorCode::RunIdTaken,
                format!("run {run_id} exists already and is running"),
            ));
        }
        let permit = admit(&self.gate, &self.runs, &run_id, Arc::clone(&supervisor)).map_err(refused)?;
        let beginning = beginning();
        let (engine, id, address) = (Arc::clone(self), Arc::clone(&run_id), Arc::clone(&supervisor));
        // Parts that are bound to a thread (`Rc`, the host) are created on the arbiter that executes the job.
        let job: StartJob = Box::new(move |host, lease| {
            let Some(local) = Local::of(engine.uid) else {
                // The engine has stopped on this arbiter.
                return engine.forget_run(&id, &address);
            };
            let background = attached.is_background.then(|| host.in_background());
            let host = background.as_ref().unwrap_or(host);
            let ports = Arc::clone(&engine.ports);
            let inline_services = InlineServices::new(ports, engine.handle(), graphs, local.evaluator);
            let heard_by = (local.bus, local.interest);
            let run = RunContext::new(
                (Arc::clone(&id), beginning.workflow_id()),
                address,
                host.clone(),
                heard_by,
                (local.backlog, local.step_buffers),
                inline_services,
                beginning.last_at(),
            );
            let run = Rc::new(run);
            // The exit callback runs after the actor, and with it `run`, was dropped.
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
                    // The supervisor released its id before it settled.
                    Exit::Stopped => {}
                    // A receiver of the outcome gets an error, because its sender was dropped.
                    Exit::Panicked { .. } | Exit::Dropped => {
                        own.close_journal();
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
        // Most runs start empty; the choice of a tokenizer would search the graph for its first LLM node.
        if history.is_empty() {
            return Conversation::new();
        }
        history.begin(&self.tokenizer(Some(graph)))
    }
}

impl AdmittedRun {
    /// Starts the run.
    pub fn go(self) -> Result<(), RunError> {
        self.engine
            .spawner
            .start(self.job)
            // The arbiters have stopped. Releases the run's id.
            .inspect_err(|_| self.engine.forget_run(&self.run_id, &self.supervisor))
    }
}

/// Maximum number of bytes in the id of a run or session. Equals the limit of the stores.
const MAX_NAME: usize = 512;

/// Error of an id that is empty, too long, or contains a NUL byte.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the id of a {what} must have 1 to {MAX_NAME} bytes and no NUL byte; this one has {bytes} bytes")]
pub struct InvalidName {
    /// Named object: `run` or `session`.
    pub what: &'static str,
    /// Number of bytes of the id.
    pub bytes: usize,
}

/// Checks the id of a run or a session.
///
/// # Errors
/// [`InvalidName`].
pub fn check_name(what: &'static str, id: &str) -> Result<(), InvalidName> {
    if (1..=MAX_NAME).contains(&id.len()) && !id.contains('\0') {
        return Ok(());
    }
    let bytes = id.len();
    Err(InvalidName { what, bytes })
}

/// Validates the ids in a request.
pub(super) fn check_names(run_id: &str, request: &RunRequest) -> Result<(), RunError> {
    let session = request
        .session
        .as_ref()
        .map(|session| check_name("session", &session.id));
    let checked = check_name("run", run_id).and(session.unwrap_or(Ok(())));
    checked.map_err(|why| RunError::new(RunErrorCode::InvalidInput, why.to_string()))
}

fn refused(refused: Refused) -> RunError {
    match refused {
        Refused::Full { limit } => RunError::new(
            RunErrorCode::Overloaded,
            format!("the limit of {limit} runs in progress is reached"),
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

/// Checks the tools of a client, and that none has the name of a tool of a node that offers both.
fn check_client_tools(graphs: &Graphs, graph: &Graph, tools: &[ToolDefinition]) -> Result<(), RunError> {
    if tools.is_empty() {
        return Ok(());
    }
    let invalid = |message: String| RunError::new(RunErrorCode::InvalidInput, message);
    ToolDefinition::check_client_tools(tools).map_err(|wrong| invalid(wrong.to_string()))?;
    for of in graphs.values() {
        let is_main = of.workflow_id == graph.workflow_id;
        for node in &of.nodes {
            let NodeKind::Llm(llm) = &node.kind else { continue };
            if !llm.client_tools.unwrap_or(is_main) {
                continue;
            }
            let clash = tools.iter().find(|tool| {
                llm.tools
                    .iter()
                    .any(|own| ToolEntry::includes(ToolEntry::name_in(own), &tool.name))
            });
            if let Some(tool) = clash {
                return Err(invalid(format!(
                    "the client tool `{}` has the name of a tool of the node `{}` of the workflow `{}`: rename it, or set \
                     `clientTools` of the node to false",
                    tool.name, node.id, of.workflow_id
                )));
            }
        }
    }
    Ok(())
}
