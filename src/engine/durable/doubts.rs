//! Effects in doubt: begun, and without an outcome when a run goes on.

use std::sync::Arc;

use futures::future::BoxFuture;
use pirn_actors::engine::EngineShared;
use pirn_actors::ports::{AskedCall, CallContext, Function, Input as FunctionInput, Ports};
use pirn_actors::rebuilt::Rebuilt;
use pirn_core::definition::InDoubt;
use pirn_core::error::{RunError, RunErrorCode};
use pirn_core::graph::{Node, NodeIx};
use pirn_core::message::ToolCall;
use pirn_core::run::{Doubt, DoubtKind, Message, Resolution, ThreadNo, ToSupervisor, ToThread, effect_key};
use pirn_core::thread::{Effect, EffectId, Input, ModelReply, Outcome, ToolResult};
use serde::Deserialize;
use serde_json::{Value, json};

use super::resume::ResumeError;

/// An effect in doubt that a person is to decide.
#[derive(Clone, Debug, PartialEq)]
pub struct DoubtQuestion {
    /// Its run.
    pub run_id: Arc<str>,
    /// Its idempotency key.
    pub effect_id: String,
    /// Its node.
    pub node_id: Arc<str>,
    /// Its kind.
    pub kind: DoubtKind,
    /// The request: the tool's name and arguments, the function's input; null for a model.
    pub asked: Value,
}

/// A person's answer about an effect in doubt.
#[derive(Clone, Debug, PartialEq)]
pub enum DoubtAnswer {
    /// It was not done, or doing it again does no harm.
    Repeat,
    /// It was done, with this result.
    Done(Value),
    /// It counts as failed.
    Fail,
}

/// Asks a person.
pub(crate) type AskDoubt = Arc<dyn Fn(DoubtQuestion) -> BoxFuture<'static, DoubtAnswer> + Send + Sync>;

/// The messages for a run before it goes on. The effects that are answered by them are not open any more.
pub(super) async fn settle(
    shared: &Arc<EngineShared>,
    rebuilt: &mut Rebuilt,
    ask: Option<&AskDoubt>,
) -> Result<Vec<Message>, ResumeError> {
    let run_id = Arc::clone(rebuilt.machine.run_id());
    let (mut doubts, mut answers) = (Vec::new(), Vec::new());
    let mut settled: Vec<(ThreadNo, EffectId)> = Vec::new();
    for ((thread, id), (_, effect)) in &rebuilt.open.threads {
        let (Some(kind), Some(node)) = (DoubtKind::of(effect), node_of(effect)) else {
            continue;
        };
        if rebuilt.not_begun.contains(&(*thread, *id)) {
            continue;
        }
        let Some(machine) = rebuilt.machine.live(*thread) else {
            continue;
        };
        let node = machine.graph().node(node);
        let policy = policy(shared.ports(), node, kind, effect);
        let question = DoubtQuestion {
            run_id: Arc::clone(&run_id),
            effect_id: effect_key(&run_id, *thread, *id),
            node_id: Arc::clone(&node.id),
            kind,
            asked: asked(effect),
        };
        let answer = match &policy {
            InDoubt::Retry | InDoubt::Keyed => DoubtAnswer::Repeat,
            InDoubt::Fail => DoubtAnswer::Fail,
            InDoubt::Reconcile(name) => reconcile(shared, name, &question).await?,
            InDoubt::Ask => match ask {
                Some(ask) => ask(question.clone()).await,
                None => return Err(ResumeError::Undecided(Box::new(question))),
            },
        };
        let (resolution, outcome) = match answer {
            DoubtAnswer::Repeat => (Resolution::Repeated, None),
            DoubtAnswer::Done(result) => (Resolution::Done, Some(done(kind, result))),
            DoubtAnswer::Fail => (Resolution::Failed, Some(failed(kind, &question.effect_id))),
        };
        doubts.push(Doubt {
            thread: *thread,
            effect: *id,
            node_id: question.node_id,
            kind,
            policy,
            resolution,
        });
        if let Some(outcome) = outcome {
            settled.push((*thread, *id));
            let answer = Input::Answer { effect: *id, outcome };
            answers.push(Message::Thread(*thread, ToThread::Input(answer)));
        }
    }
    for effect in settled {
        rebuilt.open.threads.remove(&effect);
    }
    let mut told = Vec::with_capacity(answers.len() + 1);
    // Also without a doubt: from here on what the run was told meanwhile may have begun.
    if !doubts.is_empty() || rebuilt.is_uncarried {
        told.push(Message::Supervisor(ToSupervisor::Recovered(doubts)));
    }
    told.extend(answers);
    Ok(told)
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

/// A tool's own word counts before its node's.
fn policy(ports: &Ports, node: &Node, kind: DoubtKind, effect: &Effect) -> InDoubt {
    let of_tool = match effect {
        Effect::Tool { call, .. } => ports.tools.in_doubt(&call.name),
        _ => None,
    };
    of_tool.or_else(|| node.in_doubt.clone()).unwrap_or(match kind {
        DoubtKind::Model | DoubtKind::Code => InDoubt::Retry,
        DoubtKind::Tool | DoubtKind::Function => InDoubt::Keyed,
    })
}

fn asked(effect: &Effect) -> Value {
    match effect {
        Effect::Tool { call, .. } => json!({ "name": call.name, "arguments": call.arguments }),
        Effect::Function { input, .. } => (**input.value()).clone(),
        Effect::Script { input, .. } => (**input).clone(),
        _ => Value::Null,
    }
}

/// The answer about an effect: `{"done": false}`, or `{"done": true, "result": ...}`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Said {
    done: bool,
    #[serde(default)]
    result: Value,
}

/// Asks a function or tool of this name what came of an effect.
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
        Some(Function::Inline(function)) => function(&FunctionInput::from(&given)).map_err(failed)?,
        Some(Function::Work(function)) => {
            let function = Arc::clone(function);
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
            let result = called.wait().await.map_err(|lost| failed(lost.to_string()))?;
            if result.failed {
                return Err(failed(result.content));
            }
            serde_json::from_str(&result.content).map_err(|error| failed(error.to_string()))?
        }
    };
    let said = Said::deserialize(said).map_err(|error| failed(error.to_string()))?;
    Ok(if said.done {
        DoubtAnswer::Done(said.result)
    } else {
        DoubtAnswer::Repeat
    })
}

/// A result as the effect's outcome.
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
        DoubtKind::Tool => Outcome::Tool(ToolResult {
            content: text(result),
            ..ToolResult::default()
        }),
        DoubtKind::Function | DoubtKind::Code => Outcome::Value(Arc::new(result)),
    }
}

/// A model hears of a tool that its call is in doubt.
fn failed(kind: DoubtKind, effect_id: &str) -> Outcome {
    let message = format!("{effect_id} had begun when the process ended, and is not done again");
    match kind {
        DoubtKind::Tool => Outcome::Tool(ToolResult {
            content: message,
            failed: true,
            ..ToolResult::default()
        }),
        DoubtKind::Model | DoubtKind::Function | DoubtKind::Code => {
            Outcome::Failed(RunError::new(RunErrorCode::EffectInDoubt, message))
        }
    }
}
