//! Evaluates expressions and templates in place.

use std::collections::HashMap;
use std::sync::Arc;

use pirn_core::graph::Evaluator;
use pirn_core::graph::{Graph, SnippetIx};
use pirn_core::script::{Plain, Scope, ScriptFault};
use serde_json::Value;

use super::ExpressionLimits;
use super::template::Template;

#[cfg(feature = "javascript")]
use script::{Engine, Script};

/// Evaluates expressions and templates. One for each thread of the operating system, made there (it is not `Send`);
/// it keeps what it compiled, by graph and snippet. Its realm is made when the first expression needs JavaScript.
///
/// A plain path takes no JavaScript. An expression that hit a limit leaves nothing behind: the realm is made anew.
pub struct JsEvaluator {
    limits: ExpressionLimits,
    expressions: Cache<Expression>,
    templates: Cache<Result<Template, ScriptFault>>,
    #[cfg(feature = "javascript")]
    engine: Engine,
}

/// By graph and snippet, and by the text itself.
struct Cache<T> {
    by_snippet: HashMap<(u64, SnippetIx), Arc<T>>,
    by_text: HashMap<Arc<str>, Arc<T>>,
}

struct Expression {
    plain: Option<Plain>,
    #[cfg(feature = "javascript")]
    script: Script,
}

impl JsEvaluator {
    /// An evaluator with limits on each evaluation.
    pub fn new(limits: ExpressionLimits) -> Self {
        Self {
            limits,
            expressions: Cache::default(),
            templates: Cache::default(),
            #[cfg(feature = "javascript")]
            engine: Engine::new(limits),
        }
    }

    fn expression(&mut self, graph: &Graph, snippet: SnippetIx) -> Arc<Expression> {
        self.expressions
            .snippet(graph, snippet, self.limits.cached, Expression::read)
    }

    fn template(&mut self, graph: &Graph, snippet: SnippetIx) -> Arc<Result<Template, ScriptFault>> {
        self.templates
            .snippet(graph, snippet, self.limits.cached, Template::compile)
    }

    fn value_in(&mut self, expression: &Arc<Expression>, scope: &dyn Scope) -> Result<Arc<Value>, ScriptFault> {
        if let Some(value) = expression.plain.as_ref().and_then(|plain| plain.value(scope)) {
            return value;
        }
        self.script_value(expression, scope)
    }

    fn truth_in(&mut self, expression: &Arc<Expression>, scope: &dyn Scope) -> Result<bool, ScriptFault> {
        if let Some(truth) = expression.plain.as_ref().and_then(|plain| plain.truth(scope)) {
            return truth;
        }
        self.script_truth(expression, scope)
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
    fn value(&mut self, graph: &Graph, snippet: SnippetIx, scope: &dyn Scope) -> Result<Arc<Value>, ScriptFault> {
        let expression = self.expression(graph, snippet);
        self.value_in(&expression, scope)
    }

    fn truth(&mut self, graph: &Graph, snippet: SnippetIx, scope: &dyn Scope) -> Result<bool, ScriptFault> {
        let expression = self.expression(graph, snippet);
        self.truth_in(&expression, scope)
    }

    fn text(&mut self, graph: &Graph, snippet: SnippetIx, scope: &dyn Scope) -> Result<String, ScriptFault> {
        self.template(graph, snippet)
            .as_ref()
            .as_ref()
            .map_err(Clone::clone)?
            .render(scope)
    }

    fn template_value(
        &mut self,
        graph: &Graph,
        snippet: SnippetIx,
        scope: &dyn Scope,
    ) -> Result<Arc<Value>, ScriptFault> {
        self.template(graph, snippet)
            .as_ref()
            .as_ref()
            .map_err(Clone::clone)?
            .value(scope)
    }

    fn value_of(&mut self, source: &str, scope: &dyn Scope) -> Result<Arc<Value>, ScriptFault> {
        let expression = self.expressions.text(source, self.limits.cached, Expression::read);
        self.value_in(&expression, scope)
    }

    fn truth_of(&mut self, source: &str, scope: &dyn Scope) -> Result<bool, ScriptFault> {
        let expression = self.expressions.text(source, self.limits.cached, Expression::read);
        self.truth_in(&expression, scope)
    }

    fn text_of(&mut self, source: &str, scope: &dyn Scope) -> Result<String, ScriptFault> {
        let template = self.templates.text(source, self.limits.cached, Template::compile);
        template.as_ref().as_ref().map_err(Clone::clone)?.render(scope)
    }
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
            script: Script::read(source),
        }
    }
}

#[cfg(feature = "javascript")]
impl JsEvaluator {
    fn script_value(&mut self, expression: &Arc<Expression>, scope: &dyn Scope) -> Result<Arc<Value>, ScriptFault> {
        self.engine.value(&expression.script, scope).map(Arc::new)
    }

    fn script_truth(&mut self, expression: &Arc<Expression>, scope: &dyn Scope) -> Result<bool, ScriptFault> {
        self.engine.truth(&expression.script, scope)
    }
}

#[cfg(not(feature = "javascript"))]
impl JsEvaluator {
    #[allow(clippy::unused_self)] // as with the feature
    fn script_value(&mut self, _: &Arc<Expression>, _: &dyn Scope) -> Result<Arc<Value>, ScriptFault> {
        Err(super::code::built_without())
    }

    #[allow(clippy::unused_self)] // as with the feature
    fn script_truth(&mut self, _: &Arc<Expression>, _: &dyn Scope) -> Result<bool, ScriptFault> {
        Err(super::code::built_without())
    }
}

#[cfg(feature = "javascript")]
mod script {
    //! The part of the evaluator that needs JavaScript.

    use std::collections::HashMap;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use pirn_core::script::{Names, Path, Scope, ScopeValues, ScriptFault};
    use serde_json::Value;

    use crate::script::realm::{Compiled, Form, Realm, Run, out_of_memory, placeholder_call};
    use crate::script::realm_options::RealmOptions;
    use crate::script::{ExpressionLimits, HostFunctions, placeholder};

    /// An expression as it is handed to JavaScript.
    pub(super) struct Script {
        id: u64,
        source: String,
        names: Names,
        paths: Arc<[Path]>,
    }

    impl Script {
        pub(super) fn read(source: &str) -> Self {
            static NEXT: AtomicU64 = AtomicU64::new(0);
            let mut names = Names::of(source);
            let (source, paths) = match placeholder::rewrite(source, placeholder_call) {
                Some(rewritten) => (rewritten.source, rewritten.paths),
                None => (source.to_owned(), Vec::new()),
            };
            for path in &paths {
                path.note(&mut names);
            }
            Self {
                id: NEXT.fetch_add(1, Ordering::Relaxed),
                source,
                names,
                paths: paths.into(),
            }
        }
    }

    /// The realm that expressions share, and what was compiled in it.
    pub(super) struct Engine {
        limits: ExpressionLimits,
        compiled: HashMap<u64, Result<Compiled, ScriptFault>>,
        realm: Option<Realm>,
    }

    impl Engine {
        pub(super) fn new(limits: ExpressionLimits) -> Self {
            Self {
                limits,
                compiled: HashMap::new(),
                realm: None,
            }
        }

        pub(super) fn value(&mut self, script: &Script, scope: &dyn Scope) -> Result<Value, ScriptFault> {
            self.run(script, scope, Realm::value)
        }

        pub(super) fn truth(&mut self, script: &Script, scope: &dyn Scope) -> Result<bool, ScriptFault> {
            self.run(script, scope, Realm::truth)
        }

        /// Runs a text. Where it finds no memory in a realm that others have used, it has a fresh one: what they left behind
        /// is not its own fault.
        fn run<R>(
            &mut self,
            script: &Script,
            scope: &dyn Scope,
            body: impl Fn(&mut Realm, &Compiled, Run) -> Result<R, ScriptFault>,
        ) -> Result<R, ScriptFault> {
            let was_used = self.realm.as_ref().is_some_and(|realm| !realm.is_spent());
            match self.attempt(script, scope, &body) {
                Err(fault) if was_used && fault == out_of_memory() => self.attempt(script, scope, body),
                result => result,
            }
        }

        /// What was compiled goes with its realm, so nothing of it is held when this returns.
        fn attempt<R>(
            &mut self,
            script: &Script,
            scope: &dyn Scope,
            body: impl Fn(&mut Realm, &Compiled, Run) -> Result<R, ScriptFault>,
        ) -> Result<R, ScriptFault> {
            let (realm, compiled, run) = self.ready(script, scope)?;
            body(realm, &compiled, run)
        }

        fn ready(&mut self, script: &Script, scope: &dyn Scope) -> Result<(&mut Realm, Compiled, Run), ScriptFault> {
            let is_spent = self.realm.as_ref().is_some_and(Realm::is_spent);
            if is_spent || self.compiled.len() >= self.limits.cached {
                self.compiled.clear();
            }
            if is_spent {
                self.realm = None;
            }
            let realm = match &mut self.realm {
                Some(realm) => realm,
                none => none.insert(Realm::new(&RealmOptions {
                    memory: self.limits.memory,
                    stack: self.limits.stack,
                    shared: true,
                    functions: Arc::new(HostFunctions::default()),
                })?),
            };
            let compiled = self
                .compiled
                .entry(script.id)
                .or_insert_with(|| realm.compile(&script.source, Form::Expression, &script.names))
                .clone()?;
            let run = Run {
                scope: ScopeValues::capture(&script.names, scope),
                paths: script.paths.clone(),
                seed: None,
                time: self.limits.time,
                stop: None,
            };
            Ok((realm, compiled, run))
        }
    }

    impl Drop for Engine {
        fn drop(&mut self) {
            // What was compiled belongs to the realm's runtime and must go first.
            self.compiled.clear();
        }
    }
}

#[cfg(all(test, not(feature = "javascript")))]
mod tests {
    use pirn_core::error::RunErrorCode;
    use pirn_core::script::ScopeValues;
    use serde_json::json;

    use super::*;

    #[test]
    fn without_javascript_paths_and_templates_work_and_the_rest_says_so() {
        let scope = ScopeValues {
            input: Arc::new(json!({"a": 1})),
            ..ScopeValues::default()
        };
        let mut evaluator = JsEvaluator::default();
        assert_eq!(evaluator.value_of("input.a", &scope), Ok(Arc::new(json!(1))));
        assert_eq!(
            evaluator
                .text_of("{{#if input.a}}{{input.a}}{{/if}}", &scope)
                .as_deref(),
            Ok("1")
        );
        let fault = evaluator.value_of("input.a + 1", &scope).unwrap_err();
        assert_eq!(fault.code, RunErrorCode::ScriptError);
        assert!(fault.message.contains("built without JavaScript"), "{fault}");
    }
}
