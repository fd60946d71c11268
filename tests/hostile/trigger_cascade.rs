//! Triggers that fire each other until their run's budget is exhausted: ending the run during the cascade does not block.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use pirn::{Engine, EventType, RunHandle, SubscriptionItem, ThreadStatus};
use serde_json::{Value, json};

use crate::scripts::now;

/// Far less than the run would take without being ended.
const SOON: Duration = Duration::from_mins(1);

/// Number of notifications after which the cascade is considered to be in progress.
const MANY: usize = 500;

/// The notifications for the two nodes that start, and for the default budget of a run.
const MOST: usize = 2 + 10_000;

/// Firings that a run's triggers have left when it is stopped, however large its budget is.
const AFTER_THE_END: usize = 10_000;

pub(crate) const TESTS: &[(&str, fn())] = &[
    ("a cancel ends a run during a trigger cascade", cancel),
    (
        "a cancel overtakes the queued events of a trigger cascade",
        cancel_of_a_large_budget,
    ),
    ("a time limit ends a run during a trigger cascade", time_limit),
    ("a shutdown completes during a trigger cascade", shutdown),
];

/// A run that waits for an hour while its triggers fire each other.
fn cascade(config: &Value) -> String {
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

/// The status and the number of notifications of a run that is ended in the middle of its cascade.
fn in_the_middle(config: &Value, end: impl FnOnce(&Engine, &RunHandle)) -> (ThreadStatus, usize) {
    let engine = Engine::builder().workflows(cascade(config)).arbiters(1).build();
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
        SubscriptionItem::Event(_) => 1,
        SubscriptionItem::Lagged(count) => usize::try_from(count).expect("no more"),
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

/// The cascade cancels its run with tens of thousands of events queued. Notifications after that come from the firings that a
/// stopped run has left (`AFTER_THE_END`), not from the whole queue.
fn cancel_of_a_large_budget() {
    const AT: usize = 20_000;
    let handle = Arc::new(OnceLock::<RunHandle>::new());
    let (told, run) = (Arc::new(AtomicUsize::new(0)), Arc::clone(&handle));
    let seen = Arc::clone(&told);
    let notify = move |_: &str, _: Option<&str>| {
        if seen.fetch_add(1, Ordering::Relaxed) + 1 == AT {
            run.wait().cancel("enough");
        }
    };
    let workflow = cascade(&json!({"maxTriggeredEvents": 1_000_000_000}));
    let engine = Engine::builder()
        .workflows(workflow)
        .arbiters(1)
        .on_notification(notify)
        .build();
    let engine = engine.unwrap_or_else(|error| panic!("{error}"));
    let run = handle.get_or_init(|| engine.run("storm").start().expect("it starts"));
    assert_eq!(run.outcome_blocking().status, ThreadStatus::Cancelled);
    let all = told.load(Ordering::Relaxed);
    println!("  {all} notifications");
    assert!(all < AT + 2 * AFTER_THE_END, "{all} notifications");
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
