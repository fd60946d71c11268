//! Tests of the evaluator, and the acceptance cases for expressions.

mod cases;
mod code;
mod fuzz;
mod limits;
mod node;
mod plain;
mod port;
mod sandbox;
mod syntax;
mod templates;
mod values;

use std::sync::Arc;

use pirn_definition::error::RunErrorCode;
use pirn_definition::graph::{Evaluator, Unevaluated};
use pirn_definition::script::{ScopeValues, ScriptFault};
use serde_json::{Value, json};

use super::{ExpressionLimits, JsEvaluator};

/// An evaluator with a time limit that a busy machine does not reach.
fn patient() -> JsEvaluator {
    JsEvaluator::new(ExpressionLimits {
        time: std::time::Duration::from_mins(1),
        ..ExpressionLimits::default()
    })
}

/// Creates a scope with these variables and this input.
fn scope(variables: &Value, input: &Value) -> ScopeValues {
    let variables = variables.as_object().unwrap();
    ScopeValues {
        input: Arc::new(input.clone()),
        variables: variables
            .iter()
            .map(|(name, value)| (name.as_str().into(), Arc::new(value.clone())))
            .collect(),
        ..ScopeValues::default()
    }
}

fn value_in(evaluator: &mut JsEvaluator, expression: &str, scope: &ScopeValues) -> Result<Value, ScriptFault> {
    let value = evaluator.value_of(expression, scope).map_err(fault);
    value.map(|value| value.as_ref().clone())
}

/// Returns the fault of an evaluator that defers nothing.
fn fault(unevaluated: Unevaluated) -> ScriptFault {
    match unevaluated {
        Unevaluated::Fault(fault) => fault,
        Unevaluated::Later => panic!("a text was left for later"),
    }
}

/// Evaluates an expression with an empty scope.
fn value(expression: &str) -> Result<Value, ScriptFault> {
    value_in(&mut patient(), expression, &scope(&json!({}), &json!(null)))
}

fn assert_error(result: Result<Value, ScriptFault>, code: RunErrorCode, part: &str) {
    let fault = result.expect_err("it must fail");
    assert!(
        fault.code == code && fault.message.contains(part),
        "expected {code:?} with `{part}`, got {fault:?}"
    );
}

#[test]
fn a_job_and_a_port_are_send() {
    fn moves<T: Send>() {}
    moves::<super::CodeJob>();
    moves::<super::ScriptPort>();
}
