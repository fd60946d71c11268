//! The thread actor: carries one [`ThreadMachine`] (main, branch, called or triggered).
//!
//! It decides nothing. Effects that are evaluated in place (texts, inline functions, globals) are answered in a loop
//! without a message; everything else ends as a [`ThreadMsg::Answer`].

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use actix::{Actor, ActorContext, Addr, AsyncContext, Context, Handler};
use pirn_core::conversation::{Conversation, Spent};
use pirn_core::definition::{ConversationMode, PinSection, Pinned};
use pirn_core::error::{RunError, RunErrorCode};
use pirn_core::event::{EventMask, EventType, RaisedEvent};
use pirn_core::graph::{NodeIx, NodeKind};
use pirn_core::thread::{
    ConversationOp, Effect, EffectId, FiringId, Input, NodeRecord, Outcome, Outputs, ThreadEnd, ThreadMachine,
    ThreadScope, ToolResult, TriggeredResult, Variables, evaluate,
};
use serde_json::{Value, json};

use crate::answer::Answer;
use crate::contain::{Exit, start_contained};
use crate::conversation::{ConversationActor, ConversationMsg, ConversationSettings, Merge};
use crate::events::BusMsg;
use crate::host::{TimerHandle, WorkHandle};
use crate::ports::{Function, ModelCall, ModelSession, ScriptHandle, ScriptJob, TokenSink};
use crate::run::RunShared;
use crate::supervisor::{SupervisorMsg, ThreadNo};

/// A thread's conversation: a snapshot until the thread first speaks, then an actor.
#[derive(Clone)]
pub(crate) struct ConversationRef {
    pub(crate) seed: Conversation,
    pub(crate) address: Option<Addr<ConversationActor>>,
}

impl ConversationRef {
    pub(crate) fn of(seed: Conversation) -> Self {
        Self { seed, address: None }
    }

    /// Hands the conversation as it is now to `then`, at once or when its actor answers.
    pub(crate) fn with_snapshot(&self, then: impl FnOnce(Conversation) + Send + 'static) {
        match &self.address {
            Some(address) => address.do_send(ConversationMsg::Snapshot(Box::new(then))),
            None => then(self.seed.clone()),
        }
    }
}

/// How a thread ended, for its supervisor.
pub(crate) struct Ended {
    pub(crate) end: ThreadEnd,
    pub(crate) variables: Variables,
    pub(crate) spent: Spent,
    pub(crate) history: Vec<NodeRecord>,
    pub(crate) conversation: ConversationRef,
    pub(crate) node: NodeIx,
}

/// What a triggered sub-workflow gets of its main thread.
pub(crate) struct Described {
    pub(crate) output: Arc<Value>,
    pub(crate) input: Arc<Value>,
    pub(crate) variables: Variables,
    pub(crate) node: NodeIx,
    pub(crate) conversation: Conversation,
}

/// A message to a thread actor.
pub(crate) enum ThreadMsg {
    Input(Input),
    Answer {
        effect: EffectId,
        outcome: Outcome,
    },
    /// A join's or a child's good end, with the conversation that replaces this thread's.
    Replace {
        effect: EffectId,
        outcome: Outcome,
        conversation: Box<Conversation>,
    },
    Triggered {
        firing: FiringId,
        result: TriggeredResult,
        merge: Option<Box<Merge>>,
    },
    Describe(Box<dyn FnOnce(Option<Described>) + Send>),
    CompressionEnded,
    ConversationLost {
        message: String,
    },
}

impl actix::Message for ThreadMsg {
    type Result = ();
}

enum InFlight {
    Timer(#[allow(dead_code)] TimerHandle),
    Work(#[allow(dead_code)] WorkHandle),
    Script(#[allow(dead_code)] ScriptHandle),
    Supervised,
    Wait,
}

pub(crate) struct ThreadActor {
    pub(crate) run: Rc<RunShared>,
    pub(crate) no: ThreadNo,
    pub(crate) machine: ThreadMachine,
    pub(crate) conversation: ConversationRef,
    pub(crate) settings: ConversationSettings,
    in_flight: BTreeMap<EffectId, InFlight>,
    merges: BTreeMap<FiringId, Box<Merge>>,
    sessions: BTreeMap<String, ModelSession>,
    queue: VecDeque<Effect>,
    out: Vec<Effect>,
}

impl ThreadActor {
    pub(crate) fn new(
        run: Rc<RunShared>,
        no: ThreadNo,
        machine: ThreadMachine,
        conversation: ConversationRef,
        settings: ConversationSettings,
    ) -> Self {
        Self {
            run,
            no,
            machine,
            conversation,
            settings,
            in_flight: BTreeMap::new(),
            merges: BTreeMap::new(),
            sessions: BTreeMap::new(),
            queue: VecDeque::new(),
            out: Vec::new(),
        }
    }

    /// Takes an input and carries out everything that follows in place.
    fn drive(&mut self, input: Input, context: &mut Context<Self>) {
        let moment = self.run.moment();
        let mut out = std::mem::take(&mut self.out);
        self.machine.step(moment, input, &mut out);
        self.queue.extend(out.drain(..));
        while let Some(effect) = self.queue.pop_front() {
            if let Some((effect, outcome)) = self.carry(effect, context) {
                self.machine.step(moment, Input::Answer { effect, outcome }, &mut out);
                self.queue.extend(out.drain(..));
            }
        }
        self.out = out;
    }

    /// Carries out an effect; what is known at once is returned.
    fn carry(&mut self, effect: Effect, context: &mut Context<Self>) -> Option<(EffectId, Outcome)> {
        match effect {
            Effect::Evaluate { id, node, what } => {
                let globals = self.run.globals.borrow();
                let scope = ThreadScope::new(&self.machine, &globals);
                let mut evaluator = self.run.evaluator.borrow_mut();
                return Some((id, evaluate(self.machine.graph(), node, what, &scope, &mut **evaluator)));
            }
            Effect::Function { id, node, input } => return self.function(id, node, &input, context),
            Effect::Script { id, node, input } => self.script(id, node, input, context),
            Effect::Conversation { id, op } => self.converse(id, op, context),
            Effect::Model { id, node, request } => self.model(id, node, request, context),
            Effect::Tool { id, node, call } => {
                let names = self.tools_of(node);
                let work = self
                    .run
                    .engine
                    .ports
                    .tools
                    .call(&names, call, self.run.host.work_clock());
                let answer = tool_answer(context.address(), id);
                let work = Box::pin(async move { answer.give(work.await) });
                self.in_flight.insert(id, InFlight::Work(self.run.host.external(work)));
            }
            Effect::Fork { id, fork } => {
                let (variables, outputs) = self.machine.snapshot();
                let thread = self.no;
                let supervisor = self.run.supervisor.clone();
                let input = Arc::clone(self.machine.input());
                self.in_flight.insert(id, InFlight::Supervised);
                self.conversation.with_snapshot(move |conversation| {
                    let state = Box::new(ForkState {
                        variables,
                        outputs,
                        input,
                        conversation,
                    });
                    supervisor.do_send(SupervisorMsg::Fork {
                        thread,
                        effect: id,
                        fork,
                        state,
                    });
                });
            }
            Effect::Child {
                id,
                node,
                input,
                conversation,
            } => {
                self.in_flight.insert(id, InFlight::Supervised);
                self.child(id, node, input, conversation, context);
            }
            Effect::Timer { id, after_ms } => {
                let address = context.address();
                let timer = self.run.host.after(after_ms, move || {
                    address.do_send(ThreadMsg::Answer {
                        effect: id,
                        outcome: Outcome::Elapsed,
                    });
                });
                self.in_flight.insert(id, InFlight::Timer(timer));
            }
            Effect::WaitEvent { id, event } => {
                let mask = EventType::ALL
                    .iter()
                    .find(|kind| kind.as_str() == &*event)
                    .copied()
                    .unwrap_or(EventType::Custom);
                self.run.awaited.set(self.run.awaited.get().union(EventMask::of(mask)));
                self.in_flight.insert(id, InFlight::Wait);
                self.run.engine.bus.do_send(BusMsg::Wait {
                    run_id: Arc::clone(&self.run.run_id),
                    event,
                    answer: outcome_answer(context.address(), id),
                });
            }
            Effect::SetGlobal {
                id,
                name,
                value,
                readonly,
            } => {
                let assigned = self.run.globals.borrow_mut().assign(&name, value, readonly);
                let outcome = match assigned {
                    Ok(_) => Outcome::Done,
                    Err(error) => Outcome::Failed(error),
                };
                return (id != 0).then_some((id, outcome));
            }
            Effect::Pin { id, section, value } => {
                let outcome = match pin(&mut self.run.pinned.borrow_mut(), section, &value) {
                    Ok(()) => Outcome::Done,
                    Err(error) => Outcome::Failed(error),
                };
                return Some((id, outcome));
            }
            Effect::Emit(event) => self.emit(event),
            Effect::Announce { id, event } => {
                if let Some(event) = event {
                    self.emit(event);
                }
                self.run.engine.bus.do_send(BusMsg::Settle {
                    run_id: Arc::clone(&self.run.run_id),
                    thread_id: Arc::clone(self.machine.thread_id()),
                    answer: outcome_answer(context.address(), id),
                });
            }
            Effect::Applied { firing, error } => {
                self.run.supervisor.do_send(SupervisorMsg::Applied { firing, error });
            }
            Effect::Drop { id } => {
                if let Some(InFlight::Supervised) = self.in_flight.remove(&id) {
                    self.run.supervisor.do_send(SupervisorMsg::Drop {
                        thread: self.no,
                        effect: id,
                    });
                }
            }
            Effect::Ended(end) => {
                let ended = Ended {
                    end,
                    variables: self.machine.variables().clone(),
                    spent: *self.machine.spent(),
                    history: self.machine.history().to_vec(),
                    conversation: self.conversation.clone(),
                    node: self.machine.node(),
                };
                self.run.supervisor.do_send(SupervisorMsg::Ended {
                    thread: self.no,
                    ended: Box::new(ended),
                });
                self.in_flight.clear();
                context.stop();
            }
        }
        None
    }

    fn emit(&self, event: RaisedEvent) {
        self.run
            .emit(&self.machine.graph().workflow_id, self.machine.thread_id(), event);
    }

    fn function(
        &mut self,
        id: EffectId,
        node: NodeIx,
        input: &Arc<Value>,
        context: &mut Context<Self>,
    ) -> Option<(EffectId, Outcome)> {
        let NodeKind::Function { name, .. } = &self.machine.graph().node(node).kind else {
            return None;
        };
        match self.run.engine.ports.functions.get(&**name) {
            Some(Function::Inline(function)) => {
                let outcome = match function(input) {
                    Ok(value) => Outcome::Value(Arc::new(value)),
                    Err(message) => Outcome::Failed(RunError::new(RunErrorCode::NodeFailed, message)),
                };
                Some((id, outcome))
            }
            Some(Function::Work(function)) => {
                let future = function((**input).clone());
                let answer = outcome_answer(context.address(), id);
                let work = Box::pin(async move {
                    answer.give(match future.await {
                        Ok(value) => Outcome::Value(Arc::new(value)),
                        Err(message) => Outcome::Failed(RunError::new(RunErrorCode::NodeFailed, message)),
                    });
                });
                self.in_flight.insert(id, InFlight::Work(self.run.host.work(work)));
                None
            }
            None => {
                let message = format!("no function is registered under the name {name}");
                Some((id, Outcome::Failed(RunError::new(RunErrorCode::NodeFailed, message))))
            }
        }
    }

    fn script(&mut self, id: EffectId, node: NodeIx, input: Arc<Value>, context: &mut Context<Self>) {
        let NodeKind::Script { code, .. } = self.machine.graph().node(node).kind else {
            return;
        };
        let answer = outcome_answer(context.address(), id);
        let globals = self.run.globals.borrow();
        let scope = ThreadScope::new(&self.machine, &globals);
        let job = ScriptJob {
            graph: self.machine.graph(),
            code,
            input,
            scope: &scope,
            inline: self.run.engine.is_simulated,
        };
        let handle = self.run.engine.ports.scripts.run(
            job,
            Box::new(move |result| {
                answer.give(match result {
                    Ok(value) => Outcome::Value(value),
                    Err(error) => Outcome::Failed(error),
                });
            }),
        );
        drop(globals);
        self.in_flight.insert(id, InFlight::Script(handle));
    }

    fn tools_of(&self, node: NodeIx) -> Vec<Arc<str>> {
        match &self.machine.graph().node(node).kind {
            NodeKind::Llm(llm) => llm.tools.clone(),
            _ => Vec::new(),
        }
    }

    fn model(
        &mut self,
        id: EffectId,
        node: NodeIx,
        request: Arc<pirn_core::conversation::ModelRequest>,
        context: &mut Context<Self>,
    ) {
        let graph = Arc::clone(self.machine.graph());
        let (profile_id, node_parameters, response_format) = match &graph.node(node).kind {
            NodeKind::Llm(llm) => (
                llm.profile_id.clone(),
                llm.parameters.clone(),
                llm.response_format.clone(),
            ),
            NodeKind::Context(pirn_core::graph::ContextNode::Compress(config)) => {
                let named = config.parameters.get("profileId").and_then(Value::as_str);
                (Some(Arc::from(named.unwrap_or("extractive"))), None, None)
            }
            _ => (None, None, None),
        };
        let (profile, model) = self.run.engine.ports.models.choose(profile_id.as_deref());
        let mut parameters = profile.parameters.clone().unwrap_or_default();
        parameters.extend(
            node_parameters
                .iter()
                .flat_map(|more| more.iter().map(|(name, value)| (name.clone(), value.clone()))),
        );
        let tools = self.run.engine.ports.tools.specs(&self.tools_of(node));
        let session = self.sessions.entry(profile.id.clone()).or_default().clone();
        let tokens = self.token_sink(node);
        let clock = self.run.host.work_clock();
        let is_external = model.is_external();
        let future = model.call(ModelCall {
            request,
            profile,
            parameters,
            tools,
            response_format,
            session,
            clock,
            tokens,
        });
        let answer = outcome_answer(context.address(), id);
        let work = Box::pin(async move {
            answer.give(match future.await {
                Ok(reply) => Outcome::Reply(reply),
                Err(error) => Outcome::Failed(error),
            });
        });
        let handle = if is_external {
            self.run.host.external(work)
        } else {
            self.run.host.work(work)
        };
        self.in_flight.insert(id, InFlight::Work(handle));
    }

    /// LLM_TOKEN events, where somebody listens to them.
    fn token_sink(&self, node: NodeIx) -> TokenSink {
        if !self.run.listens(EventType::LlmToken) {
            return TokenSink::closed();
        }
        let bus = self.run.engine.bus.clone();
        let run_id = Arc::clone(&self.run.run_id);
        let workflow_id = Arc::clone(&self.machine.graph().workflow_id);
        let thread_id = Arc::clone(self.machine.thread_id());
        let node_id = Arc::clone(&self.machine.graph().node(node).id);
        let timestamp = self.run.host.wall_clock();
        TokenSink::new(move |piece| {
            bus.do_send(BusMsg::Raise {
                run_id: Arc::clone(&run_id),
                workflow_id: Arc::clone(&workflow_id),
                thread_id: Arc::clone(&thread_id),
                timestamp,
                raised: RaisedEvent::new(
                    EventType::LlmToken,
                    [("nodeId", json!(node_id)), ("text", json!(piece))],
                ),
            });
        })
    }

    fn converse(&mut self, id: EffectId, op: ConversationOp, context: &mut Context<Self>) {
        let answer = outcome_answer(context.address(), id);
        let conversation = self.conversation_actor(context);
        let message = match op {
            ConversationOp::Merge(firing) => {
                let Some(merge) = self.merges.remove(&firing) else {
                    return answer.give(Outcome::Done);
                };
                ConversationMsg::Merge { merge, answer }
            }
            ConversationOp::Prepare { node, .. } => {
                let specs = self.run.engine.ports.tools.specs(&self.tools_of(node));
                let tool_tokens = if specs.is_empty() { 0 } else { self.tool_tokens(&specs) };
                let pinned = self.pinned();
                ConversationMsg::Do {
                    op,
                    pinned: Some(pinned),
                    tool_tokens,
                    answer,
                }
            }
            op => ConversationMsg::Do {
                op,
                pinned: None,
                tool_tokens: 0,
                answer,
            },
        };
        conversation.do_send(message);
    }

    fn pinned(&self) -> Pinned {
        let mut pinned = self.run.pinned.borrow().clone();
        if let Some(agent) = self.machine.agent() {
            pinned.role.clone_from(&agent.role);
        }
        pinned
    }

    fn tool_tokens(&self, specs: &[crate::ports::ToolSpec]) -> u64 {
        let tokenizer = (self.run.engine.ports.tokenizer)(self.settings.tokenizer.as_deref());
        specs
            .iter()
            .map(|spec| tokenizer.count(&format!("{} {} {}", spec.name, spec.description, spec.parameters)))
            .sum()
    }

    /// The conversation's actor, started when it is first needed.
    fn conversation_actor(&mut self, context: &mut Context<Self>) -> Addr<ConversationActor> {
        if let Some(address) = &self.conversation.address {
            return address.clone();
        }
        let actor = ConversationActor::new(
            Rc::clone(&self.run),
            self.conversation.seed.clone(),
            self.settings.clone(),
        );
        let thread = context.address();
        let address = start_contained(&self.run.host, actor, move |exit| {
            if let Exit::Panicked { message } = exit {
                thread.do_send(ThreadMsg::ConversationLost { message });
            }
        });
        self.conversation.address = Some(address.clone());
        self.conversation.seed = Conversation::new();
        address
    }

    /// Asks the supervisor for a child; its conversation is this one's, a snapshot of it, or empty.
    fn child(
        &mut self,
        effect: EffectId,
        node: NodeIx,
        input: Arc<Value>,
        mode: ConversationMode,
        context: &mut Context<Self>,
    ) {
        let (thread, supervisor) = (self.no, self.run.supervisor.clone());
        let ask = move |conversation| {
            supervisor.do_send(SupervisorMsg::Child {
                thread,
                effect,
                node,
                input,
                conversation,
            });
        };
        match mode {
            ConversationMode::Share => {
                self.conversation_actor(context);
                ask(self.conversation.clone());
            }
            ConversationMode::Fork => self
                .conversation
                .with_snapshot(move |conversation| ask(ConversationRef::of(conversation))),
            ConversationMode::None => ask(ConversationRef::of(Conversation::new())),
        }
    }

    fn replace(
        &mut self,
        effect: EffectId,
        outcome: Outcome,
        conversation: Box<Conversation>,
        context: &mut Context<Self>,
    ) {
        if let Some(address) = &self.conversation.address {
            let answer = outcome_answer(context.address(), effect);
            address.do_send(ConversationMsg::Restore {
                conversation,
                answer,
                then: outcome,
            });
        } else {
            self.conversation.seed = *conversation;
            self.drive(Input::Answer { effect, outcome }, context);
        }
    }
}

/// What a fork's branches start from.
pub(crate) struct ForkState {
    pub(crate) variables: Variables,
    pub(crate) outputs: Outputs,
    pub(crate) input: Arc<Value>,
    pub(crate) conversation: Conversation,
}

/// A slot that answers an effect; work that is lost was killed by a panic.
fn outcome_answer(address: Addr<ThreadActor>, effect: EffectId) -> Answer<Outcome> {
    Answer::new(move |result| {
        let outcome =
            result.unwrap_or_else(|lost| Outcome::Failed(RunError::new(RunErrorCode::ActorPanicked, lost.to_string())));
        address.do_send(ThreadMsg::Answer { effect, outcome });
    })
}

fn tool_answer(address: Addr<ThreadActor>, effect: EffectId) -> Answer<ToolResult> {
    Answer::new(move |result: Result<ToolResult, _>| {
        let result = result.unwrap_or_else(|lost| ToolResult {
            content: format!("The tool failed: {lost}."),
            failed: true,
        });
        address.do_send(ThreadMsg::Answer {
            effect,
            outcome: Outcome::Tool(result),
        });
    })
}

/// Sets a section of the pinned context.
pub(crate) fn pin(pinned: &mut Pinned, section: PinSection, value: &Value) -> Result<(), RunError> {
    fn read<T: serde::de::DeserializeOwned>(value: &Value) -> Result<Option<T>, RunError> {
        serde_json::from_value(value.clone()).map_err(|error| {
            RunError::new(
                RunErrorCode::NodeFailed,
                format!("the value does not fit the section: {error}"),
            )
        })
    }
    match section {
        PinSection::Role => pinned.role = read(value)?,
        PinSection::Todo => pinned.todo = read(value)?,
        PinSection::UsefulInfo => pinned.useful_info = read(value)?,
        PinSection::FolderNotes => pinned.folder_notes = read(value)?,
    }
    Ok(())
}

impl Actor for ThreadActor {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Context<Self>) {
        self.drive(Input::Start, context);
    }
}

impl Handler<ThreadMsg> for ThreadActor {
    type Result = ();

    fn handle(&mut self, message: ThreadMsg, context: &mut Context<Self>) {
        match message {
            ThreadMsg::Input(input) => self.drive(input, context),
            ThreadMsg::Answer { effect, outcome } => {
                self.in_flight.remove(&effect);
                self.drive(Input::Answer { effect, outcome }, context);
            }
            ThreadMsg::Replace {
                effect,
                outcome,
                conversation,
            } => {
                self.in_flight.remove(&effect);
                self.replace(effect, outcome, conversation, context);
            }
            ThreadMsg::Triggered { firing, result, merge } => {
                if let Some(merge) = merge {
                    self.merges.insert(firing, merge);
                }
                self.drive(Input::Triggered { firing, result }, context);
            }
            ThreadMsg::Describe(answer) => {
                if self.machine.status().is_final() {
                    answer(None);
                    return;
                }
                let output = Arc::clone(self.machine.last_output());
                let input = Arc::clone(self.machine.input());
                let variables = self.machine.variables().clone();
                let node = self.machine.node();
                self.conversation.with_snapshot(move |conversation| {
                    answer(Some(Described {
                        output,
                        input,
                        variables,
                        node,
                        conversation,
                    }));
                });
            }
            ThreadMsg::CompressionEnded => {
                if let Some(address) = &self.conversation.address {
                    address.do_send(ConversationMsg::CompressionEnded);
                }
            }
            ThreadMsg::ConversationLost { message } => {
                // Its unanswered slots have said so already; later requests find the address dead.
                tracing::error!(message, "a conversation actor panicked");
            }
        }
    }
}

impl Ended {
    /// Lets go of what only a join needs.
    pub(crate) fn release(&mut self) {
        self.end.output = Arc::new(Value::Null);
        self.variables = Variables::default();
        self.history = Vec::new();
        self.conversation = ConversationRef::of(Conversation::new());
    }
}
