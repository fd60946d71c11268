//! A workflow with every node type, in which a random walk can continue for ever.

use std::sync::{Arc, LazyLock};

use pirn_definition::definition::{SourceFile, load};
use pirn_definition::graph::{CompileContext, Graph, compile_loaded};
use serde_json::{Value, json};

/// Compiled once.
pub(crate) fn graph() -> Arc<Graph> {
    static GRAPH: LazyLock<Arc<Graph>> = LazyLock::new(|| {
        let text = json!([workflow(), other()]).to_string();
        let loaded = load(&SourceFile::new("every-node.json", text));
        let compiled = compile_loaded(&loaded, &CompileContext::default());
        assert!(compiled.faults.is_empty(), "{:#?}", compiled.faults);
        Arc::clone(&compiled.graphs[0])
    });
    Arc::clone(&GRAPH)
}

/// The stations the hub leads to.
const STATIONS: [&str; 17] = [
    "ask-once", "set", "share", "script", "function", "ask", "fork", "call", "insert", "shrink", "pin", "wait", "hear",
    "route", "each", "person", "plan",
];

fn workflow() -> Value {
    let message = json!([{"role": "user", "content": "{{input}}"}]);
    // the hub leads anywhere, and everything leads back to it
    let routes: Vec<Value> = STATIONS
        .iter()
        .map(|id| json!({"condition": format!("v === '{id}'"), "targetNodeId": id}))
        .collect();
    let retry = json!({"maxAttempts": 3, "initialDelayMs": 1});
    let mut nodes = json!([
        {"id": "start", "type": "START"},
        {"id": "hub", "type": "ROUTE", "config": {"routes": routes, "defaultTargetNodeId": "end"}},
        {"id": "set", "type": "VARIABLE", "config": {"variableName": "v", "expression": "1 + 1"}, "retry": retry},
        {"id": "share", "type": "VARIABLE", "config": {"variableName": "g", "expression": "1 + 1", "scope": "global"}},
        {"id": "script", "type": "CODE", "config": {"code": "return 1", "input": "v"}, "retry": retry},
        {"id": "function", "type": "CODE", "config": {"function": "f"}},
        {"id": "ask", "type": "LLM", "config": {"prompt": "{{input}}", "system": "s", "tools": ["t"], "maxToolRounds": 1}, "retry": retry},
        {"id": "ask-once", "type": "LLM", "config": {"tools": ["t"], "maxToolRounds": 0}},
        {"id": "fork", "type": "FORK", "config": {"forkPathIds": ["a", "b"], "childNodeIds": ["a", "b"]}},
        {"id": "a", "type": "WAIT", "config": {"seconds": 1}},
        {"id": "b", "type": "WAIT", "config": {"seconds": 1}},
        {"id": "join", "type": "JOIN", "config": {"forkPathIds": ["a", "b"], "joinStrategy": "ANY_COMPLETED"}},
        {"id": "call", "type": "SUBGRAPH", "config": {"subgraphId": "other", "input": "v", "output": "output.x"}},
        {"id": "each", "type": "MAP", "config": {"subgraphId": "other", "items": "v", "input": "item"}, "retry": retry},
        {"id": "person", "type": "USER_INTERACTION", "config": {"question": "{{v}}?", "timeoutMs": 5, "onTimeout": {"targetNodeId": "hub"}}},
        {"id": "plan", "type": "SCRIPT", "config": {"code": "return 1", "input": "v", "tools": ["t"], "limits": {"concurrency": 2}}, "retry": retry},
        {"id": "insert", "type": "CONTEXT_PROCESSOR", "config": {"operation": "insert", "messages": message}},
        {"id": "shrink", "type": "CONTEXT_PROCESSOR", "config": {"operation": "compress", "strategy": "summarize", "parameters": {}}},
        {"id": "pin", "type": "CONTEXT_PROCESSOR", "config": {"operation": "pin", "section": "role", "value": "{{v}}"}},
        {"id": "wait", "type": "WAIT", "config": {"seconds": 1}},
        {"id": "hear", "type": "WAIT", "config": {"event": "go"}},
        {"id": "route", "type": "ROUTE", "config": {"routes": [{"condition": "v > 1", "targetNodeId": "hub"}, {"condition": "v > 2", "targetNodeId": "ask"}], "defaultTargetNodeId": "end"}},
        {"id": "end", "type": "END", "config": {"output": "v + 1"}}
    ]);
    let mut edges = vec![
        json!({"from": "start", "to": "hub"}),
        json!({"from": "fork", "to": "a"}),
        json!({"from": "fork", "to": "b"}),
        json!({"from": "a", "to": "join"}),
        json!({"from": "b", "to": "join"}),
        json!({"from": "join", "to": "hub", "condition": "v"}),
    ];
    for id in STATIONS.into_iter().filter(|id| *id != "fork" && *id != "route") {
        edges.push(json!({"from": id, "to": "hub", "condition": "v === 2"}));
        edges.push(json!({"from": id, "to": "route", "condition": "v === 3"}));
    }
    for node in nodes.as_array_mut().into_iter().flatten() {
        let id = node["id"].as_str().unwrap_or_default().to_owned();
        if !["start", "hub", "fork", "a", "b"].contains(&id.as_str()) {
            node["timeoutMs"] = json!(1000);
        }
        if STATIONS.contains(&id.as_str()) && id != "fork" || id == "join" {
            node["onError"] = json!({"targetNodeId": "hub"});
        }
    }
    json!({"id": "every-node", "nodes": nodes, "edges": edges})
}

fn other() -> Value {
    json!({"id": "other", "nodes": [{"id": "s", "type": "START"}, {"id": "e", "type": "END"}],
           "edges": [{"from": "s", "to": "e"}]})
}
