//! VARIABLE: evaluates and assigns a variable.

use std::sync::Arc;

use pirn_definition::definition::VariableScope;
use pirn_definition::graph::{NodeKind, SnippetIx};
use serde_json::Value;

use crate::thread::context::{Progress, StepContext, evaluate, failure};
use crate::thread::data::effect::{Effect, EffectId, Evaluation, Outcome};
use crate::thread::data::stages::{NodeRun, VariableStage};
use crate::thread::data::state::coerce;

pub(super) fn enter(cx: &mut StepContext<'_>, expression: SnippetIx) -> Progress {
    let id = evaluate(cx, Evaluation::Value(expression));
    Progress::Wait(NodeRun::Variable(VariableStage::Value { id }))
}

pub(super) fn answer(cx: &mut StepContext<'_>, stage: VariableStage, effect: EffectId, outcome: Outcome) -> Progress {
    if stage.id() != effect {
        return Progress::Wait(NodeRun::Variable(stage));
    }
    match (stage, outcome) {
        (VariableStage::Value { .. }, Outcome::Value(value)) => assign(cx, value),
        // The run returns the stored value, which the type of the variable may have converted.
        (VariableStage::Global { .. }, Outcome::Value(value)) => {
            let graph = Arc::clone(cx.thread.graph());
            if let NodeKind::Variable { name, scope, .. } = &graph.node(cx.thread.at).kind {
                // Raised here and not by the run, so that the event is ordered among the thread's other events.
                cx.variable_changed(name, &value, *scope, 0);
            }
            Progress::Done(value.into())
        }
        (_, other) => Progress::Failed(failure(other)),
    }
}

fn assign(cx: &mut StepContext<'_>, value: Arc<Value>) -> Progress {
    let graph = Arc::clone(cx.thread.graph());
    let NodeKind::Variable {
        name,
        variable_type,
        scope,
        readonly,
        ..
    } = &graph.node(cx.thread.at).kind
    else {
        return Progress::Failed(failure(Outcome::Done));
    };
    // The type of the node is checked first. `assign` then checks the declared type of the variable.
    let value = match variable_type {
        Some(variable_type) => match coerce(*variable_type, value, name) {
            Ok(value) => value,
            Err(error) => return Progress::Failed(error),
        },
        None => value,
    };
    match scope {
        VariableScope::Thread => match cx.thread.variables.assign(name, value, *readonly) {
            Ok(value) => {
                cx.variable_changed(name, &value, VariableScope::Thread, 0);
                Progress::Done(value.into())
            }
            Err(error) => Progress::Failed(error),
        },
        // All threads share these variables: the run assigns them.
        VariableScope::Global | VariableScope::Session => {
            let id = cx.next_effect();
            cx.out.push(Effect::SetGlobal {
                id,
                name: Arc::clone(name),
                value,
                readonly: *readonly,
                is_of_session: *scope == VariableScope::Session,
            });
            Progress::Wait(NodeRun::Variable(VariableStage::Global { id }))
        }
    }
}
