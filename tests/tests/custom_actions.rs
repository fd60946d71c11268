//! CUSTOM actions whose function harms: it panics before it has begun, or it fails long after the run's end.

use pirn::{Engine, EventType};
use pirn_tests::world::{code, line, run_in, wait};
use serde_json::{Value, json};

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
fn a_function_that_panics_before_it_has_begun_fails_its_trigger_and_no_other() {
    let panics = json!({"type": "CUSTOM", "parameters": {"function": "panics"}});
    let says = json!({"type": "SEND_NOTIFICATION", "parameters": {"message": "heard"}});
    let bundle = watched(&json!([on_a("p", &panics), on_a("q", &says)]));
    let engine = Engine::builder()
        .virtual_time(Some(1))
        .async_function("panics", |_| panic!("on purpose"));
    let ran = run_in(engine, &bundle, Value::Null, Vec::new());
    assert_eq!((ran.code(), ran.of(EventType::Notification).len()), ("", 1));
    let failed = ran.of(EventType::TriggerFailed);
    assert_eq!(failed.len(), 1);
    assert_eq!(failed[0].raised.data["triggerId"], "p");
}

#[test]
fn what_a_trigger_says_after_its_run_was_closed_does_not_number_the_run_anew() {
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
    handle.settled_blocking();
    // Its own subscribers have seen all: the run is closed.
    let last = own.count() as u64;
    go.send(()).expect("the function waits");
    // What a second run says comes to the bus after what the function said of the first.
    engine.start("main", Value::Null).map_or_else(
        |error| panic!("{error}"),
        |second| {
            second.settled_blocking();
        },
    );
    engine.shutdown_blocking(std::time::Duration::from_secs(5));
    let mut sequences = Vec::new();
    while let Some(heard) = futures::executor::block_on(all.next()) {
        if let pirn::Heard::Event(event) = heard
            && event.run_id == handle.run_id()
        {
            sequences.push(event.sequence);
        }
    }
    assert_eq!(sequences, (1..=last).collect::<Vec<u64>>());
}
