//! Triggers that fire each other until their run's budget is used up: whoever ends the run meanwhile is not kept waiting.

use std::time::Duration;

use pirn::{Engine, EventType, Heard, RunHandle, ThreadStatus};
use serde_json::{Value, json};

use crate::scripts::now;

/// Far sooner than the run ends by itself.
const SOON: Duration = Duration::from_mins(1);

/// Notifications after which it is a storm.
const MANY: usize = 500;

/// Those of the two nodes that start, and of the budget that runs have by default.
const MOST: usize = 2 + 10_000;

pub(crate) const TESTS: &[(&str, fn())] = &[
    ("a cancel ends a run in the middle of a storm", cancel),
    ("a time limit ends a run in the middle of a storm", time_limit),
    ("a shutdown ends in the middle of a storm", shutdown),
];

/// A run that waits for an hour while its triggers fire each other.
fn storm(config: &Value) -> String {
    let notify = |id: &str, condition: Value| {
        json!({"id": id, "type": "EVENT", "condition": condition,
            "action": {"type": "SEND_NOTIFICATION", "parameters": {"message": id}}})
    };
    let mut triggers: Vec<Value> = (0..8)
        .map(|n| notify(&format!("t{n}"), json!({"eventType": "NOTIFICATION"})))
        .collect();
    triggers.push(notify("first", json!({"eventType": "NODE_STARTED"})));
    json!({"workflows": [{"id": "storm", "config": config, "triggers": triggers,
        "nodes": [{"id": "s", "type": "START"}, {"id": "w", "type": "WAIT", "config": {"seconds": 3_600}}, {"id": "e", "type": "END"}],
        "edges": [{"from": "s", "to": "w"}, {"from": "w", "to": "e"}]}]})
    .to_string()
}

/// How a run ends in the middle of its storm, and what it has notified of by then.
fn in_the_middle(config: &Value, end: impl FnOnce(&Engine, &RunHandle)) -> (ThreadStatus, usize) {
    let engine = Engine::builder().workflows(storm(config)).arbiters(1).build();
    let engine = engine.unwrap_or_else(|error| panic!("{error}"));
    let mut prepared = engine.run("storm");
    let mut heard = prepared.blocking_events(&[EventType::Notification], MANY);
    let run = prepared.start().expect("it starts");
    for _ in 0..MANY {
        assert!(heard.next().is_some(), "it is a storm");
    }
    let begin = now();
    end(&engine, &run);
    let status = run.outcome_blocking().status;
    engine.shutdown_blocking(Duration::from_secs(1));
    drop(engine);
    let rest = heard.map(|one| match one {
        Heard::Event(_) => 1,
        Heard::Lagged(count) => usize::try_from(count).expect("no more"),
    });
    let all = MANY + rest.sum::<usize>();
    println!("  {status:?} after {:?}, {all} notifications", begin.elapsed());
    assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
    assert!(all <= MOST, "{all} notifications");
    (status, all)
}

fn cancel() {
    let (status, _) = in_the_middle(&json!({}), |_, run| run.cancel("enough"));
    assert_eq!(status, ThreadStatus::Cancelled);
}

fn time_limit() {
    let (status, _) = in_the_middle(&json!({"timeoutMs": 300}), |_, _| {});
    assert_eq!(status, ThreadStatus::Timeout);
}

fn shutdown() {
    let (status, _) = in_the_middle(&json!({}), |engine, _| {
        engine.shutdown_blocking(Duration::from_millis(100));
    });
    assert_eq!(status, ThreadStatus::Cancelled);
}
