//! TOOL: one tool call, without a model.

use std::sync::Arc;

use pirn_definition::definition::VariableScope;
use pirn_definition::error::{RunError, RunErrorCode};
use pirn_definition::event_type::EventType;
use pirn_definition::graph::{NodeKind, ValueSpec};
use pirn_definition::message::ToolCall;
use serde_json::{Value, json};

use super::questions::consent::ConsentOutcome;
use crate::thread::context::{Progress, StepContext, done, evaluate, failure};
use crate::thread::data::effect::{Effect, EffectId, Evaluation, Outcome, ToolResult};
use crate::thread::data::question::{Consent, Interaction};
use crate::thread::data::stages::{CallUnderConsent, NodeRun, ToolStage};
use crate::thread::machine::ThreadMachine;

impl ToolStage {
    /// Returns the open question, with the effect that awaits its answer.
    pub(super) fn interaction(&self, thread: &ThreadMachine) -> Option<(EffectId, Interaction)> {
        match self {
            Self::Consent(under) => under.consent.interaction(thread),
            Self::Arguments { .. } | Self::Call { .. } => None,
        }
    }
}

/// Cancels the active effects of the node.
pub(super) fn abandon(cx: &mut StepContext<'_>, stage: &ToolStage) {
    match stage {
        ToolStage::Arguments { id } | ToolStage::Call { id } => cx.out.push(Effect::Drop { id: *id }),
        ToolStage::Consent(under) => under.consent.abandon(cx),
    }
}

pub(super) fn enter(cx: &mut StepContext<'_>, arguments: &ValueSpec) -> Progress {
    // A literal needs no evaluation, which would be one more effect.
    if let ValueSpec::Literal(arguments) = arguments {
        return call(cx, Arc::clone(arguments));
    }
    let id = evaluate(cx, Evaluation::Input);
    Progress::Wait(NodeRun::Tool(ToolStage::Arguments { id }))
}

pub(super) fn answer(cx: &mut StepContext<'_>, stage: ToolStage, effect: EffectId, outcome: Outcome) -> Progress {
    if !stage.awaits(effect) {
        return Progress::Wait(NodeRun::Tool(stage));
    }
    match (stage, outcome) {
        (ToolStage::Arguments { .. }, Outcome::Value(arguments)) => call(cx, arguments),
        (ToolStage::Call { id }, Outcome::Tool(result)) => answered(cx, id, &result),
        // The tool was not called, so that nothing has to be undone if the person refuses.
        (ToolStage::Call { id }, Outcome::NeedsConsent(request)) => {
            let consent = Consent::ask(cx, name_of(cx), call_id(id), *request);
            under_consent(CallUnderConsent { id, consent })
        }
        (ToolStage::Consent(under), outcome) => {
            let CallUnderConsent { id, consent } = *under;
            // `call` has set the key. The approved call is the same call, so that it has the same key.
            let key = cx.thread.first_call.unwrap_or(id);
            match consent.answer(cx, key, effect, outcome) {
                ConsentOutcome::Waits(consent) => under_consent(CallUnderConsent { id, consent }),
                // No model reads the result, so that the changed arguments are not reported in it.
                ConsentOutcome::Ended(result, _) => answered(cx, id, &result),
            }
        }
        // Errors of the arguments' expression and of the host.
        (_, other) => Progress::Failed(failure(other)),
    }
}

fn call(cx: &mut StepContext<'_>, arguments: Arc<Value>) -> Progress {
    let graph = Arc::clone(cx.thread.graph());
    let node = cx.thread.at;
    let NodeKind::Tool { name, .. } = &graph.node(node).kind else {
        return Progress::Failed(failure(Outcome::Done));
    };
    // Retries share the key, so that a tool with effects outside can recognize the repeated call.
    let (id, key) = cx.next_call();
    let call = ToolCall {
        // No model made this call. The effect's number is unique in the thread.
        id: call_id(id),
        name: name.to_string(),
        // Copies only a literal, which the graph shares.
        arguments: Arc::unwrap_or_clone(arguments),
    };
    // Before the effect: the event must precede the one with the result.
    cx.emit(EventType::ToolCallStarted, |_| {
        [
            ("nodeId", json!(graph.node(node).id)),
            ("toolCallId", json!(call.id)),
            ("name", json!(call.name)),
            ("arguments", call.arguments.clone()),
        ]
    });
    cx.out.push(Effect::Tool {
        id,
        key,
        node,
        call,
        is_consented: false,
    });
    Progress::Wait(NodeRun::Tool(ToolStage::Call { id }))
}

fn under_consent(under: CallUnderConsent) -> Progress {
    Progress::Wait(NodeRun::Tool(ToolStage::Consent(Box::new(under))))
}

fn name_of(cx: &StepContext<'_>) -> String {
    match &cx.thread.graph().node(cx.thread.at).kind {
        NodeKind::Tool { name, .. } => name.to_string(),
        // The stage belongs to a TOOL node, so that this does not occur.
        _ => String::new(),
    }
}

fn call_id(id: EffectId) -> String {
    format!("call-{id}")
}

fn answered(cx: &mut StepContext<'_>, id: EffectId, result: &ToolResult) -> Progress {
    let graph = Arc::clone(cx.thread.graph());
    let node = graph.node(cx.thread.at);
    let NodeKind::Tool { name, assign_to, .. } = &node.kind else {
        return Progress::Failed(failure(Outcome::Done));
    };
    // Also for a failed tool: its model calls were made.
    cx.spend(result.spent.as_deref().copied().unwrap_or_default());
    let event_type = if result.failed {
        EventType::ToolCallFailed
    } else {
        EventType::ToolCallCompleted
    };
    cx.emit(event_type, |_| {
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
        match cx.thread.variables.assign(variable, Arc::clone(&value), false) {
            Ok(value) => cx.variable_changed(variable, &value, VariableScope::Thread, 0),
            Err(error) => return Progress::Failed(error),
        }
    }
    done(value.into())
}

/// Parses a result: a JSON list or object becomes that value, other text a string.
pub(super) fn value_of(content: &str) -> Value {
    match serde_json::from_str(content) {
        Ok(value @ (Value::Array(_) | Value::Object(_))) => value,
        // A bare number or word stays text: `7` and `true` may be meant as text.
        Ok(_) | Err(_) => Value::from(content),
    }
}
