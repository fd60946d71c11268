//! The world of a run's machine: its engine's evaluator, functions, tokenizers and workflows, called in place.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use pirn_core::conversation::{MessageRules, Tokenizer};
use pirn_core::graph::{Graph, NodeIx, NodeKind};
use pirn_core::run::{Begun, Called, Effect, Listening, RunMachine, ThreadNo, Told, World};
use pirn_core::thread::{Evaluation, Input, Outcome, Output, ThreadScope, evaluate};
use serde_json::Value;

use crate::cause::with_trigger_depth;
use crate::engine::{EngineShared, SharedEvaluator};
use crate::host::Sign;
use crate::ports::{Function, TextJob, Texts};
use crate::run::RunShared;

/// A tokenizer, and what a workflow calls it.
type NamedTokenizer = (Option<String>, Arc<dyn Tokenizer>);

/// What a run calls in place.
pub(crate) struct InPlace {
    engine: Arc<EngineShared>,
    evaluator: SharedEvaluator,
    /// Each is asked for once a run: a fork whose branches all speak does not make one for each.
    tokenizers: RefCell<Vec<NamedTokenizer>>,
}

impl InPlace {
    pub(crate) fn new(engine: Arc<EngineShared>, evaluator: SharedEvaluator) -> Self {
        Self {
            engine,
            evaluator,
            tokenizers: RefCell::default(),
        }
    }

    fn tokenizer(&self, name: Option<&str>) -> Arc<dyn Tokenizer> {
        // A run has few workflows, most one.
        let known = |known: &&NamedTokenizer| known.0.as_deref() == name;
        if let Some((_, tokenizer)) = self.tokenizers.borrow().iter().find(known) {
            return Arc::clone(tokenizer);
        }
        let tokenizer = (self.engine.ports.tokenizer)(name);
        let mut tokenizers = self.tokenizers.borrow_mut();
        tokenizers.reserve_exact(1);
        tokenizers.push((name.map(str::to_owned), Arc::clone(&tokenizer)));
        tokenizer
    }

    /// That of the first LLM node's profile.
    fn token_limit(&self, graph: &Graph) -> Option<u64> {
        let profile_id = graph.nodes.iter().find_map(|node| match &node.kind {
            NodeKind::Llm(llm) => Some(llm.profile_id.as_deref()),
            _ => None,
        })?;
        self.engine.ports.models.choose(profile_id).0.token_limit
    }

    fn message_rules(&self, profile_id: Option<&str>) -> MessageRules {
        self.engine.ports.models.choose(profile_id).1.message_rules()
    }

    fn tool_tokens(&self, tools: &[Arc<str>], tokenizer: &dyn Tokenizer) -> u64 {
        let specs = self.engine.ports.tools.specs(tools);
        let texts = specs
            .iter()
            .map(|spec| format!("{} {} {}", spec.name, spec.description, spec.parameters));
        texts.map(|text| tokenizer.count(&text)).sum()
    }

    fn evaluate(
        &self,
        run_id: &Arc<str>,
        graph: &Arc<Graph>,
        (node, what): (NodeIx, Evaluation),
        scope: &ThreadScope<'_>,
    ) -> Option<Outcome> {
        let in_place = evaluate(graph, node, what, scope, &mut **self.evaluator.borrow_mut());
        if in_place.is_some() || !self.engine.is_simulated {
            return in_place;
        }
        // Virtual time stands still meanwhile: an evaluation is no moment at which something else can happen.
        let job = TextJob {
            run_id: Arc::clone(run_id),
            texts: Texts::of_node(graph, node, what, scope),
        };
        Some(self.engine.ports.scripts.evaluate_here(job))
    }

    fn call(&self, function: &str, input: &Output, trigger_depth: u32) -> Called {
        match self.engine.ports.functions.get(function) {
            Some(Function::Inline(function)) => {
                Called::Done(with_trigger_depth(trigger_depth, || function(&input.into())))
            }
            Some(Function::Work(_)) => Called::TakesTime,
            None => Called::Unknown,
        }
    }
}

/// The world of a run that is carried by its actors.
pub(crate) struct RunWorld<'a>(pub(crate) &'a RunShared);

impl World for RunWorld<'_> {
    fn listening(&self) -> Listening {
        self.0.listening()
    }
    fn graph(&self, workflow_id: &str) -> Option<Arc<Graph>> {
        self.0.engine.graph(workflow_id)
    }
    fn token_limit(&self, graph: &Graph) -> Option<u64> {
        self.0.in_place.token_limit(graph)
    }
    fn tokenizer(&self, name: Option<&str>) -> Arc<dyn Tokenizer> {
        self.0.in_place.tokenizer(name)
    }
    fn message_rules(&self, profile_id: Option<&str>) -> MessageRules {
        self.0.in_place.message_rules(profile_id)
    }
    fn tool_tokens(&self, tools: &[Arc<str>], tokenizer: &dyn Tokenizer) -> u64 {
        self.0.in_place.tool_tokens(tools, tokenizer)
    }
    fn evaluate(
        &mut self,
        graph: &Arc<Graph>,
        node: NodeIx,
        what: Evaluation,
        scope: &ThreadScope<'_>,
    ) -> Option<Outcome> {
        self.0.in_place.evaluate(&self.0.run_id, graph, (node, what), scope)
    }
    fn call(&mut self, function: &str, input: &Output, trigger_depth: u32) -> Called {
        self.0.in_place.call(function, input, trigger_depth)
    }
    fn picks_starts(&self) -> bool {
        self.0.engine.is_simulated
    }
    fn heard(&mut self, thread: ThreadNo, input: &Input) {
        self.0.host.tell(|| Sign::Heard {
            run: Arc::clone(&self.0.run_id),
            thread,
            text: format!("{input:?}"),
        });
    }
    fn shared(&mut self, name: fmt::Arguments<'_>, value: &Value) {
        self.0.host.tell(|| Sign::Shared {
            run: Arc::clone(&self.0.run_id),
            name: name.to_string(),
            text: value.to_string(),
        });
    }
}

/// The world of a run that is rebuilt from what it was told.
struct Rebuilding {
    run_id: Arc<str>,
    in_place: InPlace,
    listening: Listening,
}

impl World for Rebuilding {
    fn listening(&self) -> Listening {
        self.listening
    }
    fn graph(&self, workflow_id: &str) -> Option<Arc<Graph>> {
        self.in_place.engine.graph(workflow_id)
    }
    fn token_limit(&self, graph: &Graph) -> Option<u64> {
        self.in_place.token_limit(graph)
    }
    fn tokenizer(&self, name: Option<&str>) -> Arc<dyn Tokenizer> {
        self.in_place.tokenizer(name)
    }
    fn message_rules(&self, profile_id: Option<&str>) -> MessageRules {
        self.in_place.message_rules(profile_id)
    }
    fn tool_tokens(&self, tools: &[Arc<str>], tokenizer: &dyn Tokenizer) -> u64 {
        self.in_place.tool_tokens(tools, tokenizer)
    }
    fn evaluate(
        &mut self,
        graph: &Arc<Graph>,
        node: NodeIx,
        what: Evaluation,
        scope: &ThreadScope<'_>,
    ) -> Option<Outcome> {
        self.in_place.evaluate(&self.run_id, graph, (node, what), scope)
    }
    fn call(&mut self, function: &str, input: &Output, trigger_depth: u32) -> Called {
        self.in_place.call(function, input, trigger_depth)
    }
    fn picks_starts(&self) -> bool {
        self.in_place.engine.is_simulated
    }
}

impl EngineShared {
    /// A run of this engine as it was, and what it wanted done all along, from what a [journal](crate::journal) has of it.
    /// Nothing of that is done: what is called in place alone is called again.
    pub fn rebuild(self: &Arc<Self>, begun: Begun, told: impl IntoIterator<Item = Told>) -> (RunMachine, Vec<Effect>) {
        let evaluator = Rc::new(RefCell::new((self.ports.evaluator)()));
        let mut world = Rebuilding {
            run_id: Arc::clone(&begun.seed.run_id),
            in_place: InPlace::new(Arc::clone(self), evaluator),
            listening: begun.listening,
        };
        let mut effects = Vec::new();
        let listen = |world: &mut Rebuilding, listening| world.listening = listening;
        let machine = RunMachine::rebuild(begun, told, &mut world, listen, &mut effects);
        (machine, effects)
    }
}
