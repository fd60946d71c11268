//! WAIT for an event: events before the wait, events in sequence, and too many events.

use pirn::{Engine, EventType, RunHandle, RunReport, SubscriptionItem, ThreadStatus};
use pirn_tests::world::{forked, node, workflow};
use serde_json::{Value, json};

/// Returns a workflow that waits for `open`, then for `go` a number of times, and collects the data in `got`.
fn takes(times: u32) -> Value {
    let add = json!({"variableName": "got", "expression": "[...got, output.data.n]"});
    let mut bundle = workflow(
        "main",
        &[
            node("start", "START", json!({})),
            node("gate", "WAIT", json!({"event": "open"})),
            node(
                "for",
                "LOOP_START",
                json!({"loopId": "l", "dataSource": {"iterable": times}}),
            ),
            node("go", "WAIT", json!({"event": "go", "timeout": 60})),
            node("add", "VARIABLE", add),
            node("next", "LOOP_END", json!({"loopId": "l"})),
            node("end", "END", json!({"output": "got"})),
        ],
        &["start>gate>for>go>add>next>end"],
    );
    bundle["variables"] = json!([{"name": "got", "value": []}]);
    bundle
}

fn started(bundle: &Value) -> (Engine, RunHandle) {
    let engine = Engine::builder().virtual_time(None).workflows(bundle.to_string());
    let engine = engine.build().expect("builds");
    let run = engine
        .start(bundle["id"].as_str().unwrap_or("main"), Value::Null)
        .expect("starts");
    engine.wait_idle();
    (engine, run)
}

fn ended(engine: &Engine, run: &RunHandle) -> RunReport {
    engine.wait_idle();
    let report = run.try_outcome().expect("it ended");
    (*report).clone()
}

#[test]
fn an_event_before_a_wait_is_not_lost() {
    let (engine, run) = started(&takes(3));
    for n in 1..=4 {
        run.emit("go", [("n", json!(n))]);
    }
    run.emit("open", []);
    let report = ended(&engine, &run);
    assert_eq!(
        (report.status, report.output),
        (ThreadStatus::Completed, json!([1, 2, 3]))
    );
}

#[test]
fn a_thread_consumes_each_event_once() {
    let (engine, run) = started(&takes(3));
    run.emit("go", [("n", json!(1))]);
    run.emit("open", []);
    run.emit("go", [("n", json!(2))]);
    let report = ended(&engine, &run);
    let error = report.error.as_ref().map(|error| error.code.as_str());
    assert_eq!(
        (error, &report.variables["got"]),
        (Some("NODE_TIMEOUT"), &json!([1, 2]))
    );
}

#[test]
fn every_thread_consumes_an_event_independently() {
    let wait = |id: &str| node(id, "WAIT", json!({"event": "go"}));
    let branches = [
        vec![wait("w0")],
        vec![node("gate", "WAIT", json!({"event": "open"})), wait("w1")],
    ];
    let (engine, run) = started(&forked(&branches, false, &json!({"joinStrategy": "ALL_COMPLETED"})));
    run.emit("go", [("n", json!(7))]);
    engine.wait_idle();
    run.emit("open", []);
    let report = ended(&engine, &run);
    let outputs = report.output["outputs"].as_object().expect("outputs");
    assert_eq!(
        outputs.values().map(|event| &event["data"]["n"]).collect::<Vec<_>>(),
        [&json!(7), &json!(7)]
    );
}

#[test]
fn at_most_a_thousand_events_of_a_name_are_buffered_and_dropped_ones_are_reported() {
    let engine = Engine::builder().virtual_time(None).workflows(takes(1).to_string());
    let engine = engine.build().expect("builds");
    let mut run = engine.run("main");
    let events = run.blocking_events(&[EventType::EventDropped], 4_096);
    let run = run.start().expect("starts");
    for n in 1..=1_005 {
        run.emit("go", [("n", json!(n))]);
        run.emit("nobody waits for this", []);
    }
    run.emit("open", []);
    let report = ended(&engine, &run);
    assert_eq!(report.output, json!([6]));
    drop(engine);
    let told: Vec<(Value, u64)> = events
        .filter_map(|heard| match heard {
            SubscriptionItem::Event(event) => {
                let data = &event.raised.fields;
                Some((data["name"].clone(), data["dropped"].as_u64().unwrap_or_default()))
            }
            SubscriptionItem::Lagged(_) => None,
        })
        .collect();
    assert!(told.iter().all(|(name, _)| *name == json!("go")), "{told:?}");
    assert_eq!(told.iter().map(|(_, dropped)| dropped).sum::<u64>(), 5);
}
