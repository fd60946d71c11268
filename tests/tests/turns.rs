//! A thread's turns on real threads: bounded, contained, and in the place of an actor while nothing has to wait.

use std::sync::mpsc;
use std::time::Duration;

use pirn::{Engine, ThreadStatus};
use pirn_tests::world::{forked, node};
use serde_json::json;

#[test]
fn a_loop_that_never_waits_can_be_cancelled() {
    let (told, heard) = mpsc::sync_channel(0);
    let first = std::sync::Once::new();
    let spin = json!({"id": "spin",
        "nodes": [{"id": "s", "type": "START"}, node("a", "CODE", json!({"function": "step"})),
            node("b", "CODE", json!({"function": "step"})), {"id": "e", "type": "END"}],
        "edges": [{"from": "s", "to": "a"}, {"from": "a", "to": "b", "weight": 2}, {"from": "b", "to": "a"}, {"from": "a", "to": "e"}],
        "config": {"maxSteps": 50_000_000}});
    let engine = Engine::builder()
        .function("step", move |_| {
            first.call_once(|| told.send(()).unwrap_or(()));
            Ok(json!(null))
        })
        .workflows(spin.to_string())
        .build()
        .expect("valid");
    let run = engine.start("spin", json!(null)).expect("admitted");
    heard.recv().expect("it runs");
    run.cancel("enough");
    let report = run.outcome_blocking();
    assert_eq!(report.status, ThreadStatus::Cancelled);
    engine.shutdown_blocking(Duration::from_secs(5));
}

#[test]
fn branches_that_panic_in_their_first_turn_fail_alone() {
    let bad = |n: usize| node(&format!("b{n}"), "CODE", json!({"function": "bad"}));
    let good = |n: usize| node(&format!("b{n}"), "CODE", json!({"function": "good"}));
    let branches: Vec<_> = (0..100)
        .map(|n| vec![if n % 2 == 0 { bad(n) } else { good(n) }])
        .collect();
    let join = json!({"joinStrategy": "SUCCESS_COUNT_THRESHOLD", "threshold": 50});
    let engine = Engine::builder()
        .function("good", |_| Ok(json!("fine")))
        .function("bad", |_| panic!("on purpose"))
        .workflows(forked(&branches, false, &node("join", "JOIN", join)["config"]).to_string())
        .build()
        .expect("valid");
    let report = engine
        .start("forked", json!(null))
        .expect("admitted")
        .outcome_blocking();
    assert_eq!(report.status, ThreadStatus::Completed, "{:?}", report.error);
    let failed = report.output["failed"].as_array().map_or(0, Vec::len);
    assert_eq!(failed, 50);
    assert_eq!(report.output["failed"][0]["error"]["code"], "ACTOR_PANICKED");
    assert_eq!(report.output["failed"][0]["error"]["pathId"], "p0");
    engine.shutdown_blocking(Duration::from_secs(5));
}
