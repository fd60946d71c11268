//! Agents of a script, compared with the nodes of a graph that call the same model: in sequence and many at once.

use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use pirn::{Engine, Model, ModelCall, ModelReply, RunError, TokenUsage};
use serde_json::{Value, json};

use pirn_benches::compare::Times;
use pirn_benches::sides::workflows::line;

use crate::{Measured, completed, engine};

const ROUNDS: usize = 31;
/// Agents of the workload in sequence.
const STEPS: usize = 100;
/// Agents of the workload at once.
const MANY: usize = 1_000;
const CONCURRENCY: usize = 16;

/// Model that replies at once.
struct Fixed;

impl Model for Fixed {
    fn call(&self, _call: ModelCall) -> BoxFuture<'static, Result<ModelReply, RunError>> {
        let reply = ModelReply {
            content: "reply".to_owned(),
            usage: TokenUsage::new(10, 5, 15),
            ..ModelReply::default()
        };
        std::future::ready(Ok(reply)).boxed()
    }
}

/// Measures the microseconds of an agent: two pairs of a graph and a script, whose bound is compared with the graph.
pub(crate) async fn measure() -> std::io::Result<Vec<Measured>> {
    let in_sequence = format!("for (let i = 0; i < {STEPS}; i++) await agent('question'); return 1");
    let at_once = format!("await parallel(Array.from({{ length: {MANY} }}, () => () => agent('question'))); return 1");
    let sides = [
        ("an LLM node, in sequence", line("main", STEPS, &llm()), STEPS, ""),
        ("`agent()`, in sequence", script(&in_sequence), STEPS, "2 x an LLM node"),
        ("a MAP item with an LLM node, of 1,000", map(), MANY, ""),
        (
            "`agent()` in `parallel`, of 1,000",
            script(&at_once),
            MANY,
            "3 x a MAP item",
        ),
    ];
    let mut measured = Vec::new();
    for (side, workflows, agents, most) in sides {
        let engine = engine(Engine::builder().model("default", Arc::new(Fixed)), &workflows)?;
        measured.push((engine, side, agents, Vec::new(), most));
    }
    // The first round of each is a warm-up.
    for round in 0..=ROUNDS {
        for (engine, _, agents, us, _) in &mut measured {
            let all = completed(engine, "main").await?;
            if round > 0 {
                us.push(all / *agents as f64);
            }
        }
    }
    let rows = measured.into_iter();
    Ok(rows.map(|(_, side, _, us, most)| (Times::of(side, us), most)).collect())
}

fn llm() -> Value {
    json!({"type": "LLM", "config": {"prompt": "question"}})
}

fn script(code: &str) -> Value {
    let limits = json!({"agents": MANY, "concurrency": CONCURRENCY});
    line(
        "main",
        1,
        &json!({"type": "SCRIPT", "config": {"code": code, "limits": limits}}),
    )
}

fn map() -> Value {
    let items: Vec<usize> = (0..MANY).collect();
    let config = json!({"items": items, "subgraphId": "item", "concurrency": CONCURRENCY});
    let map = line("main", 1, &json!({"type": "MAP", "config": config}));
    json!({"workflows": [map, line("item", 1, &llm())]})
}
