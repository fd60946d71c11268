//! Carries a thread machine's effects out: in place where the answer is known at once, else as an answer to come.

use std::sync::Arc;

use actix::Addr;
use futures::channel::oneshot;
use pirn_core::conversation::Conversation;
use pirn_core::definition::ConversationMode;
use pirn_core::error::{RunError, RunErrorCode};
use pirn_core::event::{EventMask, EventType};
use pirn_core::graph::{NodeIx, NodeKind};
use pirn_core::thread::{
    Effect, EffectId, NodeRecord, Outcome, Output, ThreadKind, ThreadScope, TimerPurpose, ToolResult, evaluate,
};
use serde_json::Value;

use super::turn::Turn;
use super::{ConversationRef, Ended, ForkState, InFlight, Left, ThreadActor, ThreadMsg, pin};
use crate::answer::Answer;
use crate::cause::{at_depth, work_at_depth};
use crate::events::BusMsg;
use crate::host::Asked;
use crate::ports::{AskedCall, Asker, Function, ScriptJob};
use crate::supervisor::SupervisorMsg;
use crate::waits::WaitHandle;

impl ThreadActor {
    /// Carries out an effect; what is known at once is returned.
    pub(super) fn carry(&mut self, effect: Effect, turn: &mut dyn Turn) -> Option<(EffectId, Outcome)> {
        match effect {
            Effect::Evaluate { id, node, what } => {
                let globals = self.run.globals.borrow();
                let scope = ThreadScope::new(&self.machine, &globals);
                let mut evaluator = self.run.local.evaluator.borrow_mut();
                return Some((id, evaluate(self.machine.graph(), node, what, &scope, &mut **evaluator)));
            }
            Effect::Function { id, node, input } => return self.function(id, node, &input, turn),
            Effect::Script { id, node, input } => self.script(id, node, input, turn),
            Effect::Conversation { id, op } => return self.converse(id, op, turn),
            Effect::Model { id, node, request } => self.model(id, node, request, turn),
            Effect::Tool { id, node, call } => {
                let names = self.tools_of(node);
                let is_external = self.run.engine.ports.tools.is_external(&call.name);
                let graph = self.machine.graph();
                let asked = AskedCall {
                    call,
                    asker: Some(Asker {
                        run_id: Arc::clone(&self.run.run_id),
                        thread_id: Arc::clone(self.machine.thread_id()),
                        workflow_id: Arc::clone(&graph.workflow_id),
                        node_id: Arc::clone(&graph.node(node).id),
                    }),
                };
                let tools = &self.run.engine.ports.tools;
                let work = work_at_depth(self.machine.trigger_depth(), || {
                    tools.call(&names, asked, self.run.host.work_clock())
                });
                self.tell_asks(node, Asked::Tool);
                let answer = tool_answer(turn.address(), id);
                let work = Box::pin(async move { answer.give(work.await) });
                let handle = if is_external {
                    self.run.host.external(work)
                } else {
                    self.run.host.work(work)
                };
                self.in_flight.insert(id, InFlight::Work(handle));
            }
            Effect::Fork { id, fork } => {
                let start = self.machine.snapshot();
                let thread = self.no;
                let supervisor = Arc::clone(&self.run.supervisor);
                self.in_flight.insert(id, InFlight::Supervised);
                // Without its conversation the thread ends, and asks for nothing more.
                self.speech.hand_over().with_snapshot(move |conversation| {
                    if let Ok(conversation) = conversation {
                        let state = Box::new(ForkState { start, conversation });
                        supervisor.do_send(SupervisorMsg::Fork {
                            thread,
                            effect: id,
                            fork,
                            state,
                        });
                    }
                });
            }
            Effect::Child {
                id,
                node,
                input,
                conversation,
            } => {
                self.in_flight.insert(id, InFlight::Supervised);
                self.child(id, node, input, conversation);
            }
            Effect::Timer { id, after_ms, purpose } => {
                let alarm = turn.alarm();
                self.tell_asks(
                    self.machine.node(),
                    match purpose {
                        TimerPurpose::Wait => Asked::Wait,
                        TimerPurpose::Retry => Asked::Retry,
                        TimerPurpose::Limit => Asked::Limit,
                    },
                );
                let timer = self.run.host.after(after_ms, move || alarm.ring(id));
                self.in_flight.insert(id, InFlight::Timer(timer));
            }
            Effect::WaitEvent { id, event } => {
                let mask = EventType::ALL
                    .iter()
                    .find(|kind| kind.as_str() == &*event)
                    .copied()
                    .unwrap_or(EventType::Custom);
                self.run.awaited.set(self.run.awaited.get().union(EventMask::of(mask)));
                let wait = WaitHandle::begin(&self.run, event, outcome_answer(turn.address(), id));
                self.in_flight.insert(id, InFlight::Wait(wait));
            }
            Effect::SetGlobal {
                id,
                name,
                value,
                readonly,
            } => {
                let outcome = match self.run.assign_global(&name, value, readonly) {
                    Ok(value) => Outcome::Value(value),
                    Err(error) => Outcome::Failed(error),
                };
                return Some((id, outcome));
            }
            Effect::Pin { id, section, value } => {
                self.tell_shared(|| format!("pinned {section:?}"), &value);
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
                self.run.bus().do_send(BusMsg::Settle {
                    run_id: Arc::clone(&self.run.run_id),
                    thread_id: Arc::clone(self.machine.thread_id()),
                    answer: outcome_answer(turn.address(), id),
                });
            }
            Effect::Applied { firing, error } => {
                self.run.unheard.set(self.run.unheard.get() + 1);
                self.run.supervisor.do_send(SupervisorMsg::Applied { firing, error });
            }
            Effect::Drop { id } => {
                if let Some(InFlight::Supervised) = self.in_flight.remove(id) {
                    self.run.supervisor.do_send(SupervisorMsg::Drop {
                        thread: self.no,
                        effect: id,
                    });
                }
            }
            Effect::Ended(end) => {
                let left = turn.takes_over().then(|| {
                    let history = match self.machine.kind() {
                        ThreadKind::Main | ThreadKind::Triggered => self.machine.take_history(),
                        // No report has it: it goes with the thread.
                        ThreadKind::Branch | ThreadKind::Subgraph => Vec::new(),
                    };
                    Box::new(self.left(history))
                });
                let spent = *self.machine.spent();
                self.in_flight.clear();
                turn.end(&self.run, self.no, Ended { end, spent, left });
            }
        }
        None
    }

    /// What the thread gathered, taken from it.
    pub(super) fn left(&mut self, history: Vec<NodeRecord>) -> Left {
        Left {
            variables: self.machine.variables().clone(),
            history,
            conversation: self.speech.take(),
            node: self.machine.node(),
            _outputs: (self.no == 0).then(|| Box::new(self.machine.take_outputs())),
        }
    }

    fn function(
        &mut self,
        id: EffectId,
        node: NodeIx,
        input: &Output,
        turn: &mut dyn Turn,
    ) -> Option<(EffectId, Outcome)> {
        let NodeKind::Function { name, .. } = &self.machine.graph().node(node).kind else {
            return None;
        };
        match self.run.engine.ports.functions.get(&**name) {
            Some(Function::Inline(function)) => {
                let outcome = match at_depth(self.machine.trigger_depth(), || function(&input.into())) {
                    Ok(value) => Outcome::Value(Arc::new(value)),
                    Err(message) => Outcome::Failed(RunError::new(RunErrorCode::NodeFailed, message)),
                };
                Some((id, outcome))
            }
            Some(Function::Work(function)) => {
                self.tell_asks(node, Asked::Function);
                let future = work_at_depth(self.machine.trigger_depth(), || function((**input.value()).clone()));
                let answer = outcome_answer(turn.address(), id);
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

    fn script(&mut self, id: EffectId, node: NodeIx, input: Arc<Value>, turn: &mut dyn Turn) {
        let NodeKind::Script { code, .. } = self.machine.graph().node(node).kind else {
            return;
        };
        let answer = outcome_answer(turn.address(), id);
        let inline = self.run.engine.is_simulated;
        let globals = self.run.globals.borrow();
        let scope = ThreadScope::new(&self.machine, &globals);
        let job = ScriptJob {
            graph: self.machine.graph(),
            code,
            input,
            scope: &scope,
            inline,
            seed: self.script_seed(id, node),
        };
        let (ended, end) = oneshot::channel();
        let handle = self.run.engine.ports.scripts.run(
            job,
            Box::new(move |result| {
                let outcome = match result {
                    Ok(value) => Outcome::Value(value),
                    Err(error) => Outcome::Failed(error),
                };
                if inline {
                    // The thread is here to take it, unless it has been stopped: then nobody wants it.
                    ended.send((answer, outcome)).unwrap_or_else(drop);
                } else {
                    answer.give(outcome);
                }
            }),
        );
        drop(globals);
        let in_flight = if inline {
            // It has run; when that is heard has its place in the order, like the end of any other work.
            self.tell_asks(node, Asked::Script);
            InFlight::Work(self.run.host.work(Box::pin(async move {
                if let Ok((answer, outcome)) = end.await {
                    answer.give(outcome);
                }
            })))
        } else {
            InFlight::Script(handle)
        };
        self.in_flight.insert(id, in_flight);
    }

    /// What a script draws from: the engine's seed, and the place and time of this one in its run.
    fn script_seed(&self, id: EffectId, node: NodeIx) -> Option<u64> {
        let seed = self.run.engine.seed?;
        let graph = self.machine.graph();
        // Thread numbers follow the order of starting: where that is what is tried, they must not matter.
        let no = if self.run.host.is_watching() { 0 } else { self.no };
        let place = format!(
            "{} {no} {} {} {} {id}",
            self.run.run_id,
            graph.workflow_id,
            self.machine.path_id().map_or("", |path| path),
            graph.node(node).id,
        );
        Some(crate::host::named_seed(seed, &place))
    }

    /// Asks the supervisor for a child; its conversation is this one's, a snapshot of it, or empty.
    fn child(&mut self, effect: EffectId, node: NodeIx, input: Arc<Value>, mode: ConversationMode) {
        let (thread, supervisor) = (self.no, Arc::clone(&self.run.supervisor));
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
            ConversationMode::Share => ask(self.share()),
            ConversationMode::Fork => self.speech.hand_over().with_snapshot(move |conversation| {
                // As with a fork.
                if let Ok(conversation) = conversation {
                    ask(ConversationRef::Snapshot(conversation));
                }
            }),
            ConversationMode::None => ask(ConversationRef::Snapshot(Conversation::new())),
        }
    }
}

/// A slot that answers an effect; work that is lost was killed by a panic.
pub(super) fn outcome_answer(address: Addr<ThreadActor>, effect: EffectId) -> Answer<Outcome> {
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
