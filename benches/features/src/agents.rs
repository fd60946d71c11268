//! Agents of a script, compared with the nodes of a graph that call the same model: in sequence and many at once.

use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use pirn::{Engine, Model, ModelCall, ModelReply, RunError, TokenUsage};
use serde_json::{Value, json};

use pirn_benches::compare::Times;

use crate::completed;

const ROUNDS: usize = 31;
/// Agents of the workload in sequence.
const STEPS: usize = 100;
/// Agents of the workload at once.
const MANY: usize = 1_000;
const CONCURRENCY: usize = 16;

/// Times of an agent, and the bound of their median compared with the node in the row before; empty for the node.
pub(crate) type Measured = (Times, &'static str);

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

/// Measures the microseconds of an agent: two pairs of a graph and a script.
pub(crate) async fn measure() -> std::io::Result<Vec<Measured>> {
    let in_sequence = format!("for (let i = 0; i < {STEPS}; i++) await agent('question'); return 1");
    let at_once = format!("await parallel(Array.from({{ length: {MANY} }}, () => () => agent('question'))); return 1");
    let sides = [
        ("an LLM node, in sequence", chain(), STEPS, ""),
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
        let engine = Engine::builder()
            .model("default", Arc::new(Fixed))
            .workflows(workflows.to_string())
            .build();
        let engine = engine.map_err(|error| std::io::Error::other(error.to_string()))?;
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

fn node(id: &str, kind: &str, config: &Value) -> Value {
    json!({"id": id, "type": kind, "config": config})
}

/// Returns a workflow with these nodes in a row.
fn row(id: &str, mut steps: Vec<Value>) -> Value {
    steps.insert(0, node("start", "START", &json!({})));
    steps.push(node("end", "END", &json!({})));
    let edges = steps
        .windows(2)
        .map(|pair| json!({"from": pair[0]["id"], "to": pair[1]["id"]}));
    let edges: Vec<Value> = edges.collect();
    json!({"id": id, "nodes": steps, "edges": edges})
}

fn chain() -> Value {
    let step = |place| node(&format!("s{place}"), "LLM", &json!({"prompt": "question"}));
    row("main", (0..STEPS).map(step).collect())
}

fn script(code: &str) -> Value {
    let limits = json!({"agents": MANY, "concurrency": CONCURRENCY});
    row(
        "main",
        vec![node("plan", "SCRIPT", &json!({"code": code, "limits": limits}))],
    )
}

fn map() -> Value {
    let items: Vec<usize> = (0..MANY).collect();
    let map = json!({"items": items, "subgraphId": "item", "concurrency": CONCURRENCY});
    let item = row("item", vec![node("ask", "LLM", &json!({"prompt": "question"}))]);
    json!({"workflows": [row("main", vec![node("map", "MAP", &map)]), item]})
}
