//! Listeners of a run: cases M26 to M29, M35 to M38. SPEC has neither hooks nor listeners with a priority. Triggers replace the
//! cases' hooks and fire in the order of their definitions, and subscribers receive events in sequence order.

use std::sync::Mutex;
use std::sync::mpsc::channel;

use pirn::{Engine, EventType, SubscriptionItem};
use pirn_tests::world::{Ran, code, forked, line, node, run, run_in, wait};
use serde_json::{Map, Value, json};

/// Returns a trigger on the end of node `a`.
fn on_a(id: &str, action: &Value) -> Value {
    json!({"id": id, "type": "EVENT",
        "condition": {"eventType": "NODE_COMPLETED", "expression": "event.nodeId === 'a'"}, "action": action})
}

fn notification(text: &str) -> Value {
    json!({"type": "SEND_NOTIFICATION", "parameters": {"message": text}})
}

/// Returns START > a > a wait > b > END, with triggers.
fn watched(triggers: &Value) -> Value {
    let mut main = line(
        "main",
        &[code("a", "return 1"), wait("w", 10), code("b", "return output + 1")],
    );
    main["triggers"] = triggers.clone();
    main
}

fn notified(ran: &Ran) -> Vec<&str> {
    let heard = ran.of(EventType::Notification).into_iter();
    heard
        .filter_map(|event| event.raised.fields["message"].as_str())
        .collect()
}

#[test]
fn m26_m27_m28_enabled_triggers_with_true_conditions_fire_in_definition_order() {
    let disabled = |mut trigger: Value| {
        trigger["enabled"] = json!(false);
        trigger
    };
    let never = |mut trigger: Value| {
        trigger["condition"]["expression"] = json!("event.nodeId === 'a' && output === 1 && false");
        trigger
    };
    let cases = [
        (
            "M26",
            json!([on_a("z", &notification("first")), on_a("a", &notification("second"))]),
            vec!["first", "second"],
        ),
        (
            "M27",
            json!([
                disabled(on_a("z", &notification("first"))),
                on_a("a", &notification("second"))
            ]),
            vec!["second"],
        ),
        (
            "M28",
            json!([
                never(on_a("z", &notification("first"))),
                on_a("a", &notification("second"))
            ]),
            vec!["second"],
        ),
    ];
    for (case, triggers, expected) in cases {
        let ran = run(&watched(&triggers), Value::Null);
        assert_eq!((ran.code(), &ran.report.output), ("", &json!(2)), "{case}");
        assert_eq!(notified(&ran), expected, "{case}");
        assert_eq!(ran.of(EventType::TriggerFailed).len(), 0, "{case}");
    }
}

#[test]
fn m29_an_action_that_throws_affects_neither_the_node_nor_later_actions() {
    for (case, name) in [("M29: an error", "refuses"), ("M29: a panic", "panics")] {
        let custom = json!({"type": "CUSTOM", "parameters": {"function": name}});
        let triggers = json!([
            on_a("1", &notification("first")),
            on_a("2", &custom),
            on_a("3", &notification("third"))
        ]);
        let engine = Engine::builder()
            .virtual_time(Some(1))
            .function("refuses", |_| Err("on purpose".to_owned()))
            .function("panics", |_| panic!("on purpose"));
        let ran = run_in(engine, &watched(&triggers), Value::Null, Vec::new());
        assert_eq!((ran.code(), &ran.report.output), ("", &json!(2)), "{case}");
        assert_eq!(notified(&ran), ["first", "third"], "{case}");
        assert_eq!(ran.of(EventType::TriggerFailed).len(), 1, "{case}");
    }
}

#[test]
fn m35_every_subscriber_gets_its_events_in_sequence_order() {
    let branches: Vec<Vec<Value>> = (0..5)
        .map(|place| vec![code(&format!("b{place}"), "return 1")])
        .collect();
    let engine = Engine::builder()
        .virtual_time(Some(5))
        .workflows(forked(&branches, false, &json!({"joinStrategy": "ALL_COMPLETED"})).to_string())
        .build()
        .expect("valid");
    let mut run = engine.run("forked");
    let kinds: [&[EventType]; 3] = [&[], &[EventType::NodeStarted, EventType::NodeCompleted], &[]];
    let listeners: Vec<_> = kinds.iter().map(|kinds| run.blocking_events(kinds, 1000)).collect();
    run.start().expect("admitted").wait_all_ended_blocking();
    engine.shutdown_blocking(std::time::Duration::ZERO);
    let heard: Vec<Vec<(u64, EventType)>> = listeners
        .into_iter()
        .map(|listener| {
            let events = listener.map(|heard| match heard {
                SubscriptionItem::Event(event) => (event.sequence, event.raised.event_type),
                SubscriptionItem::Lagged(count) => panic!("M35: {count} missed"),
            });
            events.collect()
        })
        .collect();
    let gapless: Vec<u64> = (1..=heard[0].len() as u64).collect();
    assert_eq!(
        heard[0].iter().map(|(sequence, _)| *sequence).collect::<Vec<_>>(),
        gapless,
        "M35"
    );
    assert_eq!(heard[0], heard[2], "M35");
    let nodes: Vec<(u64, EventType)> = heard[0]
        .iter()
        .filter(|(_, kind)| kinds[1].contains(kind))
        .copied()
        .collect();
    assert_eq!(heard[1], nodes, "M35");
}

#[test]
fn m36_a_subscriber_that_disconnects_affects_no_other_subscriber() {
    let engine = Engine::builder()
        .virtual_time(Some(1))
        .workflows(
            line(
                "main",
                &[node("gate", "WAIT", json!({"event": "go"})), code("b", "return 1")],
            )
            .to_string(),
        )
        .build()
        .expect("valid");
    let mut run = engine.run("main");
    let first = run.blocking_events(&[], 1000);
    let mut second = run.blocking_events(&[], 1000);
    let third = run.blocking_events(&[], 1000);
    let handle = run.start().expect("admitted");
    assert!(second.next().is_some(), "M36");
    drop(second);
    let gate = |heard: &SubscriptionItem| matches!(heard, SubscriptionItem::Event(event) if event.raised.fields.get("nodeId") == Some(&json!("gate")));
    let mut first = first.peekable();
    let mut before = 0;
    while first.next_if(|heard| !gate(heard)).is_some() {
        before += 1;
    }
    handle.emit("go", Map::new());
    assert_eq!(handle.outcome_blocking().output, json!(1), "M36");
    handle.wait_all_ended_blocking();
    engine.shutdown_blocking(std::time::Duration::ZERO);
    assert_eq!(
        first.count() + before,
        third.count(),
        "M36: both others heard everything"
    );
}

#[test]
fn m36_a_panic_in_the_notification_hook_is_a_failed_trigger() {
    let (sender, heard) = channel();
    let sender = Mutex::new(sender);
    let engine = Engine::builder().virtual_time(Some(1)).on_notification(move |text, _| {
        let told = sender.lock().map(|sender| sender.send(text.to_owned()));
        assert!(text != "second" || told.is_err(), "on purpose");
    });
    let triggers = json!([
        on_a("1", &notification("first")),
        on_a("2", &notification("second")),
        on_a("3", &notification("third"))
    ]);
    let ran = run_in(engine, &watched(&triggers), Value::Null, Vec::new());
    assert_eq!((ran.code(), &ran.report.output), ("", &json!(2)), "M36");
    assert_eq!(
        heard.iter().collect::<Vec<String>>(),
        ["first", "second", "third"],
        "M36"
    );
    assert_eq!(ran.of(EventType::TriggerFailed).len(), 1, "M36");
}

#[test]
fn m37_the_error_of_a_wait_that_times_out_names_its_node() {
    let ran = run(
        &line(
            "main",
            &[node("w", "WAIT", json!({"event": "NODE_FAILED", "timeout": 2}))],
        ),
        Value::Null,
    );
    assert_eq!((ran.code(), ran.report.elapsed_ms), ("NODE_TIMEOUT", 2000), "M37");
    let error = ran.report.error.map(|error| error.to_string()).unwrap_or_default();
    assert!(error.contains("node w"), "M37: {error}");
}

/// Upstream differs here: every second wait continues to wait.
#[test]
fn m38_one_event_ends_every_wait_for_it() {
    let branches: Vec<Vec<Value>> = (0..3)
        .map(|place| {
            let id = format!("w{place}");
            vec![node(&id, "WAIT", json!({"event": "VARIABLE_CHANGED", "timeout": 60}))]
        })
        .chain([vec![
            wait("rest", 5),
            node("set", "VARIABLE", json!({"variableName": "x", "expression": "1"})),
        ]])
        .collect();
    let ran = run(
        &forked(&branches, false, &json!({"joinStrategy": "ALL_COMPLETED"})),
        Value::Null,
    );
    assert_eq!(
        (ran.code(), ran.report.elapsed_ms),
        ("", 5),
        "M38: {:?}",
        ran.report.error
    );
}
