//! Starts what a thread's machine asks of the world outside its run; its end comes as an answer.

use std::sync::Arc;

use futures::channel::oneshot;
use pirn_core::error::{RunError, RunErrorCode};
use pirn_core::event::EventType;
use pirn_core::graph::{NodeIx, NodeKind};
use pirn_core::message::ToolCall;
use pirn_core::run::{Message, ThreadNo, ToThread};
use pirn_core::thread::{
    Effect, EffectId, Evaluation, Input, Outcome, Output, ThreadMachine, TimerPurpose, ToolResult,
};
use serde_json::Value;

use super::{InFlight, ThreadActor};
use crate::answer::Answer;
use crate::cause::work_with_trigger_depth;
use crate::host::{Asked, Sign};
use crate::mailbox::Turn;
use crate::ports::{AskedCall, Asker, Function, ScriptJob, TextJob, Texts};
use crate::protocol::bus::{BusMsg, WaitHandle};
use crate::run::{RunShared, SupervisorAddr};
use crate::supervisor::SupervisorMsg;

impl ThreadActor {
    /// Starts what is to be done outside.
    pub(crate) fn carry(&mut self, effect: Effect, turn: &mut Turn<'_>) {
        let no = self.no;
        let Some(machine) = turn.machine.live(no) else { return };
        let started = match effect {
            Effect::Model {
                id,
                node,
                request,
                offers_tools,
            } => {
                let streams = turn.machine.awaits(EventType::LlmToken)
                    || turn.run.listening().interest.contains(EventType::LlmToken);
                Some((
                    id,
                    self.model(id, node, (request, offers_tools), machine, turn.run, streams),
                ))
            }
            Effect::Tool { id, node, call } => Some((id, tool(no, id, node, call, machine, turn.run))),
            Effect::Function { id, node, input } => {
                function(no, id, node, &input, machine, turn.run).map(|started| (id, started))
            }
            Effect::Script { id, node, input } => script(no, id, node, input, turn).map(|started| (id, started)),
            Effect::Timer { id, after_ms, purpose } => {
                let what = match purpose {
                    TimerPurpose::Wait => Asked::Wait,
                    TimerPurpose::Retry => Asked::Retry,
                    TimerPurpose::Limit => Asked::Limit,
                };
                tell_asks(no, machine, turn.run, machine.node(), what);
                let elapsed = turn.later(answered(no, id, Outcome::Elapsed));
                Some((id, InFlight::Timer(turn.run.host.after(after_ms, elapsed))))
            }
            Effect::WaitEvent { id, event } => {
                let answer = outcome_answer(&turn.run.supervisor, no, id);
                let waiter = turn.run.next_waiter();
                let wait = WaitHandle::begin(turn.run.bus(), &turn.run.run_id, waiter, event, answer);
                Some((id, InFlight::Wait(wait)))
            }
            Effect::Evaluate { id, node, what } => texts(no, id, node, what, turn).map(|started| (id, started)),
            // The run's machine answers these itself.
            Effect::Conversation { .. }
            | Effect::Fork { .. }
            | Effect::Child { .. }
            | Effect::SetGlobal { .. }
            | Effect::Pin { .. }
            | Effect::Emit(_)
            | Effect::RaiseAndAwaitTriggers { .. }
            | Effect::Applied { .. }
            | Effect::Drop { .. }
            | Effect::Ended(_) => None,
        };
        if let Some((id, started)) = started {
            self.in_flight.insert(id, started);
        }
    }
}

/// Asks which firings hold a thread, once every trigger of what was raised has been matched.
pub(crate) fn await_triggers(thread: ThreadNo, effect: EffectId, turn: &Turn<'_>) {
    turn.run.bus().do_send(BusMsg::Settle {
        run_id: Arc::clone(&turn.run.run_id),
        thread_id: turn.machine.thread_id(thread),
        answer: outcome_answer(&turn.run.supervisor, thread, effect),
    });
}

fn tool(
    no: ThreadNo,
    id: EffectId,
    node: NodeIx,
    call: ToolCall,
    machine: &ThreadMachine,
    run: &RunShared,
) -> InFlight {
    let tools = &run.engine.ports.tools;
    let is_external = tools.is_external(&call.name);
    let graph = machine.graph();
    let names = tools_of(machine, node);
    let asked = AskedCall {
        call,
        asker: Some(Asker {
            run_id: Arc::clone(&run.run_id),
            thread_id: Arc::clone(machine.thread_id()),
            workflow_id: Arc::clone(&graph.workflow_id),
            node_id: Arc::clone(&graph.node(node).id),
        }),
    };
    let work = work_with_trigger_depth(machine.trigger_depth(), || {
        tools.call(&names, asked, run.host.work_clock())
    });
    tell_asks(no, machine, run, node, Asked::Tool);
    let supervisor = Arc::clone(&run.supervisor);
    let answer = Answer::new(move |result: Result<ToolResult, _>| {
        let result = result.unwrap_or_else(|lost| ToolResult {
            content: format!("The tool failed: {lost}."),
            failed: true,
            ..ToolResult::default()
        });
        supervisor.do_send(SupervisorMsg::Tell(answered(no, id, Outcome::Tool(result))));
    });
    let work = Box::pin(async move { answer.give(work.await) });
    InFlight::Work(if is_external {
        run.host.external(work)
    } else {
        run.host.work(work)
    })
}

fn function(
    no: ThreadNo,
    id: EffectId,
    node: NodeIx,
    input: &Output,
    machine: &ThreadMachine,
    run: &RunShared,
) -> Option<InFlight> {
    let NodeKind::Function { name, .. } = &machine.graph().node(node).kind else {
        return None;
    };
    let Some(Function::Work(function)) = run.engine.ports.functions.get(&**name) else {
        return None;
    };
    tell_asks(no, machine, run, node, Asked::Function);
    let future = work_with_trigger_depth(machine.trigger_depth(), || function((**input.value()).clone()));
    let answer = outcome_answer(&run.supervisor, no, id);
    let work = Box::pin(async move {
        answer.give(match future.await {
            Ok(value) => Outcome::Value(Arc::new(value)),
            Err(message) => Outcome::Failed(RunError::new(RunErrorCode::NodeFailed, message)),
        });
    });
    Some(InFlight::Work(run.host.work(work)))
}

fn script(no: ThreadNo, id: EffectId, node: NodeIx, input: Arc<Value>, turn: &Turn<'_>) -> Option<InFlight> {
    let run = turn.run;
    let (machine, scope) = (turn.machine.live(no)?, turn.machine.scope(no)?);
    let NodeKind::Script { code, .. } = machine.graph().node(node).kind else {
        return None;
    };
    let answer = outcome_answer(&run.supervisor, no, id);
    let inline = run.engine.is_simulated;
    let job = ScriptJob {
        graph: machine.graph(),
        code,
        input,
        scope: &scope,
        run_id: &run.run_id,
        inline,
        seed: script_seed(no, id, node, machine, run),
    };
    let (ended, end) = oneshot::channel();
    let handle = run.engine.ports.scripts.run(
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
    if !inline {
        return Some(InFlight::Script(handle));
    }
    // It has run; when that is heard has its place in the order, like the end of any other work.
    tell_asks(no, machine, run, node, Asked::Script);
    Some(InFlight::Work(run.host.work(Box::pin(async move {
        if let Ok((answer, outcome)) = end.await {
            answer.give(outcome);
        }
    }))))
}

/// Texts that may take long, on a thread of scripts.
fn texts(no: ThreadNo, id: EffectId, node: NodeIx, what: Evaluation, turn: &Turn<'_>) -> Option<InFlight> {
    let run = turn.run;
    let (machine, scope) = (turn.machine.live(no)?, turn.machine.scope(no)?);
    let job = TextJob {
        run_id: Arc::clone(&run.run_id),
        texts: Texts::of_node(machine.graph(), node, what, &scope),
    };
    let answer = outcome_answer(&run.supervisor, no, id);
    let handle = run
        .engine
        .ports
        .scripts
        .evaluate(job, Box::new(move |outcome| answer.give(outcome)));
    Some(InFlight::Script(handle))
}

/// What a script draws from: the engine's seed, and the place and time of this one in its run.
fn script_seed(no: ThreadNo, id: EffectId, node: NodeIx, machine: &ThreadMachine, run: &RunShared) -> Option<u64> {
    let seed = run.engine.seed?;
    let graph = machine.graph();
    // Thread numbers follow the order of starting: where that is what is tried, they must not matter.
    let no = if run.host.is_watching() { 0 } else { no };
    let place = format!(
        "{} {no} {} {} {} {id}",
        run.run_id,
        graph.workflow_id,
        machine.path_id().map_or("", |path| path),
        graph.node(node).id,
    );
    Some(crate::host::named_seed(seed, &place))
}

pub(super) fn tools_of(machine: &ThreadMachine, node: NodeIx) -> Vec<Arc<str>> {
    match &machine.graph().node(node).kind {
        NodeKind::Llm(llm) => llm.tools.clone(),
        NodeKind::Tool { name, .. } => vec![Arc::clone(name)],
        _ => Vec::new(),
    }
}

/// What is asked of the host next is this thread's.
pub(super) fn tell_asks(no: ThreadNo, machine: &ThreadMachine, run: &RunShared, node: NodeIx, what: Asked) {
    run.host.tell(|| Sign::Asks {
        run: Arc::clone(&run.run_id),
        thread: no,
        node: Arc::clone(&machine.graph().node(node).id),
        what,
    });
}

fn answered(thread: ThreadNo, effect: EffectId, outcome: Outcome) -> Message {
    Message::Thread(thread, ToThread::Input(Input::Answer { effect, outcome }))
}

/// A slot that answers an effect; work that is lost was killed by a panic.
pub(super) fn outcome_answer(supervisor: &SupervisorAddr, thread: ThreadNo, effect: EffectId) -> Answer<Outcome> {
    let supervisor = Arc::clone(supervisor);
    Answer::new(move |result| {
        let outcome =
            result.unwrap_or_else(|lost| Outcome::Failed(RunError::new(RunErrorCode::ActorPanicked, lost.to_string())));
        supervisor.do_send(SupervisorMsg::Tell(answered(thread, effect, outcome)));
    })
}
