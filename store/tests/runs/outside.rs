//! The outside of a run: workflows, and whoever does what it asks for. The latter outlives the run's process.

use std::collections::BTreeMap;
use std::sync::Arc;

use pirn_core::conversation::{Estimator, MessageRules, Tokenizer};
use pirn_core::definition::{SourceFile, load};
use pirn_core::error::{RunError, RunErrorCode};
use pirn_core::event::EventMask;
use pirn_core::graph::{CompileContext, Graph, NodeIx, NodeKind, compile_loaded};
use pirn_core::message::{Role, ToolCall};
use pirn_core::run::{Called, Listening, World};
use pirn_core::script::Scope;
use pirn_core::thread::{
    ConsentRequest, Effect, Evaluation, ModelReply, Outcome, Output, PersonsAnswer, ThreadMachine, ThreadScope,
    ToolResult,
};
use serde_json::{Value, json};

/// Workflows, and answers that depend on nothing.
#[derive(Clone)]
pub(crate) struct Workflows(BTreeMap<String, Arc<Graph>>);

pub(crate) const LISTENING: Listening = Listening {
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
        Self(graphs.map(|graph| (graph.workflow_id.to_string(), graph)).collect())
    }
}

impl World for Workflows {
    fn listening(&self) -> Listening {
        LISTENING
    }
    fn graph(&self, workflow_id: &str) -> Option<Arc<Graph>> {
        self.0.get(workflow_id).cloned()
    }
    fn token_limit(&self, _: &Graph) -> Option<u64> {
        None
    }
    fn tokenizer(&self, _: &Graph) -> Arc<dyn Tokenizer> {
        Arc::new(Estimator)
    }
    fn tool_tokens(&self, _: &[Arc<str>], _: &dyn Tokenizer) -> u64 {
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
    fn call(&mut self, function: &str, _: &Output, _: &ThreadMachine) -> Called {
        match function {
            "work" => Called::TakesTime,
            name => Called::Done(Ok(json!(name))),
        }
    }
}

/// Whoever does what a run asks for, and hears of it. It knows an effect by its key, and so does it once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Receiver {
    /// Number of times that each was asked for.
    pub(crate) asked: BTreeMap<String, u32>,
    /// Every event that was told, in order.
    pub(crate) events: Vec<String>,
    /// Every outcome of the run that was told.
    pub(crate) reports: Vec<String>,
}

impl Receiver {
    /// Does it, or says once more what came of it: by its key and nothing else.
    pub(crate) fn perform(&mut self, key: &str, seed: u64, effect: &Effect) -> Outcome {
        *self.asked.entry(key.to_owned()).or_default() += 1;
        let chance = mix(key
            .bytes()
            .fold(seed, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into())));
        match effect {
            Effect::Function { .. } | Effect::Script { .. } if chance.is_multiple_of(4) => {
                Outcome::Failed(RunError::new(RunErrorCode::NodeFailed, "on purpose"))
            }
            Effect::Function { .. } | Effect::Script { .. } => {
                Outcome::Value(Arc::new(json!({ "did": key, "float": 0.1 + 0.2 })))
            }
            Effect::Model { request, .. } => Outcome::Reply(Box::new(reply(
                key,
                request.messages.last().map(|message| message.role),
            ))),
            Effect::Ask { .. } if chance.is_multiple_of(3) => answered(json!("refuse")),
            Effect::Ask { .. } => answered(json!({"decision": "allow", "arguments": {"by": key}})),
            Effect::Tool {
                call,
                is_consented: false,
                ..
            } if chance.is_multiple_of(3) => Outcome::NeedsConsent(Box::new(ConsentRequest {
                reason: "by chance".into(),
                arguments: call.arguments.clone(),
                schema: json!({}),
                timeout_ms: None,
            })),
            Effect::Tool { call, .. } => Outcome::Tool(ToolResult {
                content: format!("{} did {key}", call.name),
                failed: chance.is_multiple_of(5),
                ..ToolResult::default()
            }),
            other => panic!("nobody does {other:?}"),
        }
    }
}

fn answered(answer: Value) -> Outcome {
    Outcome::Answered(PersonsAnswer {
        answer: Arc::new(answer),
        by: None,
        at: 0,
    })
}

/// Two tools at first, and when they have answered, a text.
fn reply(key: &str, last: Option<Role>) -> ModelReply {
    let call = |number: u32| ToolCall {
        id: format!("{key}-{number}"),
        name: "look".to_owned(),
        arguments: Value::Null,
    };
    let tool_calls = if last == Some(Role::Tool) {
        Vec::new()
    } else {
        vec![call(1), call(2)]
    };
    ModelReply {
        content: format!("says {key}"),
        tool_calls,
        ..ModelReply::default()
    }
}

pub(crate) fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}
