//! Port to an engine for expressions and templates.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::model::{Graph, SnippetIx, ValueSpec};
use crate::error::ScriptFault;
use crate::script::Scope;
use crate::value::ValueBudget;

/// Evaluates the snippets of a graph. Each OS thread has its own evaluator, which may cache compiled snippets by [`Graph::uid`]
/// and snippet index. An evaluator on a thread that must not block evaluates only snippets with a bounded, short evaluation, and
/// returns [`Unevaluated::Later`] for the others.
pub trait Evaluator {
    /// Evaluates an expression. `undefined` becomes `null`; a plain path returns the stored value without a copy.
    ///
    /// # Errors
    /// `SCRIPT_ERROR` if the expression throws or returns a value that JSON cannot represent; `SCRIPT_LIMIT_EXCEEDED`.
    fn value(&mut self, graph: &Graph, snippet: SnippetIx, scope: &dyn Scope) -> Result<Arc<Value>, Unevaluated>;

    /// Evaluates an expression as a JavaScript condition: `0`, `""`, `null`, `undefined` and `NaN` are false.
    ///
    /// # Errors
    /// As [`Evaluator::value`].
    fn truth(&mut self, graph: &Graph, snippet: SnippetIx, scope: &dyn Scope) -> Result<bool, Unevaluated>;

    /// Renders a template.
    ///
    /// # Errors
    /// `TEMPLATE_ERROR`; for a missing path, `details` is `{"path": ...}`.
    fn text(&mut self, graph: &Graph, snippet: SnippetIx, scope: &dyn Scope) -> Result<String, Unevaluated>;

    /// Like [`Evaluator::text`], but a template that consists of one `{{path}}` returns the value at the path unchanged.
    ///
    /// # Errors
    /// As [`Evaluator::text`].
    fn template_value(
        &mut self,
        graph: &Graph,
        snippet: SnippetIx,
        scope: &dyn Scope,
    ) -> Result<Arc<Value>, Unevaluated>;

    /// Like [`Evaluator::value`], for source text outside of a graph, such as that of an outer trigger.
    ///
    /// # Errors
    /// As [`Evaluator::value`].
    fn value_of(&mut self, source: &str, scope: &dyn Scope) -> Result<Arc<Value>, Unevaluated>;

    /// Like [`Evaluator::truth`], for source text outside of a graph.
    ///
    /// # Errors
    /// As [`Evaluator::value`].
    fn truth_of(&mut self, source: &str, scope: &dyn Scope) -> Result<bool, Unevaluated>;

    /// Like [`Evaluator::text`], for source text outside of a graph.
    ///
    /// # Errors
    /// As [`Evaluator::text`].
    fn text_of(&mut self, source: &str, scope: &dyn Scope) -> Result<String, Unevaluated>;
}

/// Reason why an evaluator has no result.
#[derive(Clone, Debug, PartialEq)]
pub enum Unevaluated {
    /// The evaluation may take long and must run on another thread.
    Later,
    /// The evaluation failed.
    Fault(ScriptFault),
}

impl From<ScriptFault> for Unevaluated {
    fn from(fault: ScriptFault) -> Self {
        Self::Fault(fault)
    }
}

/// Returns the value of a [`ValueSpec`]. An expression for the whole value returns the shared value without a copy. Lists and
/// objects are built from copies.
///
/// # Errors
/// Returns the errors of its expressions, or `SCRIPT_LIMIT_EXCEEDED` if the value is too large or too deep.
pub(crate) fn spec_value(
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
pub(crate) fn spec_part(
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
