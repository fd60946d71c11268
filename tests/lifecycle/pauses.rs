//! A run that is paused (SPEC section 1): every thread stops at its next safe point, also one that starts during the pause.

use std::time::Duration;

use futures::executor::block_on;
use pirn::{Engine, EventType, RunHandle, SubscriptionItem, ThreadStatus};
use pirn_tests::world::{code, line, node, workflow};
use serde_json::{Map, Value, json};

fn engine(bundle: &Value) -> Engine {
    let builder = Engine::builder().virtual_time(Some(3));
    builder.workflows(bundle.to_string()).build().expect("valid")
}

fn until(event: &str) -> Value {
    node(event, "WAIT", json!({ "event": event }))
}

fn statuses(engine: &Engine, run: &RunHandle) -> Vec<ThreadStatus> {
    engine.wait_idle();
    let status = block_on(run.status()).expect("it runs");
    assert_eq!(status.status, status.threads[0].status, "the main thread's");
    status.threads.iter().map(|thread| thread.status).collect()
}

#[test]
fn a_thread_that_starts_in_a_paused_run_waits_at_its_first_safe_point() {
    let sub = workflow(
        "sub",
        &[
            node("from", "START_FROM_TRIGGER", json!({})),
            code("in-sub", "return 1"),
            node("to", "CONTINUE_FROM_TRIGGER", json!({})),
        ],
        &["from>in-sub>to"],
    );
    let trigger = json!({"id": "t", "type": "EVENT", "condition": {"eventType": "CUSTOM", "eventName": "begin"},
        "action": {"type": "EXECUTE_TRIGGERED_SUBGRAPH", "parameters": {"triggeredWorkflowId": "sub", "timeout": 0, "waitForCompletion": false}}});
    let engine = engine(&json!({"workflows": [line("main", &[until("end-it")]), sub], "triggers": [trigger]}));
    let mut prepared = engine.run("main");
    let events = prepared.blocking_events(&[EventType::NodeStarted, EventType::ThreadResumed], 64);
    let run = prepared.start().expect("admitted");
    assert_eq!(statuses(&engine, &run), [ThreadStatus::Running]);
    run.pause();
    run.emit("begin", Map::new());
    assert_eq!(
        statuses(&engine, &run),
        [ThreadStatus::Running, ThreadStatus::Paused],
        "main is in its node"
    );
    run.emit("end-it", Map::new());
    assert_eq!(statuses(&engine, &run), [ThreadStatus::Paused, ThreadStatus::Paused]);
    run.resume();
    assert_eq!(run.outcome_blocking().status, ThreadStatus::Completed);
    engine.shutdown_blocking(Duration::from_secs(5));
    let order: Vec<String> = events
        .filter_map(|heard| match heard {
            SubscriptionItem::Event(event) => {
                let node = event.raised.fields["nodeId"].as_str().unwrap_or_default();
                Some(format!("{} {node}", event.raised.event_type.as_str()))
            }
            SubscriptionItem::Lagged(_) => None,
        })
        .collect();
    let place = |what: &str| order.iter().position(|other| other.starts_with(what));
    assert!(place("NODE_STARTED from").is_some(), "{order:?}");
    assert!(place("NODE_STARTED from") > place("THREAD_RESUMED"), "{order:?}");
}

#[test]
fn the_status_of_a_run_shows_which_threads_are_paused() {
    let engine = engine(&line("one", &[until("a"), until("b")]));
    let run = engine.start("one", Value::Null).expect("admitted");
    engine.wait_idle();
    run.pause();
    assert_eq!(statuses(&engine, &run), [ThreadStatus::Running], "until the node ends");
    run.emit("a", Map::new());
    assert_eq!(statuses(&engine, &run), [ThreadStatus::Paused]);
    run.resume();
    assert_eq!(statuses(&engine, &run), [ThreadStatus::Running]);
    run.emit("b", Map::new());
    assert_eq!(run.outcome_blocking().status, ThreadStatus::Completed);
    engine.shutdown_blocking(Duration::from_secs(5));
}
