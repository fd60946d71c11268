//! Starts the effects of a thread. The result of each is sent back as a message.

use std::future::ready;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use futures::future::BoxFuture;
use pirn_core::run::{Message, Origin, RunMachine, ThreadNo, ToThread};
use pirn_core::thread::{
    Effect, EffectId, Evaluation, Input, Interaction, Outcome, Output, ScriptState, ThreadMachine, TimerPurpose,
    ToolResult,
};
use pirn_definition::error::{RunError, RunErrorCode};
use pirn_definition::event_type::EventType;
use pirn_definition::graph::{NodeIx, NodeKind};
use pirn_definition::message::ToolCall;
use serde_json::Value;

use super::{InFlight, ThreadActor};
use crate::answer::Answer;
use crate::calls::current_call::{EffectName, work_of};
use crate::host::{AwaitKind, Label, WorkHandle, named_seed};
use crate::panic_text::panic_message;
use crate::ports::{AskedCall, Function, ScriptJob, TextJob, Texts, ToolOutcome};
use crate::protocol::bus::{BusMsg, WaitHandle};
use crate::protocol::supervisor::{InteractionAnswer, SupervisorHandle, SupervisorMsg};
use crate::run::environment::context_of;
use crate::run::run_context::RunContext;
use crate::run::turn::Turn;

impl ThreadActor {
    /// Lets an explorer choose when an event reaches its WAIT: the thread that raised the event continues meanwhile.
    pub(super) fn hold_event(&mut self, effect: EffectId, message: ToThread, turn: &Turn<'_>) {
        let (no, run) = (self.no, turn.run);
        let Some(machine) = turn.machine.live(no) else { return };
        let supervisor = Arc::clone(&run.supervisor);
        let deliver = async move { supervisor.do_send(SupervisorMsg::Tell(Message::Thread(no, message))) };
        let label = label(no, machine, run, machine.node(), AwaitKind::Event);
        let held = run.host.work(Some(label), Box::pin(deliver));
        self.in_flight.insert(effect, InFlight::Work(held));
    }

    /// Starts an effect.
    pub(crate) fn perform(&mut self, effect: Effect, turn: &mut Turn<'_>) {
        let no = self.no;
        // An ended thread has no use for results.
        let Some(machine) = turn.machine.live(no) else { return };
        let started = match effect {
            Effect::Model {
                id,
                key,
                node,
                request,
                offers_tools,
                choice,
                goes_on,
                offered,
            } => {
                // Streamed only if someone receives the pieces: each is an event.
                let streams = turn.machine.awaits(EventType::LlmToken)
                    || turn.run.listening().interest.contains(EventType::LlmToken);
                Some((
                    id,
                    self.model(
                        (id, key),
                        node,
                        (Arc::clone(request.built()), offers_tools, choice, goes_on, offered),
                        machine,
                        turn,
                        streams,
                    ),
                ))
            }
            Effect::Tool {
                id,
                key,
                node,
                call,
                is_consented,
            } => Some((id, tool(no, (id, key), node, (call, is_consented), machine, turn))),
            Effect::Function { id, key, node, input } => {
                function(no, (id, key), node, &input, machine, turn).map(|started| (id, started))
            }
            Effect::ScriptStep { id, node, state } => {
                script(no, id, node, Arc::default(), Some(state), turn).map(|started| (id, started))
            }
            Effect::Script { id, node, input, .. } => {
                script(no, id, node, input, None, turn).map(|started| (id, started))
            }
            Effect::Timer {
                id, after_ms, purpose, ..
            } => {
                let awaits = match purpose {
                    TimerPurpose::Wait => AwaitKind::Wait,
                    TimerPurpose::Retry => AwaitKind::Retry,
                    TimerPurpose::Limit => AwaitKind::Limit,
                };
                let label = Some(label(no, machine, turn.run, machine.node(), awaits));
                let elapsed = turn.later(move || answered(no, id, Outcome::Elapsed));
                Some((id, InFlight::Timer(turn.run.host.after(label, after_ms, elapsed))))
            }
            Effect::WaitEvent { id, event, taken, .. } => {
                let answer = outcome_answer(&turn.run.supervisor, no, id);
                let waiter = turn.run.next_waiter();
                let wait = WaitHandle::begin(turn.run.bus(), &turn.run.run_id, waiter, (event, taken), answer);
                Some((id, InFlight::Wait(wait)))
            }
            Effect::Evaluate { id, node, what } => texts(no, id, node, what, turn).map(|started| (id, started)),
            Effect::Ask { id, node, .. } => {
                let offered = answers(no, id, node, machine, turn);
                // Only an explorer offers answers. On other hosts nothing is in flight for a question.
                (!offered.is_empty()).then_some((id, InFlight::Answers(offered)))
            }
            // The run's machine handles these itself.
            Effect::Conversation { .. }
            | Effect::Fork { .. }
            | Effect::Map { .. }
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

/// Requests the firings that hold a thread. Answered once all earlier events have been matched with the triggers.
pub(crate) fn await_triggers(thread: ThreadNo, effect: EffectId, turn: &Turn<'_>) {
    turn.run.bus().do_send(BusMsg::Settle {
        run_id: Arc::clone(&turn.run.run_id),
        answer: outcome_answer(&turn.run.supervisor, thread, effect),
    });
}

fn tool(
    no: ThreadNo,
    (id, key): (EffectId, EffectId),
    node: NodeIx,
    (call, is_consented): (ToolCall, bool),
    machine: &ThreadMachine,
    turn: &Turn<'_>,
) -> InFlight {
    let run = turn.run;
    let tools = &run.ports().tools;
    let names = tools_of(machine, node);
    let asked = AskedCall {
        call,
        caller: Some(context_of(&run.run_id, machine, node, run.supervisor.metadata())),
        models: Some(Arc::clone(&run.ports().models)),
        is_consented,
    };
    let (work, is_external) = begun(
        || {
            let is_external = tools.is_external(&asked.call.name);
            let name = Some(effect_name(run, no, key));
            let work = work_of(machine.trigger_depth(), name, || {
                tools.call(&names, asked, run.host.work_clock())
            });
            (work, is_external)
        },
        |panic| ToolOutcome::Result(ToolResult::failed(format!("The tool panicked: {panic}"))),
    );
    let supervisor = Arc::clone(&run.supervisor);
    // A lost answer is a failed call for the model, and does not fail the run.
    let answer = Answer::new(move |called: Result<ToolOutcome, _>| {
        let outcome = match called {
            Ok(ToolOutcome::Result(result)) => Outcome::Tool(Box::new(result)),
            Ok(ToolOutcome::NeedsConsent(request)) => Outcome::NeedsConsent(request),
            Err(lost) => Outcome::Tool(Box::new(ToolResult::failed(format!("The tool failed: {lost}.")))),
        };
        supervisor.do_send(SupervisorMsg::Tell(answered(no, id, outcome)));
    });
    // The future owns the answer, so that an abort drops it and thereby answers.
    let work = Box::pin(async move { answer.give(work.await) });
    in_flight(label(no, machine, run, node, AwaitKind::Tool), work, is_external, turn)
}

fn function(
    no: ThreadNo,
    (id, key): (EffectId, EffectId),
    node: NodeIx,
    input: &Output,
    machine: &ThreadMachine,
    turn: &Turn<'_>,
) -> Option<InFlight> {
    let run = turn.run;
    let NodeKind::Function { name, .. } = &machine.graph().node(node).kind else {
        return None;
    };
    // The machine requests this effect only after `RunEnvironment::call` has found an asynchronous function.
    let Some(Function::Work(function)) = run.ports().functions.get(&**name) else {
        return None;
    };
    let future = work_of(machine.trigger_depth(), Some(effect_name(run, no, key)), || {
        let context = context_of(&run.run_id, machine, node, run.supervisor.metadata());
        // Copied, because the function takes ownership of its input and the thread's output is shared.
        function((**input.value()).clone(), context)
    });
    let answer = outcome_answer(&run.supervisor, no, id);
    let work = Box::pin(async move {
        answer.give(match future.await {
            Ok(value) => Outcome::Value(Arc::new(value)),
            Err(message) => Outcome::Failed(RunError::new(RunErrorCode::NodeFailed, message)),
        });
    });
    let label = label(no, machine, run, node, AwaitKind::Function);
    Some(in_flight(label, work, false, turn))
}

/// Calls host code that returns a future, and whether it waits for the outside world. A panic in it is the outcome of the call,
/// like a panic in the future: the node's error handling applies, and the actor is not affected.
pub(super) fn begun<T: Send + 'static>(
    begin: impl FnOnce() -> (BoxFuture<'static, T>, bool),
    panicked: impl FnOnce(String) -> T,
) -> (BoxFuture<'static, T>, bool) {
    catch_unwind(AssertUnwindSafe(begin)).unwrap_or_else(|panic| {
        let outcome = panicked(panic_message(panic));
        (Box::pin(ready(outcome)), false)
    })
}

/// Runs CODE, or a step of a SCRIPT node, which has a state.
fn script(
    no: ThreadNo,
    id: EffectId,
    node: NodeIx,
    input: Arc<Value>,
    state: Option<Arc<ScriptState>>,
    turn: &Turn<'_>,
) -> Option<InFlight> {
    let run = turn.run;
    let (machine, scope) = (turn.machine.live(no)?, turn.machine.scope(no)?);
    let code = match &machine.graph().node(node).kind {
        NodeKind::Script { code, .. } => *code,
        NodeKind::Orchestration(script) => script.code,
        _ => return None,
    };
    let answer = outcome_answer(&run.supervisor, no, id);
    let job = ScriptJob {
        graph: machine.graph(),
        code,
        input,
        scope: &scope,
        run_id: &run.run_id,
        seed: script_seed(no, id, node, turn),
        state,
    };
    let label = label(no, machine, run, node, AwaitKind::Script);
    let _node = run
        .spans
        .as_ref()
        .map(|spans| spans.node(label, turn.machine).entered());
    Some(InFlight::Work(run.host.on_other_thread(
        Some(label),
        |tell| run.ports().scripts.run(job, tell),
        move |end| answer.give(end.result.map_or_else(Outcome::Failed, Outcome::Value).after(end.logs)),
    )))
}

/// Evaluates texts on a script thread.
fn texts(no: ThreadNo, id: EffectId, node: NodeIx, what: Evaluation, turn: &Turn<'_>) -> Option<InFlight> {
    let run = turn.run;
    let (machine, scope) = (turn.machine.live(no)?, turn.machine.scope(no)?);
    let job = TextJob {
        run_id: Arc::clone(&run.run_id),
        // A snapshot, because other threads of the run continue during the evaluation.
        texts: Texts::of_node(machine.graph(), node, what, &scope),
    };
    let answer = outcome_answer(&run.supervisor, no, id);
    Some(InFlight::Work(run.host.on_other_thread(
        Some(label(no, machine, run, node, AwaitKind::Text)),
        |tell| run.ports().scripts.evaluate(job, tell),
        move |outcome| answer.give(outcome),
    )))
}

/// Returns the seed of a script's random numbers, derived from the seed of the run and the script's position in the run.
fn script_seed(no: ThreadNo, id: EffectId, node: NodeIx, turn: &Turn<'_>) -> Option<u64> {
    let seed = turn.run.script_seed()?;
    let node_id = &turn.machine.live(no)?.graph().node(node).id;
    let place = format!("{} {} {node_id} {id}", turn.run.run_id, lineage(turn.machine, no));
    Some(named_seed(seed, &place))
}

/// Returns the path from the main thread to another: the effects that started each thread, with path or workflow. Thread numbers
/// would depend on the order in which threads start.
fn lineage(machine: &RunMachine, thread: ThreadNo) -> String {
    let Some((origin, graph)) = machine.origin(thread) else {
        return String::new();
    };
    let (from, name) = match origin {
        Origin::Main => return graph.workflow_id.to_string(),
        // A triggered thread has no parent, so its number distinguishes it.
        Origin::Triggered { .. } => return format!("{} {thread}", graph.workflow_id),
        Origin::Called { parent, effect } => (Some((parent, effect)), None),
        Origin::Branch { fork, .. } | Origin::Item { fork, .. } => (machine.fork_parent(fork), origin.path_id(graph)),
    };
    let name = name.unwrap_or_else(|| Arc::clone(&graph.workflow_id));
    match from {
        Some((parent, effect)) => format!("{}/{effect} {name}", lineage(machine, parent)),
        None => format!("{thread} {name}"),
    }
}

/// Names an effect, for its idempotency key.
pub(super) fn effect_name(run: &RunContext, thread: ThreadNo, effect: EffectId) -> EffectName {
    let run_id = Arc::clone(&run.run_id);
    EffectName::Thread { run_id, thread, effect }
}

fn tools_of(machine: &ThreadMachine, node: NodeIx) -> Vec<Arc<str>> {
    match &machine.graph().node(node).kind {
        NodeKind::Llm(llm) => llm.tools.clone(),
        NodeKind::Tool { name, .. } => vec![Arc::clone(name)],
        NodeKind::Orchestration(script) => script.tools.clone(),
        // Other nodes call no tools.
        _ => Vec::new(),
    }
}

/// Starts work for a node.
pub(super) fn in_flight(
    label: Label<'_>,
    work: BoxFuture<'static, ()>,
    is_external: bool,
    turn: &Turn<'_>,
) -> InFlight {
    let run = turn.run;
    let work = match &run.spans {
        Some(spans) => spans.work(label, turn.machine, work),
        None => work,
    };
    InFlight::Work(if is_external {
        run.host.external(Some(label), work)
    } else {
        run.host.work(Some(label), work)
    })
}

/// Label of a host request that a thread makes at a node.
pub(super) fn label<'a>(
    thread: ThreadNo,
    machine: &'a ThreadMachine,
    run: &'a RunContext,
    node: NodeIx,
    awaits: AwaitKind,
) -> Label<'a> {
    Label {
        run: &run.run_id,
        thread,
        node: &machine.graph().node(node).id,
        awaits,
    }
}

fn answered(thread: ThreadNo, effect: EffectId, outcome: Outcome) -> Message {
    Message::Thread(thread, ToThread::Input(Input::Answer { effect, outcome }))
}

/// Offers answers to a question on a host that chooses what happens next. Otherwise a person answers through the run's caller.
fn answers(no: ThreadNo, id: EffectId, node: NodeIx, machine: &ThreadMachine, turn: &Turn<'_>) -> Vec<WorkHandle> {
    let question = || {
        let mut open = machine.interactions().into_iter();
        open.find_map(|(of, question)| (of == id).then_some(question))
    };
    let supervisor = Arc::clone(&turn.run.supervisor);
    let give = move |question: &Interaction, answer| {
        let answer = InteractionAnswer {
            id: question.id.clone(),
            answer: Arc::new(answer),
            by: None,
            // No caller waits for an explorer's answer.
            taken: Box::new(|_| ()),
        };
        supervisor.do_send(SupervisorMsg::AnswerInteraction(Box::new(answer)));
    };
    let label = label(no, machine, turn.run, node, AwaitKind::Answer);
    turn.run.host.offer_answers(label, question, give)
}

/// A slot for the result of an effect. If it is lost, the work panicked.
pub(super) fn outcome_answer(
    supervisor: &Arc<SupervisorHandle>,
    thread: ThreadNo,
    effect: EffectId,
) -> Answer<Outcome> {
    let supervisor = Arc::clone(supervisor);
    Answer::new(move |result| {
        let outcome =
            result.unwrap_or_else(|lost| Outcome::Failed(RunError::new(RunErrorCode::ActorPanicked, lost.to_string())));
        supervisor.do_send(SupervisorMsg::Tell(answered(thread, effect, outcome)));
    })
}
