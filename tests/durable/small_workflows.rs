//! Small workflows that pause and resume in different ways: a question, a MAP, a loop, an event, a trigger that compresses (also
//! speculatively).

use serde_json::{Value, json};

use super::inputs::answers::asks;

/// Returns a CODE node that continues at `next` if it fails.
fn work(id: &str, next: &str) -> Value {
    json!({"id": id, "type": "CODE", "config": {"function": "work"}, "onError": {"targetNodeId": next}})
}

fn speak(id: &str) -> Value {
    json!({"id": id, "type": "LLM", "config": {"prompt": format!("tell me all about {id}, in many words, and say why it is so")}})
}

/// Returns a workflow with the nodes in sequence.
fn line(id: &str, (first, last): (&str, &str), nodes: &[Value]) -> Value {
    let mut all = vec![json!({"id": "first", "type": first})];
    all.extend_from_slice(nodes);
    all.push(json!({"id": "last", "type": last}));
    let ids: Vec<Value> = all.iter().map(|node| node["id"].clone()).collect();
    let edges: Vec<Value> = ids
        .windows(2)
        .map(|pair| json!({"from": pair[0], "to": pair[1]}))
        .collect();
    json!({"id": id, "nodes": all, "edges": edges})
}

fn main_line(nodes: &[Value]) -> Value {
    line("main", ("START", "END"), nodes)
}

fn mapped() -> Value {
    let map = json!({"id": "map", "type": "MAP", "config": {"items": "[1, 2, 3]", "subgraphId": "item"}});
    json!({"workflows": [main_line(&[map, work("after", "last")]), line("item", ("START", "END"), &[work("one", "last")])]})
}

fn looped() -> Value {
    let each = json!({"id": "each", "type": "LOOP_START", "config": {"loopId": "l", "dataSource": {"iterable": 3, "variableName": "n"}}});
    let next = json!({"id": "next", "type": "LOOP_END", "config": {"loopId": "l"}});
    let mut worked = work("one", "next");
    worked["retry"] = json!({"maxAttempts": 4, "initialDelayMs": 10});
    main_line(&[each, worked, next])
}

fn compressed() -> Value {
    let mut main = main_line(&[speak("rain"), speak("snow"), speak("hail"), speak("fog")]);
    main["config"] = json!({"tokenLimit": 80});
    let compress = json!({"id": "shorten", "type": "CONTEXT_PROCESSOR",
        "config": {"operation": "compress", "strategy": "keep_recent", "parameters": {"count": 1}}});
    let aside = line(
        "aside",
        ("START_FROM_TRIGGER", "CONTINUE_FROM_TRIGGER"),
        &[compress, work("note", "last")],
    );
    let trigger = json!({"id": "full", "type": "EVENT", "condition": {"eventType": "TOKEN_LIMIT_EXCEEDED"},
        "action": {"type": "EXECUTE_TRIGGERED_SUBGRAPH", "parameters": {"triggeredWorkflowId": "aside", "waitForCompletion": true}}});
    json!({"workflows": [main, aside], "triggers": [trigger]})
}

/// Returns `compressed` with speculative compression, which starts before the limit is reached while the thread continues.
fn begun_early() -> Value {
    let mut all = compressed();
    let main = &mut all["workflows"][0];
    main["config"] = json!({"tokenLimit": 120, "compression": {"speculativeAt": 0.4}});
    all
}

/// Returns `compressed` with a summary by the model of the request that exceeds the limit.
fn summarized() -> Value {
    let mut all = compressed();
    all["workflows"][1]["nodes"][1]["config"] =
        json!({"operation": "compress", "strategy": "summarize", "parameters": {"keepRecent": 1}});
    all["profiles"] = json!([{"id": "main", "provider": "main"}]);
    all
}

/// Returns an LLM node that may use this tool.
fn speak_with(id: &str, tool: &str) -> Value {
    let mut node = speak(id);
    node["config"]["tools"] = json!([tool]);
    node
}

/// Returns a workflow with a budget of two model calls, one fewer than it makes.
fn with_budget() -> Value {
    let mut last = speak("snow");
    last["onError"] = json!({"targetNodeId": "last"});
    let mut main = main_line(&[speak("rain"), speak("hail"), last]);
    main["config"] = json!({"budget": {"modelCalls": 2, "warnAt": 0.5}});
    main
}

/// Returns a workflow with large results; the first one is dropped to stay below `maxArtifactBytes`.
fn with_artifacts() -> Value {
    let mut main = main_line(&[speak_with("rain", "list"), speak_with("snow", "list")]);
    main["config"] = json!({"artifactTokens": 200, "maxArtifactBytes": 6_000, "tokenizer": "estimate"});
    main
}

/// Returns a workflow whose triggers call an async function, call an inline function and send a notification.
fn with_trigger_calls() -> Value {
    let trigger = |id: &str, action: Value| {
        json!({"id": id, "type": "EVENT", "action": action,
            "condition": {"eventType": "NODE_COMPLETED", "expression": "event.nodeType === 'VARIABLE'"}})
    };
    let call = |function: &str| json!({"type": "CUSTOM", "parameters": {"function": function}});
    let set = json!({"id": "set", "type": "VARIABLE", "config": {"variableName": "n", "expression": "1"}});
    let mut main = main_line(&[set, work("after", "last")]);
    main["triggers"] = json!([
        trigger("work", call("work")),
        trigger("note", call("note")),
        trigger(
            "tell",
            json!({"type": "SEND_NOTIFICATION", "parameters": {"message": "{{event.nodeId}} is done"}})
        ),
    ]);
    main
}

/// Returns workflows by name with journal records that were introduced after the golden files of [`all`] were written.
pub(crate) fn later() -> Vec<(&'static str, String)> {
    let consent = main_line(&["rain", "snow", "hail", "fog"].map(|id| speak_with(id, "look")));
    let all = [
        ("trigger-calls", with_trigger_calls()),
        ("budget", with_budget()),
        ("artifacts", with_artifacts()),
        ("consent", consent),
        ("summary", summarized()),
    ];
    all.into_iter()
        .map(|(name, bundle)| (name, bundle.to_string()))
        .collect()
}

/// Returns the workflows by name.
pub(crate) fn all() -> Vec<(&'static str, String)> {
    let asked: Value = serde_json::from_str(&asks()).expect("JSON");
    let all = [
        ("question", asked),
        ("map", mapped()),
        ("loop", looped()),
        ("compression", compressed()),
        ("early-compression", begun_early()),
    ];
    all.into_iter()
        .map(|(name, bundle)| (name, bundle.to_string()))
        .collect()
}
