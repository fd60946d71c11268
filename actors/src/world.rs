//! The world of a run's machine: its engine's evaluator, functions, tokenizers and workflows, called in place.

use std::fmt;
use std::sync::Arc;

use pirn_core::conversation::Tokenizer;
use pirn_core::graph::{Graph, NodeIx, NodeKind};
use pirn_core::run::{Called, Listening, ThreadNo, World};
use pirn_core::script::Scope;
use pirn_core::thread::{Evaluation, Input, Outcome, Output, evaluate};
use serde_json::Value;

use crate::cause::with_trigger_depth;
use crate::host::Sign;
use crate::ports::Function;
use crate::run::RunShared;

/// See the module.
pub(crate) struct RunWorld<'a>(pub(crate) &'a RunShared);

impl World for RunWorld<'_> {
    fn listening(&self) -> Listening {
        self.0.listening()
    }

    fn graph(&self, workflow_id: &str) -> Option<Arc<Graph>> {
        self.0.engine.graph(workflow_id)
    }

    /// That of the first LLM node's profile.
    fn token_limit(&self, graph: &Graph) -> Option<u64> {
        let profile_id = graph.nodes.iter().find_map(|node| match &node.kind {
            NodeKind::Llm(llm) => Some(llm.profile_id.as_deref()),
            _ => None,
        })?;
        self.0.engine.ports.models.choose(profile_id).0.token_limit
    }

    fn tokenizer(&self, name: Option<&str>) -> Arc<dyn Tokenizer> {
        self.0.tokenizer(name)
    }

    fn tool_tokens(&self, tools: &[Arc<str>], tokenizer: &dyn Tokenizer) -> u64 {
        let specs = self.0.engine.ports.tools.specs(tools);
        let texts = specs
            .iter()
            .map(|spec| format!("{} {} {}", spec.name, spec.description, spec.parameters));
        texts.map(|text| tokenizer.count(&text)).sum()
    }

    fn evaluate(&mut self, graph: &Graph, node: NodeIx, what: Evaluation, scope: &dyn Scope) -> Outcome {
        evaluate(graph, node, what, scope, &mut **self.0.local.evaluator.borrow_mut())
    }

    fn call(&mut self, function: &str, input: &Output, trigger_depth: u32) -> Called {
        match self.0.engine.ports.functions.get(function) {
            Some(Function::Inline(function)) => {
                Called::Done(with_trigger_depth(trigger_depth, || function(&input.into())))
            }
            Some(Function::Work(_)) => Called::TakesTime,
            None => Called::Unknown,
        }
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
