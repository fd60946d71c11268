//! The `inputSchema` of a workflow applies to every way to start a run, and an invalid schema is found before any run starts.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::executor::block_on;
use pirn::check::{SourceFile, World, check};
use pirn::store::MemoryStore;
use pirn::{Engine, EventType, RunErrorCode, SubscriptionItem, ThreadStatus};
use serde_json::{Value, json};

fn line(id: &str, nodes: &[Value]) -> Value {
    let mut all = vec![json!({"id": "start", "type": "START"})];
    all.extend_from_slice(nodes);
    all.push(json!({"id": "end", "type": "END"}));
    let edges: Vec<Value> = all
        .windows(2)
        .map(|pair| json!({"from": pair[0]["id"], "to": pair[1]["id"]}))
        .collect();
    json!({"id": id, "nodes": all, "edges": edges})
}

fn strict() -> Value {
    let mut strict = line("strict", &[]);
    strict["inputSchema"] =
        json!({"type": "object", "required": ["question"], "properties": {"question": {"type": "string"}}});
    strict
}

#[test]
fn an_input_that_violates_the_schema_starts_no_run() {
    let engine = Engine::builder()
        .workflows(strict().to_string())
        .store(MemoryStore::new());
    let engine = engine.build().expect("builds");
    for wrong in [json!(1), json!(null), json!({"questio": 1}), json!({"question": 1})] {
        let error = engine.start("strict", wrong.clone()).expect_err("it does not fit");
        assert_eq!(error.code, RunErrorCode::InvalidInput, "{wrong}");
        assert!(error.message.contains("`inputSchema` of strict"), "{error}");
        let put = block_on(engine.run("strict").input(wrong).enqueue()).expect_err("nor elsewhere");
        assert!(put.to_string().contains("`inputSchema` of strict"), "{put}");
    }
    let report = engine
        .start("strict", json!({"question": "why?"}))
        .expect("fits")
        .outcome_blocking();
    assert_eq!(report.status, ThreadStatus::Completed);
    engine.shutdown_blocking(Duration::from_secs(5));
}

#[test]
fn a_trigger_starts_no_run_with_an_input_that_violates_the_schema() {
    // The input is the whole event.
    for (required, fails) in [(json!([]), false), (json!(["nowhere in an event"]), true)] {
        let trigger = json!({"id": "t", "condition": {"eventType": "CUSTOM", "eventName": "go"},
            "action": {"type": "START_WORKFLOW", "parameters": {"workflowId": "strict"}}});
        // The run cannot end before the event.
        let mut main = line(
            "main",
            &[json!({"id": "wait", "type": "WAIT", "config": {"event": "go"}})],
        );
        main["triggers"] = json!([trigger]);
        let mut strict = line("strict", &[]);
        strict["inputSchema"] = json!({"type": "object", "required": required});
        let bundle = json!({"workflows": [main, strict]});
        let engine = Engine::builder().workflows(bundle.to_string()).virtual_time(Some(1));
        let engine = engine.build().expect("builds");
        let mut run = engine.run("main");
        let events = run.blocking_events(&[EventType::TriggeredSubgraphFailed], 100);
        let run = run.start().expect("starts");
        run.emit("go", []);
        assert_eq!(run.outcome_blocking().status, ThreadStatus::Completed);
        run.wait_all_ended_blocking();
        engine.shutdown_blocking(Duration::from_secs(5));
        let failed: Vec<String> = events
            .filter_map(|heard| match heard {
                SubscriptionItem::Event(event) if event.raised.event_type == EventType::TriggeredSubgraphFailed => {
                    Some(event.to_json().to_string())
                }
                SubscriptionItem::Event(_) | SubscriptionItem::Lagged(_) => None,
            })
            .collect();
        assert_eq!(!failed.is_empty(), fails, "{required}: {failed:?}");
        assert!(failed.iter().all(|event| event.contains("INVALID_INPUT")), "{failed:?}");
    }
}

#[test]
fn an_invalid_input_schema_is_an_error_of_the_file() {
    let misspelt = json!({"type": "objct"});
    let node = |kind: &str, config: Value| json!({"id": "n", "type": kind, "config": config});
    let mut input = line("w", &[]);
    input["inputSchema"] = misspelt.clone();
    let cases = [
        ("/inputSchema", input),
        (
            "/nodes/1/config/responseFormat",
            line("w", &[node("LLM", json!({"prompt": "x", "responseFormat": misspelt}))]),
        ),
        (
            "/nodes/1/config/responseFormat",
            line(
                "w",
                &[node(
                    "LLM",
                    json!({"prompt": "x", "responseFormat": {"type": "json_schema", "json_schema": {"schema": misspelt}}}),
                )],
            ),
        ),
        (
            "/nodes/1/config/schema",
            line(
                "w",
                &[node("USER_INTERACTION", json!({"question": "x", "schema": misspelt}))],
            ),
        ),
    ];
    for (pointer, flow) in cases {
        let checked = check(&[SourceFile::new("flow.json", flow.to_string())], &World::default());
        let found: BTreeSet<(&str, &str)> = checked
            .faults()
            .iter()
            .map(|fault| (fault.code.as_str(), &*fault.pointer))
            .collect();
        assert_eq!(found, BTreeSet::from([("INVALID_SCHEMA", pointer)]));
        assert!(checked.faults()[0].message.contains("objct"), "{}", checked.faults()[0]);
        let built = Engine::builder().workflows(flow.to_string()).build();
        assert!(built.is_err(), "an engine takes it: {pointer}");
    }
}
