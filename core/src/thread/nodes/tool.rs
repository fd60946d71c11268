//! TOOL: one tool call, without a model.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::consent::{Consent, Consented};
use super::question::Interaction;
use super::{NodeRun, Progress, done, evaluate, failure};
use crate::definition::VariableScope;
use crate::error::{RunError, RunErrorCode};
use crate::event::EventType;
use crate::graph::{NodeKind, ValueSpec};
use crate::message::ToolCall;
use crate::thread::ThreadMachine;
use crate::thread::effect::{Effect, EffectId, Evaluation, Outcome, ToolResult};
use crate::thread::step::StepContext;

/// Stage of the node, named after the answer that it awaits.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::thread) enum ToolStage {
    /// Arguments of the call.
    Arguments { id: EffectId },
    /// Result of the tool.
    Call { id: EffectId },
    /// Approval by a person, or the result of the approved call.
    Consent(Box<UnderConsent>),
}

/// A call that needs a person's approval.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::thread) struct UnderConsent {
    /// Effect whose number identifies the call.
    id: EffectId,
    consent: Consent,
}

impl ToolStage {
    fn awaits(&self, effect: EffectId) -> bool {
        match self {
            Self::Arguments { id } | Self::Call { id } => *id == effect,
            // A call under consent has several effects: the question, its timer, then the approved call.
            Self::Consent(under) => under.consent.awaits(effect),
        }
    }

    /// Returns the open question, with the effect that awaits its answer.
    pub(super) fn interaction(&self, thread: &ThreadMachine) -> Option<(EffectId, Interaction)> {
        match self {
            Self::Consent(under) => under.consent.interaction(thread),
            Self::Arguments { .. } | Self::Call { .. } => None,
        }
    }
}

/// Cancels the active effects of the node.
pub(super) fn abandon(walk: &mut StepContext<'_>, stage: &ToolStage) {
    match stage {
        ToolStage::Arguments { id } | ToolStage::Call { id } => walk.out.push(Effect::Drop { id: *id }),
        ToolStage::Consent(under) => under.consent.abandon(walk),
    }
}

pub(super) fn enter(walk: &mut StepContext<'_>, arguments: &ValueSpec) -> Progress {
    // Saves an evaluation.
    if let ValueSpec::Literal(arguments) = arguments {
        return call(walk, Arc::clone(arguments));
    }
    let id = evaluate(walk, Evaluation::Input);
    Progress::Wait(NodeRun::Tool(ToolStage::Arguments { id }))
}

pub(super) fn answer(walk: &mut StepContext<'_>, stage: ToolStage, effect: EffectId, outcome: Outcome) -> Progress {
    if !stage.awaits(effect) {
        return Progress::Wait(NodeRun::Tool(stage));
    }
    match (stage, outcome) {
        (ToolStage::Arguments { .. }, Outcome::Value(arguments)) => call(walk, arguments),
        (ToolStage::Call { id }, Outcome::Tool(result)) => answered(walk, id, &result),
        // The tool was not called, so that nothing has to be undone if the person refuses.
        (ToolStage::Call { id }, Outcome::NeedsConsent(request)) => {
            let consent = Consent::ask(walk, name_of(walk), call_id(id), *request);
            under_consent(UnderConsent { id, consent })
        }
        (ToolStage::Consent(under), outcome) => {
            let UnderConsent { id, consent } = *under;
            // `call` has set the key. The approved call is the same call, so that it has the same key.
            let key = walk.thread.first_call.unwrap_or(id);
            match consent.answer(walk, key, effect, outcome) {
                Consented::Waits(consent) => under_consent(UnderConsent { id, consent }),
                // No model reads the result, so that the changed arguments are not reported in it.
                Consented::Ended(result, _) => answered(walk, id, &result),
            }
        }
        // Errors of the arguments' expression and of the host.
        (_, other) => Progress::Failed(failure(other)),
    }
}

fn call(walk: &mut StepContext<'_>, arguments: Arc<Value>) -> Progress {
    let graph = Arc::clone(walk.thread.graph());
    let node = walk.thread.at;
    let NodeKind::Tool { name, .. } = &graph.node(node).kind else {
        return Progress::Failed(failure(Outcome::Done));
    };
    // Retries share the key, so that a tool with effects outside can recognize the repeated call.
    let (id, key) = walk.next_call();
    let call = ToolCall {
        // No model made this call. The effect's number is unique in the thread.
        id: call_id(id),
        name: name.to_string(),
        // Copies only a literal, which the graph shares.
        arguments: Arc::unwrap_or_clone(arguments),
    };
    // Before the effect: the event must precede the one with the result.
    walk.emit(EventType::ToolCallStarted, |_| {
        [
            ("nodeId", json!(graph.node(node).id)),
            ("toolCallId", json!(call.id)),
            ("name", json!(call.name)),
            ("arguments", call.arguments.clone()),
        ]
    });
    walk.out.push(Effect::Tool {
        id,
        key,
        node,
        call,
        is_consented: false,
    });
    Progress::Wait(NodeRun::Tool(ToolStage::Call { id }))
}

fn under_consent(under: UnderConsent) -> Progress {
    Progress::Wait(NodeRun::Tool(ToolStage::Consent(Box::new(under))))
}

fn name_of(walk: &StepContext<'_>) -> String {
    match &walk.thread.graph().node(walk.thread.at).kind {
        NodeKind::Tool { name, .. } => name.to_string(),
        // The stage belongs to a TOOL node, so that this does not occur.
        _ => String::new(),
    }
}

fn call_id(id: EffectId) -> String {
    format!("call-{id}")
}

fn answered(walk: &mut StepContext<'_>, id: EffectId, result: &ToolResult) -> Progress {
    let graph = Arc::clone(walk.thread.graph());
    let node = graph.node(walk.thread.at);
    let NodeKind::Tool { name, assign_to, .. } = &node.kind else {
        return Progress::Failed(failure(Outcome::Done));
    };
    // Also for a failed tool: its model calls were made.
    walk.spend(result.spent.as_deref().copied().unwrap_or_default());
    let event_type = if result.failed {
        EventType::ToolCallFailed
    } else {
        EventType::ToolCallCompleted
    };
    walk.emit(event_type, |_| {
        [
            ("nodeId", json!(node.id)),
            ("toolCallId", json!(call_id(id))),
            ("name", json!(name)),
            ("result", json!(result.content)),
        ]
    });
    // Without a model that could react, the failure is one of the node: `retry` and `onError` apply.
    if result.failed {
        let message = format!("the tool {name} failed: {}", result.content);
        return Progress::Failed(RunError::new(RunErrorCode::ToolError, message));
    }
    let value = Arc::new(value_of(&result.content));
    if let Some(variable) = assign_to {
        // Before the node completes: its edges read the variable.
        match walk.thread.variables.assign(variable, Arc::clone(&value), false) {
            Ok(value) => walk.variable_changed(variable, &value, VariableScope::Thread, 0),
            Err(error) => return Progress::Failed(error),
        }
    }
    done(value.into())
}

/// Parses a result: a JSON list or object becomes that value, other text a string.
fn value_of(content: &str) -> Value {
    match serde_json::from_str(content) {
        Ok(value @ (Value::Array(_) | Value::Object(_))) => value,
        // A bare number or word stays text: `7` and `true` may be meant as text.
        Ok(_) | Err(_) => Value::from(content),
    }
}
