//! Evaluates expressions and templates of a node for [`Effect::Evaluate`](super::Effect::Evaluate).
//!
//! The host calls [`evaluate`] inline with the evaluator of its OS thread. If that defers, the host calls it again on a script
//! thread with a snapshot of the thread. This module only evaluates; the machines decide.

use std::sync::{Arc, OnceLock};

use pirn_definition::error::RunError;
use pirn_definition::graph::{
    ContextNode, Evaluator, Graph, LlmNode, LoopNode, NodeIx, NodeKind, PartSpec, SnippetIx, TemplateMessage,
    Unevaluated,
};
use pirn_definition::script::{Scope, ScopeValues};
use pirn_definition::value::Output;
use serde_json::{Value, json};

use super::data::effect::{ComputedPrompt, Evaluation, Outcome};
use super::data::loops::LoopFrame;
use super::data::seed::Snapshot;
use super::data::state::{Outputs, Variables};
use super::items::{folded, item_inputs};
use super::machine::ThreadMachine;
use super::spec::spec_value;

/// Scope of a thread's expressions: variables and outputs of the thread, then the run's global variables.
#[derive(Clone, Copy, Debug)]
pub struct ThreadScope<'a> {
    graph: &'a Graph,
    input: &'a Arc<Value>,
    last: &'a Output,
    variables: &'a Variables,
    outputs: &'a Outputs,
    globals: &'a Variables,
    loops: Option<&'a Arc<LoopFrame>>,
    event: &'a OnceLock<Arc<Value>>,
}

impl<'a> ThreadScope<'a> {
    /// Creates the scope of `thread` in a run with these global variables.
    pub fn new(thread: &'a ThreadMachine, globals: &'a Variables) -> Self {
        Self {
            graph: thread.graph(),
            input: thread.input(),
            last: thread.output_in_expressions(),
            variables: thread.variables(),
            outputs: thread.outputs(),
            globals,
            loops: thread.loops.as_ref(),
            event: &thread.event,
        }
    }

    /// Returns a snapshot of the thread, and the global variables.
    pub fn snapshot(&self) -> (Snapshot, Variables) {
        let thread = Snapshot {
            input: Arc::clone(self.input),
            variables: self.variables.clone(),
            loops: self.loops.cloned(),
            outputs: self.outputs.clone(),
            last: self.last.clone(),
            event: self.event.clone(),
        };
        (thread, self.globals.clone())
    }

    /// Creates the scope of a thread's snapshot.
    pub fn of_snapshot(graph: &'a Graph, thread: &'a Snapshot, globals: &'a Variables) -> Self {
        Self {
            graph,
            input: &thread.input,
            last: &thread.last,
            variables: &thread.variables,
            outputs: &thread.outputs,
            globals,
            loops: thread.loops.as_ref(),
            event: &thread.event,
        }
    }
}

impl Scope for ThreadScope<'_> {
    fn input(&self) -> Arc<Value> {
        Arc::clone(self.input)
    }

    fn output(&self) -> Arc<Value> {
        Arc::clone(self.last.value())
    }

    fn variable(&self, name: &str) -> Option<Arc<Value>> {
        // A thread's variable takes precedence over a global one of the same name.
        let own = self.variables.value(name);
        let given = own.or_else(|| self.globals.value(name)).map(Arc::clone);
        match given {
            // Last, so that a variable named `loop` is not hidden inside of a loop.
            None if name == "loop" => self.loops.map(|frame| frame.shown()),
            given => given,
        }
    }

    fn variables(&self) -> Vec<(Arc<str>, Arc<Value>)> {
        // Globals first: `extend` overwrites them with the thread's variables, the precedence of `variable`.
        let mut all: std::collections::BTreeMap<_, _> = self.globals.iter().collect();
        all.extend(self.variables.iter());
        all.into_iter()
            .map(|(name, value)| (Arc::clone(name), Arc::clone(value)))
            .collect()
    }

    fn node(&self, id: &str) -> Option<Arc<Value>> {
        // Outputs are stored by index: an id is resolved only if an expression names it.
        let node = self.graph.by_id.get(id)?;
        self.outputs.value(*node).map(Arc::clone)
    }

    fn nodes(&self) -> Vec<(Arc<str>, Arc<Value>)> {
        self.outputs
            .iter()
            .map(|(node, value)| (Arc::clone(&self.graph.node(node).id), Arc::clone(value)))
            .collect()
    }

    fn knows(&self, name: &str) -> bool {
        // By the graph, not by the current values: a node without an output yet is still a known name.
        self.graph.by_id.contains_key(name) || self.graph.variable_names.contains(name)
    }

    fn event(&self) -> Option<Arc<Value>> {
        // A triggered thread has the event in its input (SPEC section 6). Cached: it is copied once, not once for each expression.
        let event = self.input.as_object()?.get("event")?;
        Some(Arc::clone(self.event.get_or_init(|| Arc::new(event.clone()))))
    }
}

/// Evaluates what a node requests. Returns `None` if the evaluator defers. An error becomes [`Outcome::Failed`].
pub fn evaluate(
    graph: &Graph,
    node: NodeIx,
    what: Evaluation,
    scope: &dyn Scope,
    evaluator: &mut dyn Evaluator,
) -> Option<Outcome> {
    match outcome(graph, node, what, scope, evaluator) {
        Ok(outcome) => Some(outcome),
        // A fault of the expression is an outcome: the machine decides about retries and `onError`.
        Err(Unevaluated::Fault(fault)) => Some(Outcome::Failed(RunError::from(fault))),
        Err(Unevaluated::Later) => None,
    }
}

/// Returns the source of the expressions and templates instead of their values. If this is equal for two nodes, they evaluate to
/// equal results over equal scopes.
pub fn written(graph: &Graph, node: NodeIx, what: Evaluation) -> Value {
    let mut texts = Written::default();
    match outcome(graph, node, what, &ScopeValues::default(), &mut texts) {
        // The evaluator `Written` returns the sources in the place of the values.
        Ok(Outcome::Value(value)) => Arc::unwrap_or_clone(value),
        Ok(Outcome::Texts(texts)) => json!(texts),
        // A choice has no place for the sources, so they are taken from the evaluator's list.
        _ => json!(texts.0),
    }
}

/// Evaluator that returns the source for each value. Every condition is false, so that all conditions are requested.
#[derive(Default)]
struct Written(Vec<Arc<str>>);

impl Written {
    fn note(&mut self, source: &str) -> String {
        self.0.push(source.into());
        source.to_owned()
    }
}

impl Evaluator for Written {
    fn value(&mut self, graph: &Graph, snippet: SnippetIx, scope: &dyn Scope) -> Result<Arc<Value>, Unevaluated> {
        self.value_of(&graph.snippet(snippet).source, scope)
    }

    fn truth(&mut self, graph: &Graph, snippet: SnippetIx, scope: &dyn Scope) -> Result<bool, Unevaluated> {
        self.truth_of(&graph.snippet(snippet).source, scope)
    }

    fn text(&mut self, graph: &Graph, snippet: SnippetIx, scope: &dyn Scope) -> Result<String, Unevaluated> {
        self.text_of(&graph.snippet(snippet).source, scope)
    }

    fn template_value(
        &mut self,
        graph: &Graph,
        snippet: SnippetIx,
        scope: &dyn Scope,
    ) -> Result<Arc<Value>, Unevaluated> {
        self.value_of(&graph.snippet(snippet).source, scope)
    }

    fn value_of(&mut self, source: &str, _scope: &dyn Scope) -> Result<Arc<Value>, Unevaluated> {
        // A list with one item, as a MAP needs, so that the input of an item is requested too.
        Ok(Arc::new(json!([self.note(source)])))
    }

    fn truth_of(&mut self, source: &str, _scope: &dyn Scope) -> Result<bool, Unevaluated> {
        self.note(source);
        // False, so that `first_that_holds` requests every condition instead of stopping at the first.
        Ok(false)
    }

    fn text_of(&mut self, source: &str, _scope: &dyn Scope) -> Result<String, Unevaluated> {
        Ok(self.note(source))
    }
}

fn outcome(
    graph: &Graph,
    node: NodeIx,
    what: Evaluation,
    scope: &dyn Scope,
    evaluator: &mut dyn Evaluator,
) -> Result<Outcome, Unevaluated> {
    // By index and not from the thread, because `evaluate` also runs over a snapshot on another OS thread.
    let node = graph.node(node);
    match what {
        Evaluation::Edges => {
            let conditions = node.edges.iter().map(|edge| edge.condition);
            first_that_holds(graph, conditions, scope, evaluator).map(Outcome::Choice)
        }
        Evaluation::Routes => {
            // The request and the node come from one machine and match. A mismatch has an answer, because a panic would end the thread.
            let NodeKind::Route { routes, .. } = &node.kind else {
                return Ok(Outcome::Done);
            };
            let conditions = routes.iter().map(|(condition, _)| Some(*condition));
            first_that_holds(graph, conditions, scope, evaluator).map(Outcome::Choice)
        }
        Evaluation::Value(snippet) => evaluator.value(graph, snippet, scope).map(Outcome::Value),
        Evaluation::Input => match &node.kind {
            // The `input` of these types is one expression, template or object: it is evaluated by the same code.
            NodeKind::Script { input: Some(input), .. }
            | NodeKind::Function { input: Some(input), .. }
            | NodeKind::Subgraph { input: Some(input), .. }
            | NodeKind::Tool { arguments: input, .. } => spec_value(graph, input, scope, evaluator).map(Outcome::Value),
            NodeKind::Orchestration(script) => match &script.input {
                Some(input) => spec_value(graph, input, scope, evaluator).map(Outcome::Value),
                None => Ok(Outcome::Value(scope.output())),
            },
            NodeKind::Map(map) => item_inputs(graph, map, scope, evaluator).map(Outcome::Value),
            // A loop stores the list itself and copies items one at a time, so that the iterable stays one value.
            NodeKind::LoopStart(LoopNode {
                iterable: Some(iterable),
                ..
            }) => spec_value(graph, iterable, scope, evaluator).map(Outcome::Value),
            // Without an `input` the node receives the output of the node before it.
            _ => Ok(Outcome::Value(scope.output())),
        },
        Evaluation::Prompt => {
            let NodeKind::Llm(llm) = &node.kind else {
                return Ok(Outcome::Done);
            };
            // Nodes with two templates only are the common case: their outcome needs no JSON object.
            if llm.is_computed() {
                return computed(graph, llm, scope, evaluator);
            }
            // The order is read by `nodes/llm.rs`: the prompt is the first text.
            texts(graph, [llm.prompt, llm.system].into_iter(), scope, evaluator)
        }
        Evaluation::Texts => match &node.kind {
            NodeKind::Context(ContextNode::Insert { messages, .. } | ContextNode::Replace { messages, .. }) => {
                texts(graph, contents(messages), scope, evaluator)
            }
            NodeKind::UserInteraction(node) => texts(
                graph,
                // The order is read by `nodes/questions/interaction.rs`: the question is the first text.
                [Some(node.question), node.assignee].into_iter(),
                scope,
                evaluator,
            ),
            _ => Ok(Outcome::Done),
        },
        Evaluation::Folds(folds) => folded(graph, &folds, scope, evaluator).map(Outcome::Value),
        Evaluation::Pin => match &node.kind {
            NodeKind::Context(ContextNode::Pin { value, .. }) => {
                spec_value(graph, value, scope, evaluator).map(Outcome::Value)
            }
            _ => Ok(Outcome::Done),
        },
    }
}

/// Evaluates everything that an LLM node computes, as an object: see [`ComputedPrompt`].
fn computed(
    graph: &Graph,
    llm: &LlmNode,
    scope: &dyn Scope,
    evaluator: &mut dyn Evaluator,
) -> Result<Outcome, Unevaluated> {
    let profile = llm.choice.as_ref().and_then(|choice| choice.profile);
    // Lazy, so that the first error stops the evaluation: the later templates are not evaluated.
    let mut texts = [llm.prompt, llm.system, profile]
        .into_iter()
        .map(|snippet| match snippet {
            Some(snippet) => text(graph, snippet, scope, evaluator).map(Some),
            None => Ok(None),
        });
    let mut next = || texts.next().transpose().map(Option::flatten);
    let (prompt, system, profile) = (next()?, next()?, next()?);
    // The iterator borrows the evaluator, which the parameters and parts need next.
    drop(texts);
    let parameters = llm.choice.as_ref().and_then(|choice| choice.parameters.as_ref());
    let parameters = parameters.map(|spec| spec_value(graph, spec, scope, evaluator));
    let mut parts = Vec::new();
    for part in &llm.parts {
        // Literal parts are not copied into the outcome: `request::parts` takes them from the graph.
        if let PartSpec::Computed(spec) = part {
            parts.push(spec_value(graph, spec, scope, evaluator)?);
        }
    }
    let computed = ComputedPrompt {
        prompt,
        system,
        profile,
        parameters: parameters.transpose()?,
        parts,
    };
    // One object, which `request::read` parses: it also has parameters and parts, for which `Outcome::Texts` has no place.
    Ok(Outcome::Value(Arc::new(json!(computed))))
}

fn contents(messages: &[TemplateMessage]) -> impl Iterator<Item = Option<SnippetIx>> {
    messages.iter().map(|message| Some(message.content))
}

/// Returns the index of the first condition that is true or absent.
fn first_that_holds(
    graph: &Graph,
    conditions: impl Iterator<Item = Option<SnippetIx>>,
    scope: &dyn Scope,
    evaluator: &mut dyn Evaluator,
) -> Result<Option<u32>, Unevaluated> {
    for (place, condition) in (0..).zip(conditions) {
        let holds = match condition {
            // An error ends the selection: skipping the condition would silently select another path.
            Some(condition) => evaluator.truth(graph, condition, scope)?,
            // An edge without a condition. The edges are sorted by weight, so that those after it are never selected.
            None => true,
        };
        if holds {
            return Ok(Some(place));
        }
    }
    Ok(None)
}

fn texts(
    graph: &Graph,
    snippets: impl Iterator<Item = Option<SnippetIx>>,
    scope: &dyn Scope,
    evaluator: &mut dyn Evaluator,
) -> Result<Outcome, Unevaluated> {
    // Absent templates stay as `None`, so that the receiver finds each text by its position.
    let mut texts = Vec::with_capacity(snippets.size_hint().0);
    for snippet in snippets {
        texts.push(match snippet {
            Some(snippet) => Some(text(graph, snippet, scope, evaluator)?),
            None => None,
        });
    }
    Ok(Outcome::Texts(texts))
}

fn text(
    graph: &Graph,
    snippet: SnippetIx,
    scope: &dyn Scope,
    evaluator: &mut dyn Evaluator,
) -> Result<String, Unevaluated> {
    let source = &graph.snippet(snippet).source;
    // Compiled templates are looked up by snippet; a literal text skips that.
    if source.contains("{{") {
        evaluator.text(graph, snippet, scope)
    } else {
        // No placeholder: the template is its own result.
        Ok((**source).to_owned())
    }
}
