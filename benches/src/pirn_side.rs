//! The same workloads on the real engine, features on: isolation, containment, supervision.

#![allow(clippy::missing_panics_doc)] // a workload that fails is no measurement

use pirn::{Engine, Message, Role, ThreadStatus};
use serde_json::{Value, json};

use crate::timed;

/// An engine with every workload's workflow of these sizes.
pub fn engine(chain: usize, forks: &[usize], waits: usize) -> Engine {
    let mut builder = Engine::builder()
        .function("next", |input| Ok(json!(input.as_u64().unwrap_or(0) + 1)))
        .workflows(chain_of(chain).to_string())
        .workflows(waits_of(waits).to_string());
    for branches in forks {
        builder = builder.workflows(
            fork_of(
                &format!("fork-{branches}"),
                *branches,
                &json!({"type": "CODE", "config": {"function": "next"}}),
            )
            .to_string(),
        );
    }
    let insert = json!({"type": "CONTEXT_PROCESSOR", "config": {"operation": "insert", "messages": [{"role": "user", "content": "mine"}]}});
    builder
        .workflows(fork_of("talk", 100, &insert).to_string())
        .build()
        .expect("the workloads are valid")
}

fn chain_of(nodes: usize) -> Value {
    let mut list = vec![json!({"id": "start", "type": "START"})];
    list.extend((0..nodes).map(|n| json!({"id": format!("n{n}"), "type": "CODE", "config": {"function": "next"}})));
    list.push(json!({"id": "end", "type": "END"}));
    json!({"id": "chain", "nodes": list, "edges": in_a_row(&list), "config": {"maxSteps": nodes + 2}})
}

fn waits_of(nodes: usize) -> Value {
    let mut list = vec![json!({"id": "start", "type": "START"})];
    list.extend((0..nodes).map(|n| json!({"id": format!("n{n}"), "type": "WAIT", "config": {"seconds": 0.001}})));
    list.push(json!({"id": "end", "type": "END"}));
    json!({"id": "waits", "nodes": list, "edges": in_a_row(&list)})
}

fn in_a_row(nodes: &[Value]) -> Vec<Value> {
    nodes
        .windows(2)
        .map(|pair| json!({"from": pair[0]["id"], "to": pair[1]["id"]}))
        .collect()
}

fn fork_of(id: &str, branches: usize, node: &Value) -> Value {
    let paths: Vec<String> = (0..branches).map(|n| format!("p{n}")).collect();
    let children: Vec<String> = (0..branches).map(|n| format!("b{n}")).collect();
    let mut nodes = vec![
        json!({"id": "start", "type": "START"}),
        json!({"id": "fork", "type": "FORK", "config": {"forkPathIds": paths, "childNodeIds": children, "forkStrategy": "parallel"}}),
        json!({"id": "join", "type": "JOIN", "config": {"forkPathIds": paths, "joinStrategy": "ALL_COMPLETED"}}),
        json!({"id": "end", "type": "END", "config": {"output": "0"}}),
    ];
    let mut edges = vec![
        json!({"from": "start", "to": "fork"}),
        json!({"from": "join", "to": "end"}),
    ];
    for child in &children {
        let mut node = node.clone();
        node["id"] = json!(child);
        nodes.push(node);
        edges.push(json!({"from": "fork", "to": child}));
        edges.push(json!({"from": child, "to": "join"}));
    }
    json!({"id": id, "nodes": nodes, "edges": edges})
}

/// One run of a workflow, to its outcome.
pub async fn run(engine: &Engine, workflow: &str) -> f64 {
    timed(async {
        let report = engine.start(workflow, json!(0)).expect("admitted").outcome().await;
        assert_eq!(report.status, ThreadStatus::Completed, "{:?}", report.error);
    })
    .await
}

/// W4: a conversation of `messages` forked to 100 branches, each appends one.
pub async fn conversation(engine: &Engine, messages: usize) -> f64 {
    let texts = (0..messages)
        .map(|n| Message::new(Role::User, format!("{n} {}", "x".repeat(200))))
        .collect();
    let prepared = engine.run("talk").conversation(texts);
    timed(async {
        let report = prepared.start().expect("admitted").outcome().await;
        assert_eq!(report.status, ThreadStatus::Completed, "{:?}", report.error);
    })
    .await
}

/// W10: `runs` runs at once.
pub async fn concurrent(engine: &Engine, runs: usize) -> f64 {
    timed(async {
        let started: Vec<_> = (0..runs)
            .map(|_| engine.start("waits", json!(0)).expect("admitted"))
            .collect();
        for run in started {
            assert_eq!(run.outcome().await.status, ThreadStatus::Completed);
        }
    })
    .await
}
