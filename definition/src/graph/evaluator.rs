//! Port to an engine for expressions and templates.

use std::sync::Arc;

use serde_json::Value;

use super::model::{Graph, SnippetIx};
use crate::error::ScriptFault;
use crate::script::Scope;

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
