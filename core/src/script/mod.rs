//! Text that is evaluated at run time: what it sees, what it gives, and the part of it that needs no engine.
//!
//! SPEC section 2 "Expressions": an expression is JavaScript over `input`, `output` and `result`, `variables`,
//! `nodes["id"]` and `event`. A bare name is, in this order,
//!
//! 1. a variable (the thread's shadows the run's), except for `variables` and `nodes`, which nothing shadows;
//! 2. one of `input`, `output`, `result`, `event`;
//! 3. a global of JavaScript (`Math`, `JSON`, ...); templates have none;
//! 4. the output of the node with that id;
//! 5. `undefined` in an expression, an error that names the path in a template or a `{{path}}`.
//!
//! Most expressions in a workflow are no more than a path; [`Plain`] evaluates those without JavaScript. What an
//! engine for the rest must do is the port [`Evaluator`].

mod names;
mod path;
mod plain;
mod scope;
mod size;
mod text;

pub use names::{JS_GLOBALS, Names, Used, is_reserved};
pub use path::{Path, Step};
pub use plain::Plain;
pub use scope::{Scope, ScopeValues, bare_name};
pub use size::{MAX_LEVELS, MAX_TEXT};
pub(crate) use size::{Room, levels, too_deep};
pub use text::{PlainText, is_truthy, text_of};

use std::sync::Arc;

use serde_json::Value;

use crate::error::{RunError, RunErrorCode};
use crate::graph::{Graph, SnippetIx};

/// Evaluates the texts of a graph. One for each thread of the operating system; it may keep compiled forms,
/// keyed by [`Graph::uid`] and the snippet's index.
pub trait Evaluator {
    /// The value of an expression. `undefined` is `null`; a plain path hands on the stored value itself.
    ///
    /// # Errors
    /// `SCRIPT_ERROR` where it throws or gives what JSON cannot hold, `SCRIPT_LIMIT_EXCEEDED`.
    fn value(&mut self, graph: &Graph, snippet: SnippetIx, scope: &dyn Scope) -> Result<Arc<Value>, ScriptFault>;

    /// Whether an expression holds, as JavaScript sees it: `0`, `""`, `null`, `undefined` and `NaN` do not.
    ///
    /// # Errors
    /// As [`Evaluator::value`].
    fn truth(&mut self, graph: &Graph, snippet: SnippetIx, scope: &dyn Scope) -> Result<bool, ScriptFault>;

    /// A template's text.
    ///
    /// # Errors
    /// `TEMPLATE_ERROR`; where a path is missing, `details` is `{"path": ...}`.
    fn text(&mut self, graph: &Graph, snippet: SnippetIx, scope: &dyn Scope) -> Result<String, ScriptFault>;

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
    ) -> Result<Arc<Value>, ScriptFault>;

    /// As [`Evaluator::value`], for a text that is in no graph: a trigger's that stands by itself.
    ///
    /// # Errors
    /// As [`Evaluator::value`].
    fn value_of(&mut self, source: &str, scope: &dyn Scope) -> Result<Arc<Value>, ScriptFault>;

    /// As [`Evaluator::truth`], for a text that is in no graph.
    ///
    /// # Errors
    /// As [`Evaluator::value`].
    fn truth_of(&mut self, source: &str, scope: &dyn Scope) -> Result<bool, ScriptFault>;

    /// As [`Evaluator::text`], for a text that is in no graph.
    ///
    /// # Errors
    /// As [`Evaluator::text`].
    fn text_of(&mut self, source: &str, scope: &dyn Scope) -> Result<String, ScriptFault>;
}

/// Why a text could not be evaluated.
#[derive(Clone, Debug, PartialEq)]
pub struct ScriptFault {
    /// `SCRIPT_ERROR`, `SCRIPT_LIMIT_EXCEEDED`, `TEMPLATE_ERROR` or, where it was stopped, `CANCELLED`.
    pub code: RunErrorCode,
    /// One sentence for a person.
    pub message: String,
    /// Facts for a program: `{"path"}` of a missing path, `{"line", "column"}` of a thrown error.
    pub details: Option<Value>,
}

impl ScriptFault {
    /// JavaScript threw, or gave what JSON cannot hold.
    pub fn error(message: impl Into<String>) -> Self {
        Self {
            code: RunErrorCode::ScriptError,
            message: message.into(),
            details: None,
        }
    }

    /// A limit on time, memory, stack or size was hit.
    pub fn limit(message: impl Into<String>) -> Self {
        Self {
            code: RunErrorCode::ScriptLimitExceeded,
            message: message.into(),
            details: None,
        }
    }

    /// A template could not be rendered.
    pub fn template(message: impl Into<String>) -> Self {
        Self {
            code: RunErrorCode::TemplateError,
            message: message.into(),
            details: None,
        }
    }

    /// Stopped by someone.
    pub fn cancelled() -> Self {
        Self {
            code: RunErrorCode::Cancelled,
            message: "the script was stopped".into(),
            details: None,
        }
    }

    /// The path `path` of a `{{path}}` does not exist; `code` says in which kind of text.
    pub fn missing_path(code: RunErrorCode, path: &str) -> Self {
        Self {
            code,
            message: format!("`{path}` does not exist"),
            details: Some(serde_json::json!({ "path": path })),
        }
    }
}

impl std::fmt::Display for ScriptFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.code.as_str(), self.message)
    }
}

impl std::error::Error for ScriptFault {}

impl From<ScriptFault> for RunError {
    fn from(fault: ScriptFault) -> Self {
        let error = RunError::new(fault.code, fault.message);
        match fault.details {
            Some(details) => error.with_details(details),
            None => error,
        }
    }
}
