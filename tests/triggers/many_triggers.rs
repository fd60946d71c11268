//! SPEC section 5 at scale: thousands of triggers, and limits that many threads reach concurrently.

use std::sync::Arc;

use pirn::{Engine, Event, EventFilter, EventType, SubscriptionItem};
use pirn_definition::definition::PinSection;
use pirn_tests::world::{code, forked, line, run};
use serde_json::{Value, json};

fn notifying(id: &str, extra: &Value) -> Value {
    let mut trigger = json!({"id": id, "type": "EVENT", "condition": {"eventType": "NODE_COMPLETED"},
        "action": {"type": "SEND_NOTIFICATION", "parameters": {"message": id}}});
    for (key, value) in extra.as_object().into_iter().flatten() {
        trigger[key] = value.clone();
    }
    trigger
}

#[test]
fn of_ten_thousand_triggers_exactly_the_matching_ones_fire() {
    let triggers: Vec<Value> = (0..10_000)
        .map(|place| {
            let expression = format!("event.nodeId === 'node{place}'");
            notifying(
                &format!("t{place}"),
                &json!({"condition": {"eventType": "NODE_COMPLETED", "expression": expression}}),
            )
        })
        .collect();
    let nodes = ["node17", "node4711", "node9999"].map(|id| code(id, "return 1"));
    let ran = run(
        &json!({"workflows": [line("main", &nodes)], "triggers": triggers}),
        Value::Null,
    );
    assert_eq!(ran.code(), "");
    let fired = ran.of(EventType::Notification).into_iter();
    let fired: Vec<&str> = fired
        .filter_map(|event| event.raised.fields["message"].as_str())
        .collect();
    assert_eq!(fired, ["t17", "t4711", "t9999"]);
    assert_eq!(ran.of(EventType::TriggerFailed).len(), 0);
}

#[test]
fn max_triggers_is_exact_for_concurrent_events_of_many_branches_and_runs() {
    const RUNS: usize = 8;
    const LIMIT: usize = 7;
    let branches: Vec<Vec<Value>> = (0..16)
        .map(|place| vec![code(&format!("n{place}"), "return 1")])
        .collect();
    let mut main = forked(&branches, false, &json!({"joinStrategy": "ALL_COMPLETED"}));
    main["triggers"] = json!([notifying("of each run", &json!({ "maxTriggers": LIMIT }))]);
    let bundle =
        json!({"workflows": [main], "triggers": [notifying("of the engine", &json!({ "maxTriggers": LIMIT }))]});
    let engine = Engine::builder()
        .arbiters(4)
        .workflows(bundle.to_string())
        .build()
        .unwrap_or_else(|error| panic!("{error}"));
    let filter = EventFilter {
        types: vec![EventType::Notification],
        ..EventFilter::default()
    };
    let mut events = engine.events(filter, 1 << 12);
    let runs: Vec<_> = (0..RUNS)
        .map(|_| {
            engine
                .start("forked", Value::Null)
                .unwrap_or_else(|error| panic!("{error}"))
        })
        .collect();
    for run in &runs {
        assert_eq!(run.outcome_blocking().error, None);
        run.wait_all_ended_blocking();
    }
    engine.shutdown_blocking(std::time::Duration::from_secs(5));
    let mut messages = Vec::new();
    while let Some(heard) = futures::executor::block_on(events.next()) {
        let SubscriptionItem::Event(event) = heard else {
            panic!("events were missed")
        };
        messages.push((event.run_id.to_string(), event.raised.fields["message"].clone()));
    }
    let count = |message: &str, run: Option<&str>| {
        let of = messages.iter().filter(|(_, said)| said == message);
        of.filter(|(id, _)| run.is_none_or(|run| id == run)).count()
    };
    assert_eq!(count("of the engine", None), LIMIT);
    for run in &runs {
        assert_eq!(count("of each run", Some(run.run_id())), LIMIT);
    }
}

#[test]
fn external_events_are_delivered_once_in_order_between_other_inputs() {
    const EVENTS: u64 = 3_000;
    let wait = json!({"id": "wait", "type": "WAIT", "config": {"event": "over"}});
    let engine = Engine::builder()
        .arbiters(2)
        .workflows(line("main", &[wait]).to_string())
        .build()
        .unwrap_or_else(|error| panic!("{error}"));
    let mut run = engine.run("main");
    let mut events = run.blocking_events(&[], 1 << 14);
    let run = run.start().expect("admitted");
    let mut heard: Vec<Arc<Event>> = Vec::new();
    let mut hear_until = |is_last: &dyn Fn(&Event) -> bool| -> bool {
        for next in &mut events {
            match next {
                SubscriptionItem::Event(event) => heard.push(event),
                SubscriptionItem::Lagged(count) => panic!("{count} were missed"),
            }
            if heard.last().is_some_and(|event| is_last(event)) {
                return true;
            }
        }
        false
    };
    // An event that is raised before the node waits for it would be missed.
    assert!(hear_until(
        &|event| event.raised.fields.get("nodeId") == Some(&json!("wait"))
    ));
    std::thread::scope(|scope| {
        for sender in 0..2_u64 {
            let run = &run;
            scope.spawn(move || {
                for number in 0..EVENTS {
                    run.emit(
                        format!("from {sender}"),
                        serde_json::Map::from_iter([("n".to_owned(), json!(number))]),
                    );
                    if number % 7 == sender {
                        run.pin(PinSection::Role, json!(number.to_string()));
                    }
                }
            });
        }
    });
    run.emit("over", serde_json::Map::new());
    run.outcome_blocking();
    run.wait_all_ended_blocking();
    engine.shutdown_blocking(std::time::Duration::from_secs(5));
    hear_until(&|_| false);
    assert!(heard.iter().map(|event| event.sequence).eq(1..=heard.len() as u64));
    for sender in 0..2 {
        let name = Some(format!("from {sender}"));
        let own = heard
            .iter()
            .filter(|event| event.raised.event_name.as_deref() == name.as_deref());
        assert!(
            own.map(|event| event.raised.fields["data"]["n"].as_u64())
                .eq((0..EVENTS).map(Some))
        );
    }
}

#[test]
fn concurrent_events_fire_their_trigger_once_each_in_order() {
    let wait = json!({"id": "wait", "type": "WAIT", "config": {"event": "over"}});
    let mut main = line("main", &[wait]);
    main["triggers"] = json!([{"id": "t", "type": "EVENT", "condition": {"eventType": "CUSTOM", "eventName": "n"},
        "action": {"type": "CUSTOM", "parameters": {"function": "note"}}}]);
    for count in [0, 1, 2, 15, 16, 17, 32, 33, 600] {
        let noted = Arc::new(std::sync::Mutex::new(Vec::new()));
        let seen = Arc::clone(&noted);
        let engine = Engine::builder()
            .virtual_time(None)
            .function("note", move |input| {
                let mut seen = seen.lock().map_err(|error| error.to_string())?;
                seen.push(input.value()["event"]["data"]["n"].clone());
                Ok(Value::Null)
            })
            .workflows(main.to_string())
            .build()
            .unwrap_or_else(|error| panic!("{error}"));
        let run = engine.start("main", Value::Null).expect("admitted");
        for number in 0..count {
            run.emit("n", [("n", json!(number))]);
        }
        run.emit("over", serde_json::Map::new());
        assert_eq!(run.outcome_blocking().error, None);
        let expected: Vec<Value> = (0..count).map(Value::from).collect();
        assert_eq!(noted.lock().map(|noted| noted.clone()).ok(), Some(expected));
    }
}
