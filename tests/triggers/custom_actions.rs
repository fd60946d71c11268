//! CUSTOM events and actions: an event that the host raises can hold a thread like any other. A function that panics before
//! it has started, or fails long after its run ended, affects no other trigger and no other run.

use std::sync::{Arc, OnceLock};

use pirn::{Engine, EventType, RunHandle, SubscriptionItem};
use pirn_events::event::Event;
use pirn_tests::world::{code, forked, line, node, run_in, wait, workflow};
use serde_json::{Map, Value, json};

/// START > a > a rest > b > END, with triggers.
fn watched(triggers: &Value) -> Value {
    let mut main = line("main", &[code("a", "return 1"), wait("w", 10), code("b", "return 2")]);
    main["triggers"] = triggers.clone();
    main
}

fn on_a(id: &str, action: &Value) -> Value {
    json!({"id": id, "type": "EVENT", "action": action,
        "condition": {"eventType": "NODE_COMPLETED", "expression": "event.nodeId === 'a'"}})
}

#[test]
fn a_function_that_panics_before_it_starts_fails_only_its_trigger() {
    let panics = json!({"type": "CUSTOM", "parameters": {"function": "panics"}});
    let says = json!({"type": "SEND_NOTIFICATION", "parameters": {"message": "heard"}});
    let bundle = watched(&json!([on_a("p", &panics), on_a("q", &says)]));
    let engine = Engine::builder().virtual_time(Some(1)).async_function(
        "panics",
        |_| -> futures::future::BoxFuture<'static, Result<Value, String>> { panic!("on purpose") },
    );
    let ran = run_in(engine, &bundle, Value::Null, Vec::new());
    assert_eq!((ran.code(), ran.of(EventType::Notification).len()), ("", 1));
    let failed = ran.of(EventType::TriggerFailed);
    assert_eq!(failed.len(), 1);
    assert_eq!(failed[0].raised.fields["triggerId"], "p");
}

#[test]
fn an_event_of_a_trigger_after_the_end_of_its_run_does_not_restart_its_sequence() {
    let (begun, has_begun) = std::sync::mpsc::channel();
    let (go, may_go) = futures::channel::oneshot::channel::<()>();
    let shared = std::sync::Mutex::new(Some((begun, may_go)));
    let function = move |_| -> futures::future::BoxFuture<'static, Result<Value, String>> {
        let taken = shared.lock().ok().and_then(|mut shared| shared.take());
        Box::pin(async move {
            let Some((begun, may_go)) = taken else {
                return Ok(Value::Null);
            };
            begun.send(()).map_err(|error| error.to_string())?;
            may_go.await.map_err(|error| error.to_string())?;
            Err("too late".to_owned())
        })
    };
    let bundle = watched(&json!([on_a(
        "late",
        &json!({"type": "CUSTOM", "parameters": {"function": "late"}})
    )]));
    let engine = Engine::builder()
        .arbiters(1)
        .async_function("late", function)
        .workflows(bundle.to_string())
        .build()
        .unwrap_or_else(|error| panic!("{error}"));
    let mut all = engine.events(pirn::EventFilter::default(), 1 << 12);
    let mut run = engine.run("main");
    let own = run.blocking_events(&[], 1 << 12);
    let handle = run.start().unwrap_or_else(|error| panic!("{error}"));
    has_begun.recv().expect("the function is called");
    handle.wait_all_ended_blocking();
    // The run's own subscription has ended, so the run is closed.
    let last = own.count() as u64;
    go.send(()).expect("the function waits");
    // The bus receives the second run's events after the late failure of the first run's function.
    engine.start("main", Value::Null).map_or_else(
        |error| panic!("{error}"),
        |second| {
            second.wait_all_ended_blocking();
        },
    );
    engine.shutdown_blocking(std::time::Duration::from_secs(5));
    let mut sequences = Vec::new();
    while let Some(heard) = futures::executor::block_on(all.next()) {
        if let pirn::SubscriptionItem::Event(event) = heard
            && *event.run_id == *handle.run_id()
        {
            sequences.push(event.sequence);
        }
    }
    assert_eq!(sequences, (1..=last).collect::<Vec<u64>>());
}

/// Executes a run whose host raises `go`, which triggers `action` with a sub-workflow of 100 ms.
fn played(action: &Value, nodes: &[Value]) -> Vec<Arc<Event>> {
    played_with(line("main", nodes), action)
}

fn played_with(mut main: Value, action: &Value) -> Vec<Arc<Event>> {
    main["id"] = json!("main");
    let sub = workflow(
        "sub",
        &[
            node("s", "START_FROM_TRIGGER", json!({})),
            wait("x", 100),
            node("c", "CONTINUE_FROM_TRIGGER", json!({})),
        ],
        &["s>x>c"],
    );
    let trigger = json!({"id": "t", "type": "EVENT", "action": action,
        "condition": {"eventType": "CUSTOM", "eventName": "go", "expression": "event.data.n === 7"}});
    let bundle = json!({"workflows": [main, sub], "triggers": [trigger]});
    let handle: Arc<OnceLock<RunHandle>> = Arc::default();
    let own = Arc::clone(&handle);
    let engine = Engine::builder()
        .virtual_time(Some(1))
        .function("tell", move |_| {
            own.wait().emit("go", Map::from_iter([("n".to_owned(), json!(7))]));
            Ok(Value::Null)
        })
        .workflows(bundle.to_string())
        .build()
        .unwrap_or_else(|error| panic!("{error}"));
    let mut run = engine.run("main");
    let events = run.blocking_events(&[], 1 << 12);
    let run = run.start().unwrap_or_else(|error| panic!("{error}"));
    handle.get_or_init(|| run.clone());
    assert_eq!(run.outcome_blocking().error, None);
    run.wait_all_ended_blocking();
    let heard = events.filter_map(|heard| match heard {
        SubscriptionItem::Event(event) => Some(event),
        SubscriptionItem::Lagged(_) => None,
    });
    heard.collect()
}

/// Returns the time at which the node was entered, in milliseconds since the run's start.
#[track_caller]
fn entered(events: &[Arc<Event>], node: &str) -> u64 {
    let of_node = |event: &&Arc<Event>| {
        event.raised.event_type == EventType::NodeStarted && event.raised.fields["nodeId"] == node
    };
    events.iter().find(of_node).map_or_else(
        || panic!("{node} was never entered"),
        |event| event.timestamp - events[0].timestamp,
    )
}

#[test]
fn a_thread_waits_at_its_next_safe_point_for_a_workflow_that_a_host_event_triggered() {
    let tell = node("tell", "CODE", json!({"function": "tell"}));
    let nodes = [tell.clone(), wait("w", 10), code("b", "return 1")];
    for (waits, at) in [(true, 100), (false, 10)] {
        let action = json!({"type": "EXECUTE_TRIGGERED_SUBGRAPH",
            "parameters": {"triggeredWorkflowId": "sub", "waitForCompletion": waits}});
        let events = played(&action, &nodes);
        assert_eq!(entered(&events, "b"), at, "waitForCompletion: {waits}");
        // A sub-workflow without a waiting thread ends with the thread that it was started for.
        let completed = |event: &Arc<Event>| event.raised.event_type == EventType::TriggeredSubgraphCompleted;
        assert_eq!(events.iter().any(completed), waits, "waitForCompletion: {waits}");
    }
    // Raised in a branch, the event belongs to the main thread, which waits at its next safe point; the branches continue.
    let mut forked = forked(
        &[vec![tell, wait("w", 10), code("b", "return 1")], vec![wait("v", 20)]],
        false,
        &json!({"joinStrategy": "ALL_COMPLETED"}),
    );
    let after = code("after", "return 2");
    forked["nodes"].as_array_mut().expect("a list").push(after);
    for edge in forked["edges"].as_array_mut().expect("a list") {
        if edge["to"] == "end" {
            edge["to"] = json!("after");
        }
    }
    forked["edges"]
        .as_array_mut()
        .expect("a list")
        .push(json!({"from": "after", "to": "end"}));
    let action = json!({"type": "EXECUTE_TRIGGERED_SUBGRAPH", "parameters": {"triggeredWorkflowId": "sub"}});
    let events = played_with(forked, &action);
    assert_eq!((entered(&events, "b"), entered(&events, "after")), (10, 100));
}

#[test]
fn a_custom_action_is_complete_when_its_function_is_called() {
    let action = json!({"type": "CUSTOM", "parameters": {"function": "tell", "waitForCompletion": true}});
    let bundle = watched(&json!([on_a("t", &action)]));
    let built = Engine::builder()
        .virtual_time(Some(1))
        .function("tell", |_| Ok(Value::Null))
        .workflows(bundle.to_string())
        .build();
    let message = built.err().map(|error| error.to_string()).unwrap_or_default();
    assert!(
        message.contains("UNKNOWN_FIELD") && message.contains("waitForCompletion"),
        "{message}"
    );
    // A slow function does not hold the thread.
    let handles = json!({"type": "CUSTOM", "parameters": {"function": "slow"}});
    let engine = Engine::builder().virtual_time(Some(1)).async_function("slow", |_| {
        Box::pin(async {
            futures::future::pending::<()>().await;
            Ok(Value::Null)
        })
    });
    let ran = run_in(engine, &watched(&json!([on_a("t", &handles)])), Value::Null, Vec::new());
    assert_eq!((ran.code(), ran.report.elapsed_ms), ("", 10));
}
