//! Cost of the analysis: near-linear in nodes, edges, forks, workflows and triggers. Operations are counted, not timed.

use std::fmt::Write;

use serde_json::{Value, json};

use super::fixtures::{analyse_json, trivial};

/// Forks of 4 paths one after another, loops, routes and WAITs between; about `size` nodes.
fn wide(size: usize) -> Value {
    let (mut nodes, mut edges) = (vec![json!({"id": "s", "type": "START"})], Vec::new());
    let mut last = "s".to_owned();
    for block in 0..size / 8 {
        let id = |word: &str| format!("{word}{block}");
        let (paths, children): (Vec<_>, Vec<_>) = (0..4)
            .map(|path| (id(&format!("p{path}-")), id(&format!("c{path}-"))))
            .unzip();
        nodes.push(json!({"id": id("f"), "type": "FORK", "config": {"forkPathIds": paths, "childNodeIds": children}}));
        edges.push(json!({"from": last, "to": id("f")}));
        for child in &children {
            nodes.push(json!({"id": child, "type": "WAIT", "config": {"seconds": 1}}));
            edges.push(json!({"from": id("f"), "to": child}));
            edges.push(json!({"from": child, "to": id("j")}));
        }
        nodes.push(json!({"id": id("j"), "type": "JOIN",
            "config": {"forkPathIds": paths, "joinStrategy": "ALL_COMPLETED", "timeout": 5}}));
        nodes.push(json!({"id": id("n"), "type": "CODE", "config": {"code": "return 1"}}));
        edges.push(json!({"from": id("j"), "to": id("n")}));
        edges.push(json!({"from": id("n"), "to": id("n"), "condition": "output > 1", "weight": 1}));
        last = id("n");
    }
    nodes.push(json!({"id": "e", "type": "END"}));
    edges.push(json!({"from": last, "to": "e"}));
    json!({"id": "w", "nodes": nodes, "edges": edges})
}

/// Returns a workflow with a fork of many paths that share a long tail.
fn shared_tail(size: usize) -> Value {
    let mut nodes = vec![json!({"id": "s", "type": "START"})];
    let mut edges = vec![json!({"from": "s", "to": "f"})];
    let (paths, children): (Vec<_>, Vec<_>) = (0..size / 2)
        .map(|path| (format!("p{path}"), format!("c{path}")))
        .unzip();
    nodes.push(json!({"id": "f", "type": "FORK", "config": {"forkPathIds": paths, "childNodeIds": children}}));
    for child in &children {
        nodes.push(json!({"id": child, "type": "CODE", "config": {"code": "return 1"}}));
        edges.push(json!({"from": "f", "to": child}));
        edges.push(json!({"from": child, "to": "t0"}));
    }
    for tail in 0..size / 2 {
        nodes.push(json!({"id": format!("t{tail}"), "type": "CODE", "config": {"code": "return 1"}}));
        let to = if tail + 1 < size / 2 {
            format!("t{}", tail + 1)
        } else {
            "j".to_owned()
        };
        edges.push(json!({"from": format!("t{tail}"), "to": to}));
    }
    nodes.push(json!({"id": "j", "type": "JOIN", "config": {"forkPathIds": paths, "joinStrategy": "ALL_COMPLETED"}}));
    nodes.push(json!({"id": "e", "type": "END"}));
    edges.push(json!({"from": "j", "to": "e"}));
    json!({"id": "w", "nodes": nodes, "edges": edges})
}

/// N workflows, and N standalone triggers that start them.
fn many_triggers(size: usize) -> Value {
    let workflows: Vec<Value> = (0..size).map(|place| trivial(&format!("w{place}"))).collect();
    let triggers: Vec<Value> = (0..size)
        .map(|place| {
            json!({"id": format!("t{place}"), "condition": {"eventType": "NODE_COMPLETED"},
            "action": {"type": "START_WORKFLOW", "parameters": {"workflowId": format!("w{place}")}}})
        })
        .collect();
    json!({"workflows": workflows, "triggers": triggers})
}

#[test]
fn the_work_of_an_analysis_grows_linearly() {
    let mut told = String::new();
    for (name, of, small) in [
        ("wide", wide as fn(usize) -> Value, 800),
        ("shared tail", shared_tail, 800),
        ("many triggers", many_triggers, 100),
    ] {
        let (few, many) = (analyse_json(&of(small)).1.work, analyse_json(&of(10 * small)).1.work);
        writeln!(told, "{name}: {few} and {many}").expect("a string takes it");
        assert!(many <= 12 * few, "{told}");
        assert!(many <= 40 * 10 * small as u64, "{told}");
    }
}
