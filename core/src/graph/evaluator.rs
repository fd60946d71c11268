//! The port to an engine for expressions and templates.

use std::sync::Arc;

use serde_json::Value;

use super::model::{Graph, SnippetIx};
use crate::error::ScriptFault;
use crate::script::Scope;

/// Evaluates the texts of a graph. One for each thread of the operating system; it may keep compiled forms,
/// keyed by [`Graph::uid`] and the snippet's index. One that runs where others wait evaluates only what is certain to be
/// short, and leaves the rest for a thread of scripts: [`Unevaluated::Later`].
pub trait Evaluator {
    /// The value of an expression. `undefined` is `null`; a plain path hands on the stored value itself.
    ///
    /// # Errors
    /// `SCRIPT_ERROR` where it throws or gives what JSON cannot hold, `SCRIPT_LIMIT_EXCEEDED`.
    fn value(&mut self, graph: &Graph, snippet: SnippetIx, scope: &dyn Scope) -> Result<Arc<Value>, Unevaluated>;

    /// True if an expression holds, as JavaScript sees it: `0`, `""`, `null`, `undefined` and `NaN` do not.
    ///
    /// # Errors
    /// As [`Evaluator::value`].
    fn truth(&mut self, graph: &Graph, snippet: SnippetIx, scope: &dyn Scope) -> Result<bool, Unevaluated>;

    /// A template's text.
    ///
    /// # Errors
    /// `TEMPLATE_ERROR`; where a path is missing, `details` is `{"path": ...}`.
    fn text(&mut self, graph: &Graph, snippet: SnippetIx, scope: &dyn Scope) -> Result<String, Unevaluated>;

    /// As [`Evaluator::text`], but a template that is nothing but one `{{path}}` gives the value at the path as
    /// it is.
    ///
    /// # Errors
    /// As [`Evaluator::text`].
    fn template_value(
        &mut self,
        graph: &Graph,
        snippet: SnippetIx,
        scope: &dyn Scope,
    ) -> Result<Arc<Value>, Unevaluated>;

    /// As [`Evaluator::value`], for a text that is in no graph: a trigger's that stands by itself.
    ///
    /// # Errors
    /// As [`Evaluator::value`].
    fn value_of(&mut self, source: &str, scope: &dyn Scope) -> Result<Arc<Value>, Unevaluated>;

    /// As [`Evaluator::truth`], for a text that is in no graph.
    ///
    /// # Errors
    /// As [`Evaluator::value`].
    fn truth_of(&mut self, source: &str, scope: &dyn Scope) -> Result<bool, Unevaluated>;

    /// As [`Evaluator::text`], for a text that is in no graph.
    ///
    /// # Errors
    /// As [`Evaluator::text`].
    fn text_of(&mut self, source: &str, scope: &dyn Scope) -> Result<String, Unevaluated>;
}

/// Why an evaluator has no result.
#[derive(Clone, Debug, PartialEq)]
pub enum Unevaluated {
    /// The text may take long: it is for another thread to evaluate.
    Later,
    /// It can not be evaluated.
    Fault(ScriptFault),
}

impl From<ScriptFault> for Unevaluated {
    fn from(fault: ScriptFault) -> Self {
        Self::Fault(fault)
    }
}
