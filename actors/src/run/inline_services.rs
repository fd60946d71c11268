//! The evaluator, functions and tokenizers that a run calls inline.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use pirn_conversation::conversation::compression::SummaryUse;
use pirn_conversation::conversation::{MessageRules, ModelRequest, Tokenizer};
use pirn_conversation::model_call::CallBound;
use pirn_core::run::CallResult;
use pirn_core::thread::{Evaluation, ModelChoice, Outcome, Output, ThreadScope, evaluate};
use pirn_definition::definition::Fault;
use pirn_definition::graph::{Evaluator, Graph, NodeIx};

use super::call_settings::specs;
use crate::calls::current_call::with_trigger_depth;
use crate::journal::Graphs;
use crate::ports::{CallContext, Function, Input, Models, Ports, first_profile, laid_over_profile};
use crate::protocol::engine::EngineHandle;

/// Maximum number of cached workflows that were written during a run.
const MAX_INLINE: usize = 64;

/// An evaluator shared by the runs of one arbiter.
pub(crate) type SharedEvaluator = Rc<RefCell<Box<dyn Evaluator>>>;

/// A tokenizer, with the number of the graph that uses it.
type TokenizerOf = (u64, Arc<dyn Tokenizer>);

/// The evaluator, functions and tokenizers that a run calls inline.
pub(crate) struct InlineServices {
    ports: Arc<Ports>,
    /// The models of this run.
    models: Arc<dyn Models>,
    engine: Arc<dyn EngineHandle>,
    /// The workflows as they were when the run started.
    graphs: Graphs,
    /// Compiled workflows that were written during the run, by their source.
    inline: RefCell<BTreeMap<Arc<str>, Arc<Graph>>>,
    evaluator: SharedEvaluator,
    /// Created once per run, because creation is expensive and every branch of a fork needs one.
    tokenizers: RefCell<Vec<TokenizerOf>>,
}

impl InlineServices {
    pub(crate) fn new(
        ports: Arc<Ports>,
        engine: Arc<dyn EngineHandle>,
        graphs: Graphs,
        evaluator: SharedEvaluator,
    ) -> Self {
        // Requested once, so that all calls of a run use one set of models.
        let models = ports
            .models
            .of_run(&graphs)
            .unwrap_or_else(|| Arc::clone(&ports.models));
        Self {
            ports,
            models,
            engine,
            graphs,
            inline: RefCell::default(),
            evaluator,
            tokenizers: RefCell::default(),
        }
    }

    /// Creates a private evaluator, for a replay on any thread.
    pub(crate) fn apart(ports: Arc<Ports>, engine: Arc<dyn EngineHandle>, graphs: Graphs) -> Self {
        let evaluator = Rc::new(RefCell::new((ports.evaluator)()));
        Self::new(ports, engine, graphs, evaluator)
    }

    /// Returns the parts that [`Self::apart`] needs on another thread.
    pub(crate) fn parts(&self) -> (Arc<Ports>, Arc<dyn EngineHandle>, Graphs) {
        (
            Arc::clone(&self.ports),
            Arc::clone(&self.engine),
            Arc::clone(&self.graphs),
        )
    }

    pub(crate) fn ports(&self) -> &Ports {
        &self.ports
    }

    pub(crate) fn models(&self) -> &dyn Models {
        &*self.models
    }

    pub(crate) fn engine(&self) -> &Arc<dyn EngineHandle> {
        &self.engine
    }

    pub(crate) fn graphs(&self) -> &Graphs {
        &self.graphs
    }

    /// Compiles a workflow that was written during the run, once for equal sources.
    pub(crate) fn compile(&self, source: &Arc<str>) -> Result<Arc<Graph>, Vec<Fault>> {
        if let Some(graph) = self.inline.borrow().get(source) {
            return Ok(Arc::clone(graph));
        }
        let registered: Vec<Arc<Graph>> = self.graphs.values().cloned().collect();
        let graph = (self.ports.compile)(source, &registered)?;
        let mut inline = self.inline.borrow_mut();
        // The threads of the run hold the graphs that they walk.
        if inline.len() >= MAX_INLINE {
            inline.clear();
        }
        inline.insert(Arc::clone(source), Arc::clone(&graph));
        Ok(graph)
    }

    pub(crate) fn tokenizer(&self, graph: &Graph) -> Arc<dyn Tokenizer> {
        // A linear search: a run has few workflows, most have one.
        let known = |known: &&TokenizerOf| known.0 == graph.uid;
        if let Some((_, tokenizer)) = self.tokenizers.borrow().iter().find(known) {
            return Arc::clone(tokenizer);
        }
        let tokenizer = self.ports.tokenizer_of(&*self.models, Some(graph));
        let mut tokenizers = self.tokenizers.borrow_mut();
        // Exact, because most runs have one workflow.
        tokenizers.reserve_exact(1);
        tokenizers.push((graph.uid, Arc::clone(&tokenizer)));
        tokenizer
    }

    /// Returns the token limit of the first LLM node's profile.
    pub(crate) fn token_limit(&self, graph: &Graph) -> Option<u64> {
        first_profile(&*self.models, graph)?.token_limit
    }

    pub(crate) fn message_rules(&self, profile_id: Option<&str>) -> MessageRules {
        self.models.choose(profile_id).1.message_rules()
    }

    pub(crate) fn profile(&self, profile_id: Option<&str>) -> Arc<str> {
        Arc::from(&*self.models.choose(profile_id).0.id)
    }

    pub(crate) fn summary_use(&self, profile_id: Option<&str>) -> SummaryUse {
        match &*self.models.choose(profile_id).0.provider {
            "extractive" => SummaryUse::Never,
            "echo" | "scripted" => SummaryUse::IfNamed,
            _ => SummaryUse::Always,
        }
    }

    pub(crate) fn call_bound(&self, request: &ModelRequest, chosen: &ModelChoice) -> CallBound {
        let (profile, model) = self.models.choose(chosen.profile_id.as_deref());
        model.call_bound(request, &laid_over_profile(&profile, chosen.parameters.as_deref()))
    }

    pub(crate) fn tool_tokens(&self, tools: &[Arc<str>], tokenizer: &dyn Tokenizer) -> u64 {
        let specs = specs(&*self.ports.tools, &self.graphs, tools);
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

    /// Calls a function for a thread's current node; `context` is its origin.
    pub(crate) fn call(
        &self,
        function: &str,
        input: &Output,
        trigger_depth: u32,
        context: &(dyn Fn() -> CallContext + Sync),
    ) -> CallResult {
        match self.ports.functions.get(function) {
            Some(Function::Inline(function)) => {
                let input = Input::from(input).called_from(context);
                CallResult::Done(with_trigger_depth(trigger_depth, || function(&input)))
            }
            // The machine then requests the call as an effect, which a thread actor starts.
            Some(Function::Work(_)) => CallResult::TakesTime,
            None => CallResult::Unknown,
        }
    }
}
