//! Evaluates expressions and templates.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pirn_definition::error::RunErrorCode;
use pirn_definition::graph::{Evaluator, Graph, SnippetIx, SnippetKind, Unevaluated, name_advice};
use pirn_definition::script::{Plain, Scope, ScriptFault};
use serde_json::Value;

use crate::ExpressionLimits;
use crate::deadline::now;
#[cfg(feature = "javascript")]
use crate::expressions::{Expressions, JavaScript, Script};
use crate::template::Template;

/// Evaluates expressions and templates. Each operating system thread creates its own evaluator, which is not `Send` and caches
/// compiled snippets by graph and snippet.
///
/// A [plain](Plain) expression needs no JavaScript. The realm is replaced after an expression that exceeded a limit, so no state of
/// it remains.
pub struct JsEvaluator {
    limits: ExpressionLimits,
    expressions: Cache<Expression>,
    templates: Cache<Result<Template, ScriptFault>>,
    place: Place,
    /// Deadline of the current job.
    until: Option<Instant>,
}

enum Place {
    /// A thread on which other work waits: snippets that may take long are deferred.
    Short,
    /// A script thread.
    #[cfg(feature = "javascript")]
    Whole(Box<dyn JavaScript>),
    #[cfg(not(feature = "javascript"))]
    Whole,
}

/// Cache by graph and snippet, and by source text.
struct Cache<T> {
    by_snippet: HashMap<(u64, SnippetIx), Arc<T>>,
    by_text: HashMap<Arc<str>, Arc<T>>,
}

struct Expression {
    plain: Option<Plain>,
    #[cfg(feature = "javascript")]
    script: std::sync::OnceLock<Script>,
    #[cfg(feature = "javascript")]
    source: Arc<str>,
}

impl JsEvaluator {
    /// Creates an evaluator of all snippets, with limits on each evaluation.
    pub fn new(limits: ExpressionLimits) -> Self {
        #[cfg(feature = "javascript")]
        return Self::with(limits, Place::Whole(Box::new(Expressions::new(limits))));
        #[cfg(not(feature = "javascript"))]
        Self::with(limits, Place::Whole)
    }

    /// Creates an evaluator that defers snippets that may take long.
    pub fn in_place() -> Self {
        Self::with(ExpressionLimits::default(), Place::Short)
    }

    /// Creates an evaluator that delegates JavaScript to another implementation.
    #[cfg(feature = "javascript")]
    pub(super) fn through(limits: ExpressionLimits, javascript: Box<dyn JavaScript>) -> Self {
        Self::with(limits, Place::Whole(javascript))
    }

    fn with(limits: ExpressionLimits, place: Place) -> Self {
        Self {
            limits,
            expressions: Cache::default(),
            templates: Cache::default(),
            place,
            until: None,
        }
    }

    /// Starts a job: the time limit applies to all of its snippets together.
    pub(super) fn begin(&mut self, time: Duration) {
        self.until = now().checked_add(time);
    }

    #[cfg(feature = "javascript")]
    fn time(&self) -> Duration {
        let left = |until: Instant| until.saturating_duration_since(now());
        self.until.map_or(self.limits.time, left).min(self.limits.time)
    }

    fn expression(&mut self, graph: &Graph, snippet: SnippetIx) -> Arc<Expression> {
        self.expressions
            .snippet(graph, snippet, self.limits.cached, Expression::read)
    }

    fn template(&mut self, graph: &Graph, snippet: SnippetIx) -> Arc<Result<Template, ScriptFault>> {
        self.templates
            .snippet(graph, snippet, self.limits.cached, Template::compile)
    }

    fn value_in(&mut self, expression: &Expression, scope: &dyn Scope) -> Result<Arc<Value>, Unevaluated> {
        if let Some(value) = expression.plain.as_ref().and_then(|plain| plain.value(scope)) {
            return Ok(value?);
        }
        self.script_value(expression, scope)
    }

    fn truth_in(&mut self, expression: &Expression, scope: &dyn Scope) -> Result<bool, Unevaluated> {
        if let Some(truth) = expression.plain.as_ref().and_then(|plain| plain.truth(scope)) {
            return Ok(truth?);
        }
        self.script_truth(expression, scope)
    }

    fn rendered<R>(
        &self,
        template: &Result<Template, ScriptFault>,
        render: impl FnOnce(&Template) -> Result<R, ScriptFault>,
    ) -> Result<R, Unevaluated> {
        let template = template.as_ref().map_err(Clone::clone)?;
        if matches!(self.place, Place::Short) && !template.is_plain() {
            return Err(Unevaluated::Later);
        }
        Ok(render(template)?)
    }
}

impl Default for JsEvaluator {
    fn default() -> Self {
        Self::new(ExpressionLimits::default())
    }
}

impl std::fmt::Debug for JsEvaluator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JsEvaluator")
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

impl Evaluator for JsEvaluator {
    fn value(&mut self, graph: &Graph, snippet: SnippetIx, scope: &dyn Scope) -> Result<Arc<Value>, Unevaluated> {
        let expression = self.expression(graph, snippet);
        self.value_in(&expression, scope)
            .map_err(|fault| advised_later(fault, graph))
    }

    fn truth(&mut self, graph: &Graph, snippet: SnippetIx, scope: &dyn Scope) -> Result<bool, Unevaluated> {
        let expression = self.expression(graph, snippet);
        self.truth_in(&expression, scope)
            .map_err(|fault| advised_later(fault, graph))
    }

    fn text(&mut self, graph: &Graph, snippet: SnippetIx, scope: &dyn Scope) -> Result<String, Unevaluated> {
        let template = self.template(graph, snippet);
        self.rendered(&template, |template| template.render(scope, self.until))
    }

    fn template_value(
        &mut self,
        graph: &Graph,
        snippet: SnippetIx,
        scope: &dyn Scope,
    ) -> Result<Arc<Value>, Unevaluated> {
        let template = self.template(graph, snippet);
        self.rendered(&template, |template| template.value(scope, self.until))
    }

    fn value_of(&mut self, source: &str, scope: &dyn Scope) -> Result<Arc<Value>, Unevaluated> {
        let expression = self.expressions.text(source, self.limits.cached, Expression::read);
        self.value_in(&expression, scope)
    }

    fn truth_of(&mut self, source: &str, scope: &dyn Scope) -> Result<bool, Unevaluated> {
        let expression = self.expressions.text(source, self.limits.cached, Expression::read);
        self.truth_in(&expression, scope)
    }

    fn text_of(&mut self, source: &str, scope: &dyn Scope) -> Result<String, Unevaluated> {
        let template = self.templates.text(source, self.limits.cached, Template::compile);
        self.rendered(&template, |template| template.render(scope, self.until))
    }
}

fn advised_later(fault: Unevaluated, graph: &Graph) -> Unevaluated {
    match fault {
        Unevaluated::Fault(fault) => Unevaluated::Fault(advised(fault, graph)),
        Unevaluated::Later => Unevaluated::Later,
    }
}

fn advised(mut fault: ScriptFault, graph: &Graph) -> ScriptFault {
    let details = fault.details.as_ref();
    if let Some(meant) = advice(fault.code, details, graph, SnippetKind::Expression) {
        fault.message = format!("{}: {meant}", fault.message);
    }
    fault
}

/// Returns a suggestion for an unknown name.
pub(super) fn advice(code: RunErrorCode, details: Option<&Value>, graph: &Graph, kind: SnippetKind) -> Option<String> {
    let name = details?.get("name")?.as_str()?;
    let known = graph.variable_names.iter().chain(graph.by_id.keys());
    (code == RunErrorCode::UnknownName).then(|| name_advice(name, known.map(AsRef::as_ref), kind, false))
}

impl<T> Default for Cache<T> {
    fn default() -> Self {
        Self {
            by_snippet: HashMap::new(),
            by_text: HashMap::new(),
        }
    }
}

impl<T> Cache<T> {
    fn snippet(&mut self, graph: &Graph, snippet: SnippetIx, most: usize, read: impl FnOnce(&str) -> T) -> Arc<T> {
        let key = (graph.uid, snippet);
        if let Some(known) = self.by_snippet.get(&key) {
            return known.clone();
        }
        let made = self.text(&graph.snippet(snippet).source, most, read);
        if self.by_snippet.len() >= most {
            self.by_snippet.clear();
        }
        self.by_snippet.insert(key, made.clone());
        made
    }

    fn text(&mut self, source: &str, most: usize, read: impl FnOnce(&str) -> T) -> Arc<T> {
        if let Some(known) = self.by_text.get(source) {
            return known.clone();
        }
        let made = Arc::new(read(source));
        if self.by_text.len() >= most {
            self.by_text.clear();
        }
        self.by_text.insert(source.into(), made.clone());
        made
    }
}

impl Expression {
    fn read(source: &str) -> Self {
        Self {
            plain: Plain::read(source),
            #[cfg(feature = "javascript")]
            script: std::sync::OnceLock::new(),
            #[cfg(feature = "javascript")]
            source: source.into(),
        }
    }

    /// Returns the form that JavaScript evaluates. It is built lazily, because most expressions never need it.
    #[cfg(feature = "javascript")]
    fn script(&self) -> &Script {
        self.script.get_or_init(|| Script::read(&self.source))
    }
}

#[cfg(feature = "javascript")]
impl JsEvaluator {
    fn script_value(&mut self, expression: &Expression, scope: &dyn Scope) -> Result<Arc<Value>, Unevaluated> {
        let time = self.time();
        match &mut self.place {
            Place::Short => Err(Unevaluated::Later),
            Place::Whole(javascript) => Ok(Arc::new(javascript.value(expression.script(), scope, time)?)),
        }
    }

    fn script_truth(&mut self, expression: &Expression, scope: &dyn Scope) -> Result<bool, Unevaluated> {
        let time = self.time();
        match &mut self.place {
            Place::Short => Err(Unevaluated::Later),
            Place::Whole(javascript) => Ok(javascript.truth(expression.script(), scope, time)?),
        }
    }
}

#[cfg(not(feature = "javascript"))]
impl JsEvaluator {
    #[allow(clippy::unused_self)] // as with the feature
    fn script_value(&mut self, _: &Expression, _: &dyn Scope) -> Result<Arc<Value>, Unevaluated> {
        Err(crate::code::built_without().into())
    }

    #[allow(clippy::unused_self)] // as with the feature
    fn script_truth(&mut self, _: &Expression, _: &dyn Scope) -> Result<bool, Unevaluated> {
        Err(crate::code::built_without().into())
    }
}

#[cfg(all(test, not(feature = "javascript")))]
mod tests {
    use pirn_definition::error::RunErrorCode;
    use pirn_definition::script::ScopeValues;
    use serde_json::json;

    use super::*;

    #[test]
    fn without_javascript_plain_expressions_and_templates_work_and_others_fail() {
        let scope = ScopeValues {
            input: Arc::new(json!({"a": 1})),
            ..ScopeValues::default()
        };
        let mut evaluator = JsEvaluator::default();
        assert_eq!(evaluator.value_of("input.a + 1", &scope), Ok(Arc::new(json!(2))));
        assert_eq!(
            evaluator
                .text_of("{{#if input.a}}{{input.a}}{{/if}}", &scope)
                .as_deref(),
            Ok("1")
        );
        let Err(Unevaluated::Fault(fault)) = evaluator.value_of("input.a ** 2", &scope) else {
            panic!("it needs JavaScript");
        };
        assert_eq!(fault.code, RunErrorCode::ScriptError);
        assert!(fault.message.contains("built without JavaScript"), "{fault}");
    }
}
