//! Effects in doubt: effects that had started and have no outcome when a run is resumed.

use std::sync::Arc;

use pirn_actors::engine::EngineShared;
use pirn_actors::ports::{AskedCall, CallContext, Function, Input as FunctionInput, Ports};
use pirn_actors::rebuilt_run::RebuiltRun;
use pirn_core::run::{
    CallTarget, DoubtKind, Message, Resolution, ThreadNo, ToSupervisor, ToThread, TriggerCall, UnresolvedEffect,
};
use pirn_core::thread::{Effect, EffectId, Input, ModelReply, Outcome, ToolResult};
use pirn_definition::definition::InDoubt;
use pirn_definition::error::{RunError, RunErrorCode};
use pirn_definition::graph::{Node, NodeIx};
use pirn_definition::message::ToolCall;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::engine::durable::doubt_question::{AskDoubt, DoubtAnswer, DoubtQuestion};
use crate::engine::durable::resume_error::ResumeError;

/// Decides on the effects in doubt and returns the messages that a resumed run receives first. The decided effects are removed from
/// the open ones.
pub(in crate::engine::durable) async fn settle(
    shared: &Arc<EngineShared>,
    rebuilt: &mut RebuiltRun,
    ask: Option<&AskDoubt>,
) -> Result<Vec<Message>, ResumeError> {
    let run_id = Arc::clone(rebuilt.machine.run_id());
    let (mut doubts, mut answers) = (Vec::new(), Vec::new());
    let mut settled: Vec<(ThreadNo, EffectId)> = Vec::new();
    for ((thread, id), (_, effect)) in &rebuilt.open.threads {
        let (Some(kind), Some(node)) = (DoubtKind::of(effect), node_of(effect)) else {
            // Waits and evaluations have no effect outside of the process, so they are repeated without a decision.
            continue;
        };
        // No process has started this effect: it follows from an input that arrived while the run had no owner.
        if rebuilt.not_begun.contains(&(*thread, *id)) {
            continue;
        }
        // A thread that has ended takes no outcome any more.
        let Some(machine) = rebuilt.machine.live(*thread) else {
            continue;
        };
        let node = machine.graph().node(node);
        let of = InDoubtOf {
            thread: *thread,
            effect: *id,
            // Only a later attempt has a key that differs from its own number, and the record stays small without it.
            key: key_of(effect).filter(|key| key != id),
            node_id: Arc::clone(&node.id),
            kind,
            policy: policy(shared.ports(), node, kind, effect),
            asked: asked(effect),
        };
        let (doubt, answer) = of.decide(shared, &run_id, ask).await?;
        let outcome = match answer {
            DoubtAnswer::Repeat => None,
            DoubtAnswer::Done(result) => Some(done(kind, result)),
            DoubtAnswer::Fail => Some(failed(kind, &doubt.key(&run_id))),
        };
        doubts.push(doubt);
        if let Some(outcome) = outcome {
            settled.push((*thread, *id));
            let answer = Input::Answer { effect: *id, outcome };
            answers.push(Message::Thread(*thread, ToThread::Input(answer)));
        }
    }
    // This follows the loop, because the loop borrows the open effects.
    for effect in settled {
        rebuilt.open.threads.remove(&effect);
    }
    // A clone, because each decision removes its call from the map that is traversed.
    for (call, what) in rebuilt.open.calls.clone() {
        let of = InDoubtOf {
            // The thread is only for the report. An event of a thread that is unknown here counts for the main thread.
            thread: rebuilt.machine.thread_of(&what.event.thread_id).unwrap_or_default(),
            effect: call,
            key: None,
            node_id: Arc::clone(&what.trigger_id),
            kind: DoubtKind::Trigger,
            policy: what.in_doubt.clone(),
            asked: asked_by_trigger(&what),
        };
        let (doubt, answer) = of.decide(shared, &run_id, ask).await?;
        let error = match answer {
            DoubtAnswer::Repeat => {
                doubts.push(doubt);
                continue;
            }
            // A trigger's call has no result that the run could use.
            DoubtAnswer::Done(_) => None,
            DoubtAnswer::Fail => Some(not_again(&doubt.key(&run_id))),
        };
        doubts.push(doubt);
        rebuilt.open.calls.remove(&call);
        answers.push(Message::Supervisor(ToSupervisor::TriggerCalled { call, error }));
    }
    let mut inputs = Vec::with_capacity(answers.len() + 1);
    // Sent even if no effect is in doubt: from here on, effects of the inputs that arrived while the run had no owner may have
    // started.
    if !doubts.is_empty() || rebuilt.is_uncarried {
        inputs.push(Message::Supervisor(ToSupervisor::Recovered(doubts)));
    }
    // The answers must follow `Recovered`, which reports the decisions that they result from.
    inputs.extend(answers);
    Ok(inputs)
}

/// Returns the messages that end the trigger calls of a cancelled run: no open effect is performed.
pub(in crate::engine::durable) fn give_up_calls(rebuilt: &mut RebuiltRun, reason: &str) -> Vec<Message> {
    // Taken, so that the resumed run does not perform them.
    let calls = std::mem::take(&mut rebuilt.open.calls);
    let given_up = calls.into_keys().map(|call| {
        let error = Some(RunError::new(RunErrorCode::Cancelled, reason));
        Message::Supervisor(ToSupervisor::TriggerCalled { call, error })
    });
    given_up.collect()
}

/// An undecided effect in doubt.
struct InDoubtOf {
    thread: ThreadNo,
    effect: EffectId,
    key: Option<EffectId>,
    node_id: Arc<str>,
    kind: DoubtKind,
    policy: InDoubt,
    asked: Value,
}

impl InDoubtOf {
    async fn decide(
        self,
        shared: &Arc<EngineShared>,
        run_id: &Arc<str>,
        ask: Option<&AskDoubt>,
    ) -> Result<(UnresolvedEffect, DoubtAnswer), ResumeError> {
        let mut doubt = UnresolvedEffect {
            thread: self.thread,
            effect: self.effect,
            key: self.key,
            node_id: self.node_id,
            kind: self.kind,
            policy: self.policy,
            // A placeholder: the key of the question is computed from the doubt before the decision is known.
            resolution: Resolution::Repeated,
        };
        let question = DoubtQuestion {
            run_id: Arc::clone(run_id),
            effect_id: doubt.key(run_id),
            node_id: Arc::clone(&doubt.node_id),
            kind: doubt.kind,
            asked: self.asked,
        };
        let answer = match &doubt.policy {
            InDoubt::Retry | InDoubt::Keyed => DoubtAnswer::Repeat,
            InDoubt::Fail => DoubtAnswer::Fail,
            InDoubt::Reconcile(name) => reconcile(shared, name, &question).await?,
            InDoubt::Ask => match ask {
                Some(ask) => ask(question).await,
                // An error and not a default, because `"ask"` requires the decision of a person.
                None => return Err(ResumeError::Undecided(Box::new(question))),
            },
        };
        doubt.resolution = match &answer {
            DoubtAnswer::Repeat => Resolution::Repeated,
            DoubtAnswer::Done(_) => Resolution::Done,
            DoubtAnswer::Fail => Resolution::Failed,
        };
        Ok((doubt, answer))
    }
}

/// Returns the effect identified by the call's idempotency key.
fn key_of(effect: &Effect) -> Option<EffectId> {
    match effect {
        Effect::Model { key, .. }
        | Effect::Tool { key, .. }
        | Effect::Function { key, .. }
        | Effect::Script { key, .. } => Some(*key),
        _ => None,
    }
}

fn node_of(effect: &Effect) -> Option<NodeIx> {
    match effect {
        Effect::Model { node, .. }
        | Effect::Tool { node, .. }
        | Effect::Function { node, .. }
        | Effect::Script { node, .. } => Some(*node),
        _ => None,
    }
}

/// Returns the policy of an effect; a tool's setting takes precedence over its node's.
fn policy(ports: &Ports, node: &Node, kind: DoubtKind, effect: &Effect) -> InDoubt {
    let of_tool = match effect {
        Effect::Tool { call, is_consented, .. } => ports.tools.in_doubt(&call.name, *is_consented),
        _ => None,
    };
    of_tool.or_else(|| node.in_doubt.clone()).unwrap_or(match kind {
        // A model request and a script change nothing outside of the run, so repeating them only costs time and tokens.
        DoubtKind::Model | DoubtKind::Code => InDoubt::Retry,
        // These may have an effect outside, so the receiver gets the key of the first call to recognise the repetition.
        DoubtKind::Tool | DoubtKind::Function | DoubtKind::Trigger => InDoubt::Keyed,
    })
}

fn asked(effect: &Effect) -> Value {
    match effect {
        Effect::Tool { call, .. } => json!({ "name": call.name, "arguments": call.arguments }),
        Effect::Function { input, .. } => (**input.value()).clone(),
        Effect::Script { input, .. } => (**input).clone(),
        // A model's request contains the whole history, which is too much for a question to a person.
        _ => Value::Null,
    }
}

fn asked_by_trigger(call: &TriggerCall) -> Value {
    match &call.target {
        CallTarget::Function { name, parameters } => {
            json!({"name": name, "event": call.event.to_json(), "parameters": parameters})
        }
        CallTarget::Notification { message, channel } => json!({"message": message, "channel": channel}),
    }
}

/// Reply of a reconciling tool or function: `{"done": false}`, or `{"done": true, "result": ...}`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Said {
    done: bool,
    #[serde(default)]
    result: Value,
}

/// Calls the function or tool of this name, which reports the outcome of an effect.
async fn reconcile(shared: &EngineShared, name: &str, question: &DoubtQuestion) -> Result<DoubtAnswer, ResumeError> {
    let ports = shared.ports();
    let failed = |why: String| ResumeError::NotReconciled {
        effect_id: question.effect_id.clone(),
        name: name.to_owned(),
        why,
    };
    let given = json!({
        "key": question.effect_id,
        "nodeId": question.node_id,
        "kind": question.kind,
        "asked": question.asked,
    });
    let said = match ports.functions.get(name) {
        // Functions take precedence over tools of the same name.
        Some(Function::Inline(function)) => function(&FunctionInput::from(&given)).map_err(failed)?,
        Some(Function::Work(function)) => {
            let function = Arc::clone(function);
            // The call belongs to no node, so it has no run, thread or metadata.
            let called = shared.work(move |_| function(given, CallContext::default()));
            let called = called.map_err(|error| failed(error.to_string()))?;
            let result = called.wait().await.map_err(|lost| failed(lost.to_string()))?;
            result.map_err(failed)?
        }
        None => {
            let call = ToolCall {
                id: question.effect_id.clone(),
                name: name.to_owned(),
                arguments: given,
            };
            let (tools, names) = (Arc::clone(&ports.tools), [Arc::from(name)]);
            let called = shared.work(move |clock| tools.call(&names, AskedCall::from(call), clock));
            let called = called.map_err(|error| failed(error.to_string()))?;
            // A reconciling tool cannot ask a person for consent: the run that would raise the question is not resumed yet.
            let result = called.wait().await.map_err(|lost| failed(lost.to_string()))?.unasked();
            if result.failed {
                return Err(failed(result.content));
            }
            serde_json::from_str(&result.content).map_err(|error| failed(error.to_string()))?
        }
    };
    // Strict: an unreadable reply must not count as "not done", which would repeat the effect.
    let said = Said::deserialize(said).map_err(|error| failed(error.to_string()))?;
    Ok(if said.done {
        DoubtAnswer::Done(said.result)
    } else {
        DoubtAnswer::Repeat
    })
}

/// Converts a result to the effect's outcome.
fn done(kind: DoubtKind, result: Value) -> Outcome {
    let text = |result: Value| match result {
        Value::String(text) => text,
        other => other.to_string(),
    };
    match kind {
        DoubtKind::Model => Outcome::Reply(Box::new(ModelReply {
            content: text(result),
            ..ModelReply::default()
        })),
        DoubtKind::Tool => Outcome::Tool(Box::new(ToolResult {
            content: text(result),
            ..ToolResult::default()
        })),
        DoubtKind::Function | DoubtKind::Code | DoubtKind::Trigger => Outcome::Value(Arc::new(result)),
    }
}

/// Returns the outcome of an effect that is not repeated. For a tool call, the model receives the information that the call is in
/// doubt.
fn failed(kind: DoubtKind, effect_id: &str) -> Outcome {
    let error = not_again(effect_id);
    match kind {
        // A failed result and not a failed node, because the model can still react to it.
        DoubtKind::Tool => Outcome::Tool(Box::new(ToolResult::failed(error.message.clone()))),
        DoubtKind::Model | DoubtKind::Function | DoubtKind::Code | DoubtKind::Trigger => Outcome::Failed(error),
    }
}

fn not_again(effect_id: &str) -> RunError {
    let message = format!("{effect_id} was in progress when the process ended, and is not repeated");
    RunError::new(RunErrorCode::EffectInDoubt, message)
}
