//! CODE: JavaScript, or a registered function.

use std::sync::Arc;

use pirn_definition::event_type::EventType;
use pirn_definition::graph::{NodeKind, ValueSpec};
use pirn_definition::value::Output;
use pirn_events::event::Field;
use serde_json::json;

use crate::thread::context::{Progress, StepContext, done, evaluate, failure, value_or};
use crate::thread::data::effect::{Effect, EffectId, Evaluation, Outcome, ScriptLogs};
use crate::thread::data::stages::{CodeStage, NodeRun};

pub(super) fn enter(cx: &mut StepContext<'_>, input: Option<&ValueSpec>) -> Progress {
    match input {
        // Three inputs need no evaluation: each saves an effect and its answer.
        None => work(cx, Arc::clone(&cx.thread.input).into()),
        Some(ValueSpec::Literal(value)) => work(cx, Arc::clone(value).into()),
        Some(spec) if is_last_output(cx, spec) => work(cx, cx.thread.last.clone()),
        Some(_) => {
            let id = evaluate(cx, Evaluation::Input);
            Progress::Wait(NodeRun::Code(CodeStage::Input { id }))
        }
    }
}

/// Returns true if the input is exactly the last output. It is then passed on without being evaluated or copied.
fn is_last_output(cx: &StepContext<'_>, spec: &ValueSpec) -> bool {
    let ValueSpec::Expression(text) = spec else {
        return false;
    };
    // Compared as text: the snippet need not be compiled for this.
    let name = &*cx.thread.graph().snippet(*text).source;
    // A variable of this name would take precedence.
    matches!(name, "output" | "result") && !cx.environment.has_globals && cx.thread.variables.value(name).is_none()
}

pub(super) fn answer(cx: &mut StepContext<'_>, stage: CodeStage, effect: EffectId, outcome: Outcome) -> Progress {
    if stage.id() != effect {
        return Progress::Wait(NodeRun::Code(stage));
    }
    match (stage, outcome) {
        (CodeStage::Input { .. }, Outcome::Value(input)) => work(cx, input.into()),
        // The lines are raised before the node completes or fails, so that they precede its last event.
        (CodeStage::Work { .. }, Outcome::Logged(logged)) => {
            emit_logs(cx, &logged.logs);
            value_or(logged.outcome, done)
        }
        // `done` checks the limits of the value, because a function of the host may return any.
        (CodeStage::Work { .. }, outcome) => value_or(outcome, done),
        (CodeStage::Input { .. }, other) => Progress::Failed(failure(other)),
    }
}

/// Raises an event for each retained log line, and one with the number of dropped lines.
fn emit_logs(cx: &mut StepContext<'_>, logs: &ScriptLogs) {
    // Cloned, because `emit` borrows the thread mutably.
    let graph = Arc::clone(cx.thread.graph());
    let node = &graph.node(cx.thread.at).id;
    for (level, line) in &logs.lines {
        cx.emit(EventType::ScriptLog, |_| {
            [
                ("nodeId", Field::from(node)),
                ("level", level.into()),
                ("message", json!(line).into()),
            ]
        });
    }
    // One event for all dropped lines: a script that logs in a loop must not fill the event backlog.
    if logs.dropped > 0 {
        cx.emit(EventType::ScriptLog, |_| {
            let message = format!("{} more lines are left out", logs.dropped);
            [
                ("nodeId", Field::from(node)),
                ("level", "warn".into()),
                ("message", json!(message).into()),
                ("dropped", json!(logs.dropped).into()),
            ]
        });
    }
}

fn work(cx: &mut StepContext<'_>, input: Output) -> Progress {
    // Retries share the key, so that a function with effects outside can recognize the repeated call.
    let (id, key) = cx.next_call();
    let node = cx.thread.at;
    cx.out.push(match cx.thread.graph().node(node).kind {
        NodeKind::Script { .. } => {
            // A script reads JSON. A function receives the output unread, which may then never be built.
            let input = Arc::clone(input.value());
            Effect::Script { id, key, node, input }
        }
        _ => Effect::Function { id, key, node, input },
    });
    Progress::Wait(NodeRun::Code(CodeStage::Work { id }))
}
