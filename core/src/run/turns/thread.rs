//! Turns of a thread: steps its machine and performs inline effects (expressions, inline functions, global variables, pinned
//! context).
//!
//! A turn changes only the thread, the state that all threads share, and the queue. A panic in it affects no other thread.

use std::collections::VecDeque;
use std::sync::Arc;

use pirn_conversation::conversation::{Conversation, MessageRules};
use pirn_definition::definition::{PinSection, Pinned, ToolDefinition};
use pirn_definition::error::{RunError, RunErrorCode};
use pirn_definition::event_type::EventType;
use pirn_definition::graph::{NodeIx, NodeKind};
use pirn_events::event::{EventMask, RaisedEvent};
use serde_json::Value;

use crate::run::ThreadNo;
use crate::run::data::effect::Effect;
use crate::run::data::message::{
    Message, Request, ThreadRequest, ToConversation, ToSupervisor, ToThread, TriggerContext,
};
use crate::run::data::thread_state::{EffectBuffers, LiveThread, RareFields};
use crate::run::data::user_messages::UserMessages;
use crate::run::environment::CallResult;
use crate::run::parts::agents::{AgentCounts, concurrency};
use crate::run::parts::globals::{Evaluated, Globals, assigned};
use crate::run::parts::ledger::Ledger;
use crate::run::parts::mailbox::Mailbox;
use crate::run::parts::memory::{Memory, STEP};
use crate::run::parts::tree::ThreadLookup;
use crate::run::step::Step;
use crate::thread::{
    self, ConversationOp, EffectId, Environment, Evaluation, FiringId, Input, OfferedTools, Outcome, Output,
    ThreadKind, ThreadScope, TokenFigures, When,
};

/// Maximum number of effects in one turn. A loop of nodes that never wait continues in a later turn, so that cancels, pauses and
/// other runs get their turns.
const MAX_EFFECTS_A_TURN: usize = 4_096;

/// A turn of a thread.
pub(in crate::run) struct ThreadTurn<'t, 'a> {
    pub(in crate::run) no: ThreadNo,
    pub(in crate::run) live: &'t mut LiveThread,
    pub(in crate::run) globals: &'t mut Globals,
    pub(in crate::run) pinned: &'t mut Option<Box<Pinned>>,
    pub(in crate::run) mailbox: &'t mut Mailbox,
    pub(in crate::run) buffers: &'t mut EffectBuffers,
    /// Seed of the run; 0 disables randomness.
    pub(in crate::run) seed: u64,
    pub(in crate::run) budget: &'t mut Option<Box<Ledger>>,
    pub(in crate::run) agents: &'t mut Option<Box<AgentCounts>>,
    pub(in crate::run) memory: &'t mut Memory,
    pub(in crate::run) places: ThreadLookup<'t>,
    pub(in crate::run) user_messages: &'t Option<Box<UserMessages>>,
    pub(in crate::run) client_tools: &'t Option<Arc<Vec<ToolDefinition>>>,
    pub(in crate::run) step: &'t mut Step<'a>,
}

impl ThreadTurn<'_, '_> {
    pub(in crate::run) fn take(&mut self, message: ToThread) {
        if self.live.has_panicked {
            return;
        }
        match message {
            ToThread::Input(input) => self.drive(input),
            ToThread::Triggered { firing, result, merge } => {
                // Stored until the machine reaches a safe point and requests the merge by `ConversationOp::Merge`.
                if let Some(merge) = merge {
                    self.rare().merges.insert(firing, merge);
                }
                self.drive(Input::Triggered { firing, result });
            }
            ToThread::Describe(firing) => self.describe(firing),
            ToThread::GoOn => self.go_on(),
        }
    }

    fn rare(&mut self) -> &mut RareFields {
        self.live.rare.get_or_insert_default()
    }

    /// Processes an input and performs all inline effects that follow.
    fn drive(&mut self, mut input: Input) {
        if let Input::Answer { effect, outcome } = &mut input {
            // Before the machine receives the value: equal events are replaced by one shared value.
            self.memory.arrived(outcome);
            // A later `Drop` of this id must not reach the supervisor, which has finished the effect.
            self.live.unsupervise(*effect);
            if self.budget.is_some() {
                self.settle(*effect, outcome);
            }
            match self.globals.evaluated(self.live.machine.graph(), self.no, *effect) {
                // The machine still awaits the effect: the repeated evaluation has the same id.
                Evaluated::Stale(again) => return self.outside(again),
                // Answer and assignment are in one turn, so that no other assignment can come between them.
                Evaluated::Fresh(next) => self.give_turn(next),
                Evaluated::Other => {}
            }
        }
        // Effects of the last turn precede those of this input. The `GoOn` that is queued for them then finds none.
        self.take_left_over();
        self.receive(input);
        self.perform_all();
    }

    fn go_on(&mut self) {
        self.take_left_over();
        // `give_turn` sends `GoOn` too: the thread may have reached the front of an evaluation queue.
        if let Some(evaluate) = self.globals.start(self.no) {
            self.outside(evaluate);
        }
        self.perform_all();
    }

    fn take_left_over(&mut self) {
        // A turn that panicked leaves its effects in the buffers, which all threads share.
        self.buffers.queue.clear();
        self.buffers.out.clear();
        if let Some(rare) = &mut self.live.rare {
            self.buffers.queue.extend(rare.left_over.drain(..));
        }
    }

    fn receive(&mut self, input: Input) {
        let environment = Environment {
            random: self.random(),
            interest: self.step.interest(),
            holding: self.step.listening.holding,
            has_globals: !self.globals.is_empty(),
            user_messages: self.next_user_message(),
            agents_left: self
                .agents
                .as_deref()
                .and_then(|counts| counts.left(self.no, self.places)),
            concurrency: self.agents.as_deref().and_then(|_| concurrency(self.no, self.places)),
        };
        let agents = environment.agents_left;
        // Before the step, which takes the input.
        self.step.env.delivered(self.no, &input);
        self.memory.made(STEP);
        let left = self.live.machine.step(environment, input, &mut self.buffers.out);
        if let (Some(before), Some(left), Some(counts)) = (agents, left, self.agents.as_deref_mut())
            && left < before
        {
            counts.started(self.no, before - left, self.places);
        }
    }

    /// Returns when the next message of a person is to be added to the conversation in which the thread speaks.
    fn next_user_message(&self) -> Option<When> {
        let messages = self.user_messages.as_deref()?;
        // Messages are for the conversation of the main thread, in which a called workflow may speak too.
        messages.next().filter(|_| self.live.speaks_in(self.no) == 0)
    }

    /// Returns a random number that depends only on the seed, the thread and its effect count. It is independent of the order in
    /// which threads take their turns, so that replays are deterministic.
    fn random(&self) -> u64 {
        if self.seed == 0 {
            return 0;
        }
        // SplitMix64, written out: the numbers of a recorded run must not change with the version of a library.
        let place = (u64::from(self.no) << 32) ^ self.live.machine.effects_so_far();
        let mut mixed = self.seed ^ place.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn perform_all(&mut self) {
        // A count: with a time limit, a replay would divide the work into other turns.
        for _ in 0..MAX_EFFECTS_A_TURN {
            let Some(effect) = self.buffers.next() else { return };
            if let Some((effect, outcome)) = self.perform(effect) {
                self.memory.evaluated(&outcome);
                self.receive(Input::Answer { effect, outcome });
            }
            if self.memory.is_due() {
                // The run's memory is checked between turns.
                break;
            }
        }
        // The rest is stored with the thread, because the next turn of another thread uses the buffers.
        let EffectBuffers { queue, out } = &mut *self.buffers;
        if queue.is_empty() && out.is_empty() {
            return;
        }
        queue.extend(out.drain(..));
        let left_over = &mut self.live.rare.get_or_insert_default().left_over;
        left_over.extend(queue.drain(..));
        // Low priority: a cancel or a pause that is queued now takes effect before the rest.
        self.mailbox.send_later(Message::Thread(self.no, ToThread::GoOn));
    }

    /// Performs an effect. Returns the outcome of an inline effect.
    fn perform(&mut self, effect: thread::Effect) -> Option<(EffectId, Outcome)> {
        match effect {
            thread::Effect::Evaluate { id, node, what } => {
                let machine = &self.live.machine;
                let scope = ThreadScope::new(machine, self.globals);
                // Cloned because the environment may return `None`, and the evaluation is then an effect.
                match self.step.env.evaluate(machine.graph(), node, what.clone(), &scope) {
                    Some(outcome) => return Some((id, outcome)),
                    None => self.evaluate_outside(id, node, what),
                }
            }
            thread::Effect::Function { id, key, node, input } => return self.function((id, key), node, input),
            thread::Effect::Conversation { id, op } => return self.converse(id, op),
            thread::Effect::SetGlobal {
                id,
                name,
                value,
                readonly,
                is_of_session,
            } => {
                // In the turn of the evaluation: an assignment of another thread cannot come between read and write.
                let outcome = match self.globals.assign(self.step, &name, value, readonly) {
                    Ok(value) => {
                        if is_of_session {
                            self.globals.keep_for_session(&name);
                        }
                        Outcome::Value(value)
                    }
                    Err(error) => Outcome::Failed(error),
                };
                return Some((id, outcome));
            }
            thread::Effect::Pin { id, section, value } => {
                self.step.env.shared(format_args!("pinned {section:?}"), &value);
                let outcome = match pin(self.pinned, section, &value) {
                    Ok(()) => Outcome::Done,
                    Err(error) => Outcome::Failed(error),
                };
                return Some((id, outcome));
            }
            // Passes through the conversation, like MAP and SUBGRAPH below, because the start needs a snapshot of it.
            thread::Effect::Fork { id, fork } => {
                self.live.supervise(id);
                let snapshot = self.live.machine.snapshot();
                self.forward(ThreadRequest::Fork {
                    effect: id,
                    fork,
                    snapshot,
                });
            }
            thread::Effect::Map { id, node, inputs } => {
                self.live.supervise(id);
                self.forward(ThreadRequest::Map {
                    effect: id,
                    node,
                    inputs,
                });
            }
            thread::Effect::Child {
                id,
                node,
                callee,
                input,
                conversation,
            } => {
                self.live.supervise(id);
                self.forward(ThreadRequest::Call {
                    effect: id,
                    node,
                    callee,
                    input,
                    mode: conversation,
                });
            }
            thread::Effect::Emit(event) => self.emit(event),
            thread::Effect::RaiseAndAwaitTriggers { id, event } => {
                // Before the request, which is answered when the triggers of all earlier events have been matched.
                if let Some(event) = event {
                    self.emit(event);
                }
                self.step.out.push(Effect::AwaitTriggers {
                    thread: self.no,
                    effect: id,
                });
            }
            thread::Effect::Applied { firing, error } => {
                self.mailbox
                    .send(Message::Supervisor(ToSupervisor::Applied { firing, error }));
            }
            // The cancel goes to the part that performs the effect: the supervisor, the budget, the evaluation queue, or the host.
            thread::Effect::Drop { id } if self.live.unsupervise(id) => {
                self.forward(ThreadRequest::Drop { effect: id });
            }
            // The call was still queued for its budget, so the host has not received it.
            thread::Effect::Drop { id } if self.budget.is_some() && self.give_up_call(id) => {}
            thread::Effect::Drop { id } if self.globals.has_requested(self.no, id) => self.withdraw(id),
            thread::Effect::Drop { id } => self.step.out.push(Effect::Drop {
                thread: self.no,
                effect: id,
            }),
            thread::Effect::Ended(end) => {
                let history = match self.live.machine.kind() {
                    ThreadKind::Main | ThreadKind::Triggered => self.live.machine.take_history(),
                    // No report contains the history of these threads: drop it.
                    ThreadKind::Branch | ThreadKind::Subgraph => Vec::new(),
                };
                let ended = self.live.ended(end, history, false);
                self.step.out.push(Effect::ThreadEnded { thread: self.no });
                let message = ToConversation::Ended(self.no, Box::new(ended));
                // Behind the thread's earlier operations, so that what it adds last is part of its result.
                let owner = self.live.speaks_in(self.no);
                self.mailbox.send(Message::Conversation(owner, message));
            }
            thread::Effect::WaitEvent { id, node, event, taken } => {
                // A name that is no event type is the name of a CUSTOM event.
                let named = EventType::ALL.iter().find(|named| named.as_str() == &*event);
                let types = EventMask::of(named.copied().unwrap_or(EventType::Custom));
                // The set only grows: the run builds these events from now on, for this and later waits.
                self.step.awaited = self.step.awaited.union(types);
                self.outside(thread::Effect::WaitEvent { id, node, event, taken });
            }
            model @ thread::Effect::Model { .. } => return self.model(model),
            tool @ thread::Effect::Tool { .. } => return self.tool(tool),
            thread::Effect::ScriptStep { id, node, mut state } => {
                let tokens = self.token_limit();
                // The first step sets the time that the script sees; its answer records it for the later ones.
                let recorded = Arc::make_mut(&mut state);
                recorded.now.get_or_insert(self.step.now);
                // The answer records these figures too, for the results that the step delivers.
                recorded.tokens = tokens.map(|(total, spent)| TokenFigures { total, spent });
                self.outside(thread::Effect::ScriptStep { id, node, state });
            }
            thread::Effect::Ask {
                id,
                node,
                unchecked_schema,
            } => {
                let schema = unchecked_schema.as_deref().cloned().map(Value::Object);
                if let Some(fault) = schema.and_then(|schema| self.step.env.schema_fault(&schema)) {
                    // Such a schema refuses every answer, so that the question would stay open until it is cancelled.
                    let error = RunError::new(RunErrorCode::InvalidInput, format!("ask: the schema {fault}"));
                    return Some((id, Outcome::Failed(error)));
                }
                self.outside(thread::Effect::Ask {
                    id,
                    node,
                    unchecked_schema,
                });
            }
            external @ (thread::Effect::Script { .. } | thread::Effect::Timer { .. }) => self.outside(external),
        }
        None
    }

    /// Evaluates expressions on another OS thread. Evaluations that assign the same global variable are serialized.
    fn evaluate_outside(&mut self, id: EffectId, node: NodeIx, what: Evaluation) {
        if let Some(name) = assigned(self.live.machine.graph(), node, &what)
            // Parallel evaluations for one variable would make each other stale: N threads would cost more than N evaluations.
            && let Some(ticket) = self.globals.request(self.no, (id, node, &what), &name)
        {
            let env = &mut self.step.env;
            return env.noted(self.no, format_args!("waits to assign {name}: {ticket}"));
        }
        self.outside(thread::Effect::Evaluate { id, node, what });
    }

    /// Cancels an evaluation that was to assign a global variable.
    fn withdraw(&mut self, effect: EffectId) {
        let Some((is_under_way, next)) = self.globals.withdraw(self.no) else {
            return;
        };
        // A queued evaluation has not been sent to the host.
        if is_under_way {
            let thread = self.no;
            self.step.out.push(Effect::Drop { thread, effect });
        }
        self.give_turn(next);
    }

    /// Wakes the thread that may assign next, if one waits.
    fn give_turn(&mut self, next: Option<ThreadNo>) {
        if let Some(next) = next {
            self.mailbox.send(Message::Thread(next, ToThread::GoOn));
        }
    }

    pub(in crate::run) fn outside(&mut self, effect: thread::Effect) {
        self.step.out.push(Effect::Thread {
            thread: self.no,
            effect,
        });
    }

    pub(in crate::run) fn emit(&mut self, event: RaisedEvent) {
        let machine = &self.live.machine;
        self.step.emit(machine.graph(), machine.thread_id(), event);
    }

    fn function(
        &mut self,
        (id, key): (EffectId, EffectId),
        node: NodeIx,
        input: Output,
    ) -> Option<(EffectId, Outcome)> {
        let machine = &self.live.machine;
        let NodeKind::Function { name, .. } = &machine.graph().node(node).kind else {
            return None;
        };
        let outcome = match self.step.env.call(name, &input, machine) {
            CallResult::Done(Ok(value)) => Outcome::Value(Arc::new(value)),
            CallResult::Done(Err(message)) => Outcome::Failed(RunError::new(RunErrorCode::NodeFailed, message)),
            CallResult::TakesTime => {
                self.outside(thread::Effect::Function { id, key, node, input });
                return None;
            }
            CallResult::Unknown => {
                let message = format!("no function is registered under the name {name}");
                Outcome::Failed(RunError::new(RunErrorCode::NodeFailed, message))
            }
        };
        Some((id, outcome))
    }

    /// Sends an operation to the conversation.
    fn converse(&mut self, id: EffectId, op: ConversationOp) -> Option<(EffectId, Outcome)> {
        let request = match op {
            // Removed: a firing is applied once.
            ConversationOp::Merge(firing) => match self.rare().merges.remove(&firing) {
                Some(merge) => Request::Merge(merge),
                None => return Some((id, Outcome::Done)),
            },
            ConversationOp::Prepare { node, ref choice, .. } => {
                let budget = self.budget_note();
                let machine = &self.live.machine;
                let graph = machine.graph();
                let (tools, profile, offered) = match &graph.node(node).kind {
                    NodeKind::Llm(llm) => {
                        let offered =
                            OfferedTools::of(llm, machine.kind() == ThreadKind::Main, self.client_tools.as_ref());
                        (&llm.tools[..], llm.profile_id.as_deref(), offered)
                    }
                    _ => (&[][..], None, None),
                };
                // An expression of the node may have selected another profile than the configured one.
                let chosen = choice.as_ref().and_then(|choice| choice.profile_id.clone());
                let profile = chosen.as_deref().or(profile);
                // A copy as of this turn: other threads may set sections before the conversation handles the request.
                let mut pinned = self.pinned.clone().unwrap_or_default();
                // The role of an agent replaces that of the run in its own requests only.
                if let Some(agent) = machine.agent() {
                    pinned.role.clone_from(&agent.role);
                }
                Request::Do {
                    op,
                    pinned: Some(pinned),
                    budget,
                    tool_tokens: self.step.env.tool_tokens(graph, tools),
                    offered: offered.map(Box::new),
                    rules: self.step.env.message_rules(profile),
                }
            }
            op => Request::Do {
                op,
                pinned: None,
                budget: None,
                tool_tokens: 0,
                offered: None,
                rules: MessageRules::default(),
            },
        };
        let (owner, request) = (self.live.speaks_in(self.no), Box::new(request));
        self.mailbox.send(Message::Conversation(
            owner,
            ToConversation::Serve {
                thread: self.no,
                effect: id,
                request,
            },
        ));
        None
    }

    /// Sends a message to the supervisor through the conversation, behind the thread's earlier operations.
    pub(in crate::run) fn forward(&mut self, forwarded: ThreadRequest) {
        let message = ToConversation::Forward(self.no, Box::new(forwarded));
        let owner = self.live.speaks_in(self.no);
        self.mailbox.send(Message::Conversation(owner, message));
    }

    fn describe(&mut self, firing: FiringId) {
        let machine = &self.live.machine;
        // Nothing of the conversation is needed, so the answer skips it.
        if machine.status().is_final() {
            self.mailbox
                .send(Message::Supervisor(ToSupervisor::Prepared { firing, prepared: None }));
            return;
        }
        let prepared = TriggerContext {
            output: Arc::clone(machine.last_output().value()),
            input: Arc::clone(machine.input()),
            variables: machine.variables().clone(),
            node: machine.node(),
            conversation: Conversation::new(),
            asked: None,
        };
        self.forward(ThreadRequest::Prepared { firing, prepared });
    }
}

impl EffectBuffers {
    /// Returns the number of effects that fit without allocation.
    pub fn capacity(&self) -> usize {
        self.queue.capacity() + self.out.capacity()
    }

    /// Takes the next effect. The queue precedes the output of the current step.
    fn next(&mut self) -> Option<thread::Effect> {
        match self.out.len() {
            0 => {}
            // Fast path: most steps produce one effect.
            1 if self.queue.is_empty() => return self.out.pop(),
            // Swap the buffers instead of moving the effects: both allocations are reused.
            _ if self.queue.is_empty() => {
                let room = Vec::from(std::mem::take(&mut self.queue));
                self.queue = VecDeque::from(std::mem::replace(&mut self.out, room));
            }
            _ => self.queue.extend(self.out.drain(..)),
        }
        self.queue.pop_front()
    }
}

/// Sets a section of the pinned context. Returns an error if the value does not have the section's type.
pub(in crate::run) fn pin(
    pinned: &mut Option<Box<Pinned>>,
    section: PinSection,
    value: &Value,
) -> Result<(), RunError> {
    let set = pinned.get_or_insert_default().set(section, value);
    set.map_err(|error| {
        let message = format!("the value does not fit the section: {error}");
        RunError::new(RunErrorCode::NodeFailed, message)
    })
}
