//! Environment of a run without actors: workflows, and constant answers.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use pirn_conversation::conversation::{Estimator, MessageRules, ModelRequest, Tokenizer};
use pirn_conversation::model_call::CallBound;
use pirn_core::run::{CallResult, EventInterest, RunEnvironment};
use pirn_core::thread::{Evaluation, ModelChoice, Outcome, Output, ThreadMachine, ThreadScope};
use pirn_definition::definition::{Fault, SourceFile, load};
use pirn_definition::graph::{CompileContext, Graph, NodeIx, NodeKind, compile_inline, compile_loaded};
use pirn_definition::script::Scope;
use pirn_events::event::EventMask;
use serde_json::json;

/// Maximum number of tokens in a reply of the profile `writer`.
pub(crate) const WRITER: u64 = 40;

/// Registered workflows, those written during a run, and constant answers.
#[derive(Clone)]
pub(crate) struct Workflows(BTreeMap<String, Arc<Graph>>, RefCell<BTreeMap<Arc<str>, Arc<Graph>>>);

pub(crate) const LISTENING: EventInterest = EventInterest {
    interest: EventMask::ALL,
    watched: EventMask::NONE,
    holding: EventMask::NONE,
};

impl Workflows {
    pub(crate) fn of(bundle: &str) -> Self {
        let loaded = load(&SourceFile::new("test.json", bundle.to_owned()));
        let compiled = compile_loaded(&loaded, &CompileContext::default());
        assert!(compiled.faults.is_empty(), "{:?}", compiled.faults);
        let graphs = compiled.graphs.into_iter();
        Self(
            graphs.map(|graph| (graph.workflow_id.to_string(), graph)).collect(),
            RefCell::default(),
        )
    }
}

impl RunEnvironment for Workflows {
    fn listening(&self) -> EventInterest {
        LISTENING
    }
    fn graph(&self, workflow_id: &str) -> Option<Arc<Graph>> {
        self.0.get(workflow_id).cloned()
    }
    fn compile(&self, source: &Arc<str>) -> Result<Arc<Graph>, Vec<Fault>> {
        let registered: Vec<_> = self.0.values().cloned().collect();
        let mut inline = self.1.borrow_mut();
        if let Some(graph) = inline.get(source) {
            return Ok(Arc::clone(graph));
        }
        let context = CompileContext {
            registered: &registered,
            first_uid: 1_000 + inline.len() as u64,
            ..CompileContext::default()
        };
        let graph = compile_inline(source, &context)?;
        inline.insert(Arc::clone(source), Arc::clone(&graph));
        Ok(graph)
    }
    fn token_limit(&self, _: &Graph) -> Option<u64> {
        None
    }
    fn tokenizer(&self, _: &Graph) -> Arc<dyn Tokenizer> {
        Arc::new(Estimator)
    }
    /// Price of a million tokens: 1 for input, 2 for output.
    fn call_bound(&self, _: &ModelRequest, chosen: &ModelChoice) -> CallBound {
        let own = chosen
            .parameters
            .as_ref()
            .and_then(|own| own.get("maxTokens")?.as_u64());
        CallBound {
            output: own.or((chosen.profile_id.as_deref() == Some("writer")).then_some(WRITER)),
            prices: serde_json::from_value(json!({"input": 1, "output": 2})).ok(),
        }
    }
    fn tool_tokens(&self, _: &Graph, _: &[Arc<str>]) -> u64 {
        0
    }
    fn message_rules(&self, _: Option<&str>) -> MessageRules {
        MessageRules::default()
    }
    fn evaluate(
        &mut self,
        graph: &Arc<Graph>,
        node: NodeIx,
        what: Evaluation,
        scope: &ThreadScope<'_>,
    ) -> Option<Outcome> {
        match &graph.node(node).kind {
            NodeKind::Map(map) => return Some(Outcome::Value(Arc::new(json!(vec![0; map.max_items as usize])))),
            NodeKind::LoopEnd { .. } if matches!(what, Evaluation::Value(_)) => {
                return Some(Outcome::Value(Arc::new(json!(false))));
            }
            _ => {}
        }
        Some(match what {
            Evaluation::Edges | Evaluation::Routes => Outcome::Choice(Some(0)),
            Evaluation::Value(_) | Evaluation::Input | Evaluation::Pin | Evaluation::Folds(_) => {
                Outcome::Value(scope.output())
            }
            Evaluation::Prompt | Evaluation::Texts => Outcome::Texts(vec![Some("text".into()), None]),
        })
    }
    fn call(&mut self, function: &str, _: &Output, _: &ThreadMachine) -> CallResult {
        match function {
            "work" => CallResult::TakesTime,
            name => CallResult::Done(Ok(json!(name))),
        }
    }
}
