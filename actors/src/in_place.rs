//! What a run calls in place: its engine's evaluator, functions, tokenizers.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use pirn_core::conversation::{MessageRules, Tokenizer};
use pirn_core::graph::{Evaluator, Graph, NodeIx, NodeKind};
use pirn_core::run::Called;
use pirn_core::thread::{Evaluation, Outcome, Output, ThreadScope, evaluate};

use crate::cause::with_trigger_depth;
use crate::ports::{Function, Ports};
use crate::protocol::engine::EngineHandle;

/// An evaluator that the runs of one arbiter share.
pub(crate) type SharedEvaluator = Rc<RefCell<Box<dyn Evaluator>>>;

/// A tokenizer, and what a workflow calls it.
type NamedTokenizer = (Option<String>, Arc<dyn Tokenizer>);

/// What a run calls in place.
pub(crate) struct InPlace {
    ports: Arc<Ports>,
    engine: Arc<dyn EngineHandle>,
    evaluator: SharedEvaluator,
    /// Each is asked for once a run: a fork whose branches all speak does not make one for each.
    tokenizers: RefCell<Vec<NamedTokenizer>>,
}

impl InPlace {
    pub(crate) fn new(ports: Arc<Ports>, engine: Arc<dyn EngineHandle>, evaluator: SharedEvaluator) -> Self {
        Self {
            ports,
            engine,
            evaluator,
            tokenizers: RefCell::default(),
        }
    }

    pub(crate) fn ports(&self) -> &Ports {
        &self.ports
    }

    pub(crate) fn engine(&self) -> &Arc<dyn EngineHandle> {
        &self.engine
    }

    pub(crate) fn tokenizer(&self, name: Option<&str>) -> Arc<dyn Tokenizer> {
        // A run has few workflows, most one.
        let known = |known: &&NamedTokenizer| known.0.as_deref() == name;
        if let Some((_, tokenizer)) = self.tokenizers.borrow().iter().find(known) {
            return Arc::clone(tokenizer);
        }
        let tokenizer = (self.ports.tokenizer)(name);
        let mut tokenizers = self.tokenizers.borrow_mut();
        tokenizers.reserve_exact(1);
        tokenizers.push((name.map(str::to_owned), Arc::clone(&tokenizer)));
        tokenizer
    }

    /// That of the first LLM node's profile.
    pub(crate) fn token_limit(&self, graph: &Graph) -> Option<u64> {
        let profile_id = graph.nodes.iter().find_map(|node| match &node.kind {
            NodeKind::Llm(llm) => Some(llm.profile_id.as_deref()),
            _ => None,
        })?;
        self.ports.models.choose(profile_id).0.token_limit
    }

    pub(crate) fn message_rules(&self, profile_id: Option<&str>) -> MessageRules {
        self.ports.models.choose(profile_id).1.message_rules()
    }

    pub(crate) fn tool_tokens(&self, tools: &[Arc<str>], tokenizer: &dyn Tokenizer) -> u64 {
        let specs = self.ports.tools.specs(tools);
        let texts = specs
            .iter()
            .map(|spec| format!("{} {} {}", spec.name, spec.description, spec.parameters));
        texts.map(|text| tokenizer.count(&text)).sum()
    }

    pub(crate) fn evaluate(
        &self,
        graph: &Arc<Graph>,
        node: NodeIx,
        what: Evaluation,
        scope: &ThreadScope<'_>,
    ) -> Option<Outcome> {
        evaluate(graph, node, what, scope, &mut **self.evaluator.borrow_mut())
    }

    pub(crate) fn call(&self, function: &str, input: &Output, trigger_depth: u32) -> Called {
        match self.ports.functions.get(function) {
            Some(Function::Inline(function)) => {
                Called::Done(with_trigger_depth(trigger_depth, || function(&input.into())))
            }
            Some(Function::Work(_)) => Called::TakesTime,
            None => Called::Unknown,
        }
    }
}
