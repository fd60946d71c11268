//! The shipped example runs from file to report.

use std::time::Duration;

use pirn::{Engine, ThreadStatus};
use serde_json::json;

const REVIEW: &str = include_str!("../../examples/support-fork.json");
const TOPIC: &str = include_str!("../../examples/topic-of.json");

#[test]
fn the_example_forks_calls_joins_routes_and_answers() {
    let engine = Engine::builder()
        .workflows(REVIEW)
        .workflows(TOPIC)
        .build()
        .expect("valid");
    let ticket = json!({ "ticket": "I never got my refund!" });
    let report = engine.start("review", ticket).expect("admitted").outcome_blocking();
    assert_eq!(report.status, ThreadStatus::Completed, "{:?}", report.error);
    assert_eq!(report.output["tone"], "upset");
    assert_eq!(report.output["topic"], "refund");
    assert_eq!(report.output["text"], "Escalate refund: I never got my refund!");
    assert_eq!(
        engine.shutdown_blocking(Duration::from_secs(5)),
        pirn::ShutdownReport::default()
    );
}

#[test]
fn an_hour_passes_at_once_under_virtual_time() {
    let engine = Engine::builder()
        .virtual_time(Some(7))
        .workflows(
            r#"{"id": "nap", "nodes": [{"id": "s", "type": "START"}, {"id": "w", "type": "WAIT", "config": {"seconds": 3600}}, {"id": "e", "type": "END"}],
                "edges": [{"from": "s", "to": "w"}, {"from": "w", "to": "e"}]}"#,
        )
        .build()
        .expect("valid");
    let report = engine.start("nap", json!(null)).expect("admitted").outcome_blocking();
    assert_eq!((report.status, report.elapsed_ms), (ThreadStatus::Completed, 3_600_000));
}
