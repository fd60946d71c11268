//! Workflows for crash tests: the small trees of core's tests, and one for each way to wait, to call a model and to fail.

use serde_json::{Value, json};

use super::shapes::{MORE_SHAPES, SHAPES, bundle};

fn line(nodes: &[Value]) -> Value {
    let mut all = vec![json!({"id": "start", "type": "START"})];
    all.extend_from_slice(nodes);
    all.push(json!({"id": "end", "type": "END"}));
    let ids: Vec<&Value> = all.iter().map(|node| &node["id"]).collect();
    let edges: Vec<Value> = ids
        .windows(2)
        .map(|pair| json!({"from": pair[0], "to": pair[1]}))
        .collect();
    json!({"id": "main", "nodes": all, "edges": edges})
}

fn work(id: &str) -> Value {
    json!({"id": id, "type": "CODE", "config": {"function": "work"}})
}

fn retried(id: &str) -> Value {
    let mut node = work(id);
    node["retry"] = json!({"maxAttempts": 4, "initialDelayMs": 50, "backoff": 2.0});
    node
}

fn speak(id: &str) -> Value {
    json!({"id": id, "type": "LLM", "config": {"prompt": "go on", "tools": ["look"]}})
}

fn context(id: &str, config: &Value) -> Value {
    json!({"id": id, "type": "CONTEXT_PROCESSOR", "config": config})
}

fn compress(id: &str, strategy: &str, parameters: &Value) -> Value {
    context(
        id,
        &json!({"operation": "compress", "strategy": strategy, "parameters": parameters}),
    )
}

fn wait(id: &str) -> Value {
    json!({"id": id, "type": "WAIT", "config": {"seconds": 3600}})
}

/// Returns a fork with one path for each of these nodes, and its join.
fn fork(strategy: &Value, order: &str, paths: &[Value]) -> Value {
    let ids: Vec<&Value> = paths.iter().map(|node| &node["id"]).collect();
    let mut join = json!({"forkPathIds": ids});
    for (name, value) in strategy.as_object().into_iter().flatten() {
        join[name] = value.clone();
    }
    let mut nodes = vec![
        json!({"id": "start", "type": "START"}),
        json!({"id": "end", "type": "END"}),
    ];
    nodes.push(json!({"id": "fork", "type": "FORK", "config": {"forkPathIds": ids, "childNodeIds": ids, "forkStrategy": order}}));
    nodes.push(json!({"id": "join", "type": "JOIN", "config": join}));
    let mut edges = vec![
        json!({"from": "start", "to": "fork"}),
        json!({"from": "join", "to": "end"}),
    ];
    for (id, node) in ids.iter().zip(paths) {
        edges.push(json!({"from": "fork", "to": id}));
        edges.push(json!({"from": id, "to": "join"}));
        nodes.push(node.clone());
    }
    json!({"id": "main", "nodes": nodes, "edges": edges})
}

/// Returns three branches with model calls. The budget suffices for two at a time.
fn with_budget() -> Value {
    let bounded = |id: &str| {
        let mut node = speak(id);
        node["config"]["parameters"] = json!({"maxTokens": 400});
        node
    };
    let paths = ["a", "b", "c"].map(bounded);
    let mut main = fork(&json!({"joinStrategy": "ALL_COMPLETED"}), "parallel", &paths);
    main["config"] = json!({"budget": {"tokens": 1_000, "perPath": {"modelCalls": 2}}});
    main
}

/// Returns the workflow files, at least twenty.
pub(crate) fn all() -> Vec<String> {
    let mut all: Vec<Value> = SHAPES.iter().map(|shape| bundle(*shape, 1_000_000)).collect();
    let alone = [
        line(&[speak("ask")]),
        line(&[speak("ask"), speak("again"), speak("last")]),
        line(&[
            speak("ask"),
            compress("short", "keep_recent", &json!({"count": 2})),
            speak("again"),
        ]),
        line(&[
            speak("ask"),
            compress("short", "summarize", &json!({"keepRecent": 1})),
            speak("again"),
        ]),
        line(&[context("clear", &json!({"operation": "clear"})), speak("ask")]),
        line(&[work("a"), wait("sleep"), work("b"), wait("again")]),
        line(&[retried("a"), retried("b"), retried("c")]),
        fork(
            &json!({"joinStrategy": "ALL_COMPLETED", "timeout": 10}),
            "parallel",
            &[speak("a"), wait("b")],
        ),
        fork(
            &json!({"joinStrategy": "ANY_COMPLETED"}),
            "serial",
            &[work("a"), work("b"), work("c")],
        ),
        fork(
            &json!({"joinStrategy": "SUCCESS_COUNT_THRESHOLD", "threshold": 2}),
            "parallel",
            &[speak("a"), work("b"), wait("c"), retried("d")],
        ),
        fork(
            &json!({"joinStrategy": "ALL_COMPLETED", "mergeVariables": "all"}),
            "parallel",
            &[speak("a"), speak("b")],
        ),
    ];
    all.extend(alone);
    // Appended: journals of older versions are named by the indexes of the workflows above.
    let some = MORE_SHAPES.iter().step_by(3);
    all.extend(some.map(|shape| bundle(*shape, 1_000_000)));
    all.push(with_budget());
    all.iter().map(Value::to_string).collect()
}
