//! Values of fields that contain expressions and templates.

use std::sync::Arc;

use pirn_definition::graph::{Evaluator, Graph, Unevaluated, ValueSpec};
use pirn_definition::script::Scope;
use pirn_definition::value::ValueBudget;
use serde_json::{Map, Value};

/// Returns the value of a [`ValueSpec`]. An expression for the whole value returns the shared value without a copy. Lists and
/// objects are built from copies.
///
/// # Errors
/// Returns the errors of its expressions, or `SCRIPT_LIMIT_EXCEEDED` if the value is too large or too deep.
pub(super) fn spec_value(
    graph: &Graph,
    spec: &ValueSpec,
    scope: &dyn Scope,
    evaluator: &mut dyn Evaluator,
) -> Result<Arc<Value>, Unevaluated> {
    match spec {
        ValueSpec::Expression(snippet) => evaluator.value(graph, *snippet, scope),
        ValueSpec::Literal(value) => Ok(Arc::clone(value)),
        ValueSpec::Template(snippet) => evaluator.template_value(graph, *snippet, scope),
        ValueSpec::List(_) | ValueSpec::Object(_) => {
            spec_part(graph, spec, scope, evaluator, (&mut ValueBudget::default(), 0)).map(Arc::new)
        }
    }
}

/// Returns a part of a value; `inside` is its nesting depth, and `room` limits the size of the whole value.
pub(super) fn spec_part(
    graph: &Graph,
    spec: &ValueSpec,
    scope: &dyn Scope,
    evaluator: &mut dyn Evaluator,
    (room, inside): (&mut ValueBudget, usize),
) -> Result<Value, Unevaluated> {
    match spec {
        ValueSpec::Expression(_) | ValueSpec::Literal(_) | ValueSpec::Template(_) => {
            let value = spec_value(graph, spec, scope, evaluator)?;
            room.take(&value, inside)?;
            Ok(Arc::unwrap_or_clone(value))
        }
        ValueSpec::List(items) => items
            .iter()
            .map(|item| spec_part(graph, item, scope, evaluator, (room, inside + 1)))
            .collect::<Result<Vec<_>, _>>()
            .map(Value::Array),
        ValueSpec::Object(fields) => fields
            .iter()
            .map(|(name, field)| {
                let value = spec_part(graph, field, scope, evaluator, (room, inside + 1))?;
                Ok((name.to_string(), value))
            })
            .collect::<Result<Map<_, _>, _>>()
            .map(Value::Object),
    }
}
