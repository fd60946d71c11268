//! Triggers and their counts: cases F04, F10, F13, F19.

use futures::executor::block_on;
use pirn::{Engine, EventType, Message, Role, SubscriptionItem};
use pirn_tests::world::{code, line, node, run_unrecorded};
use serde_json::{Map, Value, json};

use super::triggered::{look, looking};

/// Returns the notifications of a run that waits for `go` and receives these CUSTOM events and then `go` from outside.
fn notifications(trigger: &Value, events: &[&str]) -> Vec<Value> {
    let mut main = line("main", &[node("gate", "WAIT", json!({"event": "go"}))]);
    main["triggers"] = json!([trigger]);
    let engine = Engine::builder()
        .virtual_time(Some(1))
        .workflows(main.to_string())
        .build()
        .expect("valid");
    let mut run = engine.run("main");
    let mut inside = run.blocking_events(&[EventType::NodeStarted], 100);
    let notified = run.blocking_events(&[EventType::Notification], 100);
    let handle = run.start().expect("admitted");
    // The run now waits only for `go`.
    let waits =
        inside.any(|heard| matches!(heard, SubscriptionItem::Event(event) if event.raised.fields["nodeId"] == "gate"));
    assert!(waits);
    for name in events.iter().chain(&["go"]) {
        handle.emit(*name, Map::from_iter([("from".to_owned(), json!("outside"))]));
    }
    handle.wait_all_ended_blocking();
    engine.shutdown_blocking(std::time::Duration::ZERO);
    let heard = notified.map(|heard| match heard {
        SubscriptionItem::Event(event) => event.raised.fields["message"].clone(),
        SubscriptionItem::Lagged(count) => panic!("{count} missed"),
    });
    heard.collect()
}

#[test]
fn f04_custom_events_are_matched_by_name() {
    let trigger = |name: &str| {
        json!({"id": "t", "type": "EVENT", "condition": {"eventType": "CUSTOM", "eventName": name},
            "action": {"type": "SEND_NOTIFICATION", "parameters": {"message": "{{event.eventName}} {{event.data.from}}"}}})
    };
    for (name, events, expected) in [
        ("a", vec!["a"], vec!["a outside"]),
        ("a", vec!["b", "a", "ab", "A"], vec!["a outside"]),
        ("a", vec!["a", "a"], vec!["a outside", "a outside"]),
        ("c", vec!["a", "b"], vec![]),
        ("go", vec!["a"], vec!["go outside"]),
    ] {
        assert_eq!(
            notifications(&trigger(name), &events),
            expected,
            "F04 {name} {events:?}"
        );
    }
}

/// Returns an engine with a trigger outside of the workflow, whose limit is shared by all runs of the engine.
fn counted(most: u64) -> Engine {
    let trigger = json!({"id": "t", "type": "EVENT", "maxTriggers": most,
        "condition": {"eventType": "NODE_COMPLETED", "expression": "event.nodeId === 'a'"},
        "action": {"type": "SEND_NOTIFICATION", "parameters": {"message": "fired"}}});
    let file = json!({"workflows": [line("main", &[code("a", "return 1")])], "triggers": [trigger]});
    Engine::builder()
        .virtual_time(Some(1))
        .workflows(file.to_string())
        .build()
        .expect("valid")
}

/// Executes a run until the triggers have processed all its events, and returns the number of firings.
fn run_once(engine: &Engine) -> u64 {
    let mut run = engine.run("main");
    let notified = run.blocking_events(&[EventType::Notification], 100);
    run.start().expect("admitted").wait_all_ended_blocking();
    notified.count() as u64
}

/// Returns whether the trigger is enabled, and the number of its firings.
fn state(engine: &Engine) -> (bool, u64) {
    let states = block_on(engine.triggers(None));
    assert_eq!(states.len(), 1);
    (states[0].enabled, states[0].fired)
}

#[test]
fn f10_a_trigger_at_max_triggers_does_not_fire_again_when_enabled() {
    let engine = counted(3);
    for (fires, enabled, count) in [(1, true, 1), (1, true, 2), (1, false, 3), (0, false, 3), (0, false, 3)] {
        assert_eq!(run_once(&engine), fires, "F10");
        assert_eq!(state(&engine), (enabled, count), "F10");
    }
    assert_eq!(block_on(engine.enable_trigger(None, "t", true)), Some(true), "F10");
    assert_eq!(run_once(&engine), 0, "F10");
    assert_eq!(
        state(&engine).1,
        3,
        "F10: whoever enables it gives it no more than it had"
    );
    engine.shutdown_blocking(std::time::Duration::ZERO);
}

#[test]
fn f13_enabling_or_disabling_a_trigger_twice_reports_no_change() {
    let engine = counted(0);
    let enable = |enabled: bool| block_on(engine.enable_trigger(None, "t", enabled));
    let steps = [
        (true, Some(false), true),
        (false, Some(true), false),
        (false, Some(false), false),
        (true, Some(true), true),
        (true, Some(false), true),
    ];
    for (place, (enabled, changed, watches)) in steps.into_iter().enumerate() {
        assert_eq!(enable(enabled), changed, "F13 step {place}");
        let (is_enabled, before) = state(&engine);
        assert_eq!(is_enabled, watches, "F13 step {place}");
        assert_eq!(run_once(&engine), u64::from(watches), "F13 step {place}");
        assert_eq!(state(&engine).1 - before, u64::from(watches), "F13 step {place}");
    }
    assert_eq!(block_on(engine.enable_trigger(None, "nobody", true)), None, "F13");
    engine.shutdown_blocking(std::time::Duration::ZERO);
}

#[test]
fn f19_the_seeds_trigger_starts_its_workflow_with_the_fields_it_names() {
    let trigger = json!({
        "id": "compression-trigger", "type": "event", "condition": {"eventType": "TOKEN_LIMIT_EXCEEDED"},
        "action": {"type": "START_WORKFLOW", "parameters": {"workflowId": "compression-workflow",
            "input": {"source": "event", "fields": ["threadId", "workflowId", "tokensUsed", "tokenLimit"]}}},
        "status": "ENABLED",
    });
    let mut main = line(
        "w",
        &[node("ask", "LLM", json!({"profileId": "m", "prompt": "a question"}))],
    );
    main["config"] = json!({"tokenLimit": 40,
        "compression": {"strategy": "keep_recent", "parameters": {"count": 2}}});
    let compression = line("compression-workflow", &[look()]);
    let file = json!({"workflows": [main, compression], "triggers": [trigger],
        "profiles": [{"id": "m", "provider": "echo"}]});
    let (builder, seen) = looking();
    let words = "many words of no weight at all ".repeat(10);
    let ran = run_unrecorded(
        builder,
        &file,
        Value::Null,
        vec![Message::new(Role::User, words.clone())],
    );
    assert_eq!(ran.code(), "", "F19: {:?}", ran.report.error);
    let exceeded = ran.of(EventType::TokenLimitExceeded);
    assert_eq!(exceeded.len(), 1, "F19");
    let event = &exceeded[0].raised.fields;
    let seen: Vec<Value> = seen.iter().collect();
    assert_eq!(seen.len(), 1, "F19");
    let mut expected = json!({
        "threadId": ran.report.thread_id, "workflowId": "w",
        "tokensUsed": event["tokensUsed"], "tokenLimit": 40,
        // A token event (SPEC section 6) also has the messages to compress.
        "messages": [{"role": "user", "content": words}, {"role": "user", "content": "a question"}],
        "compressionConfig": {"strategy": "keep_recent", "parameters": {"count": 2}},
    });
    assert!(event["tokensUsed"].as_u64() > Some(40), "F19: {event:?}");
    expected["markMap"] = seen[0]["markMap"].clone();
    assert_eq!(seen[0]["markMap"]["currentBatch"], 0, "F19");
    assert_eq!(seen[0], expected, "F19");
}
