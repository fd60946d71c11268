//! Guarantees of docs/semantics.md without a scenario.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::executor::block_on;
use pirn::{Engine, EventFilter, EventType, SubscriptionItem, ThreadStatus};
use pirn_tests::world::{Ran, code, forked, node, run_seeded, wait, workflow};
use serde_json::{Map, Value, json};

/// Returns the intervals in which each thread was in a node as `(id, from, to)`, in virtual milliseconds since the run's start.
fn stays(ran: &Ran) -> BTreeMap<&str, Vec<(String, u64, u64)>> {
    let began = ran.at_ms(EventType::ThreadStarted).unwrap_or_default();
    let mut inside: BTreeMap<&str, (String, u64)> = BTreeMap::new();
    let mut stays: BTreeMap<&str, Vec<(String, u64, u64)>> = BTreeMap::new();
    for event in &ran.events {
        let id = || event.raised.fields["nodeId"].as_str().unwrap_or_default().to_owned();
        match event.raised.event_type {
            EventType::NodeStarted => {
                let before = inside.insert(&event.thread_id, (id(), event.timestamp - began));
                assert_eq!(before, None, "{} was in two nodes at once", event.thread_id);
            }
            EventType::NodeCompleted => {
                let (entered, from) = inside.remove(&*event.thread_id).expect("it was in a node");
                assert_eq!(entered, id(), "{}", event.thread_id);
                let stay = (entered, from, event.timestamp - began);
                stays.entry(&event.thread_id).or_default().push(stay);
            }
            _other => {}
        }
    }
    stays
}

#[test]
fn nodes_run_in_sequence_and_branches_by_their_forks_strategy() {
    let branches: Vec<Vec<Value>> = (0..4)
        .map(|place| vec![wait(&format!("a{place}"), 10), wait(&format!("b{place}"), 5)])
        .collect();
    for seed in 0..20 {
        for (is_serial, begin) in [(false, [0, 0, 0, 0]), (true, [0, 15, 30, 45])] {
            let file = forked(&branches, is_serial, &json!({"joinStrategy": "ALL_COMPLETED"}));
            let ran = run_seeded(&file, Value::Null, seed);
            let stays = stays(&ran);
            for (place, from) in begin.into_iter().enumerate() {
                let (a, b) = (format!("a{place}"), format!("b{place}"));
                let expected = vec![(a, from, from + 10), (b, from + 10, from + 15)];
                let found = stays.values().filter(|stays| **stays == expected).count();
                assert_eq!(found, 1, "seed {seed}, serial {is_serial}: {expected:?} in {stays:?}");
            }
        }
    }
}

#[test]
fn max_triggers_is_exact_for_concurrent_events() {
    let branches: Vec<Vec<Value>> = (0..40)
        .map(|place| vec![code(&format!("c{place}"), "return 1")])
        .collect();
    let trigger = |most: u64| {
        json!({"id": "t", "type": "EVENT", "maxTriggers": most,
            "condition": {"eventType": "NODE_COMPLETED", "expression": "event.nodeType === 'CODE'"},
            "action": {"type": "SEND_NOTIFICATION", "parameters": {"message": "fired"}}})
    };
    let file = |inside: Option<u64>, outside: Option<u64>| {
        let mut main = forked(&branches, false, &json!({"joinStrategy": "ALL_COMPLETED"}));
        main["triggers"] = inside.map(trigger).into_iter().collect();
        json!({"workflows": [main], "triggers": outside.map(trigger).into_iter().collect::<Vec<Value>>()})
    };
    for seed in 0..10 {
        for (most, expected) in [(0, 40), (7, 7), (100, 40)] {
            let ran = run_seeded(&file(Some(most), None), Value::Null, seed);
            assert_eq!(ran.of(EventType::Notification).len(), expected, "seed {seed}, {most}");
        }
    }
    // Several runs on several threads: all runs share the limit of a trigger outside of the workflow, and each run has its own
    // limit for a trigger inside.
    let told = |file: &Value| {
        let engine = Engine::builder()
            .arbiters(2)
            .workflows(file.to_string())
            .build()
            .expect("valid");
        let mut heard = Vec::new();
        for _ in 0..6 {
            let mut run = engine.run("forked");
            heard.push(run.blocking_events(&[EventType::Notification], 1000));
            run.start().expect("admitted");
        }
        let told: Vec<usize> = heard.into_iter().map(Iterator::count).collect();
        engine.shutdown_blocking(Duration::from_secs(5));
        told
    };
    assert_eq!(told(&file(Some(7), None)), [7; 6]);
    assert_eq!(told(&file(None, Some(100))).iter().sum::<usize>(), 100);
}

/// Returns true if the event belongs to this node.
fn is_in(heard: &SubscriptionItem, id: &str) -> bool {
    matches!(heard, SubscriptionItem::Event(event) if event.raised.fields.get("nodeId") == Some(&json!(id)))
}

#[test]
fn a_late_subscriber_gets_all_events_from_its_first_one_on() {
    let mut spin = workflow(
        "spin",
        &[
            node("start", "START", json!({})),
            node("gate", "WAIT", json!({"event": "go"})),
            node("add", "VARIABLE", json!({"variableName": "n", "expression": "n + 1"})),
            node("last", "WAIT", json!({"event": "go on"})),
            node("end", "END", json!({})),
        ],
        &["start>gate>add", "last>end"],
    );
    spin["variables"] = json!([{"name": "n", "value": 0}]);
    if let Some(edges) = spin["edges"].as_array_mut() {
        edges.push(json!({"from": "add", "to": "add", "condition": "n < 400", "weight": 1}));
        edges.push(json!({"from": "add", "to": "last"}));
    }
    let engine = Engine::builder()
        .arbiters(2)
        .workflows(spin.to_string())
        .build()
        .expect("valid");
    let mut run = engine.run("spin");
    let mut first = run.blocking_events(&[], 10_000);
    let handle = run.start().expect("admitted");
    let mut all: Vec<SubscriptionItem> = Vec::new();
    while !all.last().is_some_and(|heard| is_in(heard, "gate")) {
        all.push(first.next().expect("it comes to the gate"));
    }
    handle.emit("go", Map::new());
    let filter = EventFilter {
        run_id: Some(handle.run_id().to_owned()),
        types: Vec::new(),
    };
    let mut late = engine.events(filter, 10_000);
    // The run waits at the last gate until it receives `go on`, which is sent after the subscription.
    while !all.last().is_some_and(|heard| is_in(heard, "last")) {
        all.push(first.next().expect("it comes to the last gate"));
    }
    handle.emit("go on", Map::new());
    handle.wait_all_ended_blocking();
    all.extend(first);
    let late: Vec<SubscriptionItem> = block_on(async {
        let mut heard = Vec::new();
        while let Some(next) = late.next().await {
            heard.push(next);
        }
        heard
    });
    engine.shutdown_blocking(Duration::from_secs(5));
    assert!(!late.is_empty());
    let missed = all.len() - late.len();
    assert_eq!(late, all[missed..], "from its first on it has what the other has");
}

#[test]
fn the_first_of_several_cancel_reasons_is_reported() {
    let branches = ["a", "b"].map(|id| vec![node(id, "WAIT", json!({"event": "never"}))]);
    let engine = Engine::builder()
        .arbiters(2)
        .workflows(forked(&branches, false, &json!({"joinStrategy": "ALL_COMPLETED"})).to_string())
        .build()
        .expect("valid");
    let mut run = engine.run("forked");
    let mut events = run.blocking_events(&[EventType::NodeStarted], 100);
    let handle = run.start().expect("admitted");
    for _ in 0..2 {
        let is_inside = events.any(|heard| is_in(&heard, "a") || is_in(&heard, "b"));
        assert!(is_inside);
    }
    handle.cancel("the first");
    handle.cancel("the second");
    let report = handle.outcome_blocking();
    handle.cancel("the third");
    let error = report.error.as_ref().map(ToString::to_string).unwrap_or_default();
    assert!(error.contains("the first"), "{error}");
    assert!(
        report
            .threads
            .iter()
            .all(|thread| thread.status == ThreadStatus::Cancelled),
        "{report:?}"
    );
    assert_eq!(handle.outcome_blocking().error, report.error);
    engine.shutdown_blocking(Duration::from_secs(5));
}
