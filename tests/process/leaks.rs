//! Many runs leak no memory.

use std::time::Duration;

use pirn::{Engine, RunHandle, ThreadStatus};
use pirn_tests::stress::resident_kib;
use pirn_tests::world::{forked, node, say, wait};
use serde_json::{Value, json};

#[test]
fn ten_thousand_runs_end_and_leak_no_memory() {
    let bundle = forked(
        &[
            vec![node("a", "CODE", json!({"function": "one"}))],
            vec![say("b", "from b")],
            vec![node("c", "CODE", json!({"function": "fails"}))],
            vec![wait("d", 1)],
        ],
        false,
        &json!({"joinStrategy": "SUCCESS_COUNT_THRESHOLD", "threshold": 2}),
    );
    let engine = Engine::builder()
        .arbiters(2)
        .function("one", |_| Ok(json!(1)))
        .function("fails", |_| Err("on purpose".to_owned()))
        .workflows(bundle.to_string())
        .build()
        .unwrap_or_else(|error| panic!("{error}"));
    let mut after_warm_up = None;
    for batch in 0..20 {
        let handles: Vec<RunHandle> = (0..500)
            .map(|_| {
                engine
                    .start("forked", Value::Null)
                    .unwrap_or_else(|error| panic!("{error}"))
            })
            .collect();
        for handle in &handles {
            assert_eq!(handle.outcome_blocking().status, ThreadStatus::Completed);
            handle.wait_all_ended_blocking();
        }
        if batch == 4 {
            after_warm_up = resident_kib();
        }
    }
    assert_eq!(engine.live_runs(), 0);
    if let (Some(before), Some(after)) = (after_warm_up, resident_kib()) {
        assert!(
            after < before + 32 * 1024,
            "7,500 runs more kept {} KiB",
            after.saturating_sub(before)
        );
    }
    let report = engine.shutdown_blocking(Duration::from_secs(5));
    assert_eq!((report.runs_left, report.tasks_left, report.work_left), (0, 0, 0));
}
