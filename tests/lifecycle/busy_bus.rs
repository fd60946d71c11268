//! Many concurrent runs: the queue of the event bus is bounded, and no run waits for ever.

use futures::executor::block_on;
use pirn::{Engine, EventType, RunHandle, SubscriptionItem, ThreadStatus};
use pirn_tests::world::{line, node};
use serde_json::json;

/// Bound on the messages queued for the bus of an arbiter: at 1,024 no run gets a turn, and one turn adds at most 512.
const MOST: u64 = 1_024 + 512;

fn engine() -> Engine {
    let steps: Vec<_> = (0..8)
        .map(|step| {
            node(
                &format!("n{step}"),
                "VARIABLE",
                json!({"variableName": "x", "expression": step.to_string()}),
            )
        })
        .collect();
    let idle = line("idle", &[node("w", "WAIT", json!({"event": "go"}))]);
    Engine::builder()
        .arbiters(1)
        .max_runs(100_000)
        .workflows(json!({"workflows": [line("quick", &steps), idle]}).to_string())
        .build()
        .unwrap_or_else(|error| panic!("{error}"))
}

/// Starts a run with a subscription to all of its events.
fn start_subscribed(engine: &Engine, workflow: &str) -> (RunHandle, pirn::Events) {
    let mut run = engine.run(workflow);
    let events = run.events(&[], 256);
    (run.start().expect("admitted"), events)
}

#[test]
fn the_queue_of_the_event_bus_is_bounded_for_any_number_of_runs() {
    let engine = engine();
    let runs: Vec<_> = (0..5_000).map(|_| start_subscribed(&engine, "quick")).collect();
    let mut deepest = 0;
    while engine.live_runs() > 0 {
        deepest = deepest.max(block_on(engine.mailbox_depths()).event_buses);
    }
    assert!(deepest <= MOST, "{deepest} messages waited for the bus");
    for (run, events) in runs {
        assert_eq!(run.outcome_blocking().status, ThreadStatus::Completed);
        run.wait_all_ended_blocking();
        let types: Vec<EventType> = futures::executor::block_on_stream(events)
            .map(|heard| match heard {
                SubscriptionItem::Event(event) => event.raised.event_type,
                SubscriptionItem::Lagged(missed) => panic!("{missed} were missed"),
            })
            .collect();
        assert_eq!(
            (types.first(), types.last()),
            (Some(&EventType::ThreadStarted), Some(&EventType::ThreadCompleted))
        );
    }
}

#[test]
fn queued_runs_are_cancelled_by_a_cancel_and_by_a_shutdown() {
    let engine = engine();
    let runs: Vec<_> = (0..5_000).map(|_| start_subscribed(&engine, "idle")).collect();
    runs.iter().step_by(2).for_each(|(run, _)| run.cancel("enough"));
    for (run, _) in runs.iter().step_by(2) {
        assert_eq!(run.outcome_blocking().status, ThreadStatus::Cancelled);
    }
    let report = engine.shutdown_blocking(std::time::Duration::ZERO);
    assert_eq!((report.runs_cancelled, report.runs_left), (2_500, 0));
    for (run, _) in runs.iter().skip(1).step_by(2) {
        assert_eq!(run.outcome_blocking().status, ThreadStatus::Cancelled);
    }
}
