//! Equal seeds give equal runs, every seed preserves the invariants, and many runs leak no memory.

use std::time::Duration;

use pirn::{Engine, RunHandle, ThreadStatus};
use pirn_tests::world::{code, forked, node, run_seeded, say, wait};
use serde_json::{Value, json};

/// Returns a workflow with timers, scripts, messages, a failure and a global write in overlapping branches.
fn mixed(join: &Value) -> Value {
    forked(
        &[
            vec![say("a", "from a"), wait("aw", 5), code("ac", "return 1")],
            vec![code("b", "return 2"), wait("bw", 5)],
            vec![wait("cw", 5), code("cc", "throw new Error('broken')")],
            vec![
                node(
                    "d",
                    "VARIABLE",
                    json!({"variableName": "g", "expression": "1", "scope": "global"}),
                ),
                wait("dw", 5),
            ],
        ],
        false,
        join,
    )
}

#[test]
fn equal_seeds_give_equal_events_and_reports() {
    let bundle = mixed(&json!({"joinStrategy": "SUCCESS_COUNT_THRESHOLD", "threshold": 2}));
    for seed in [0, 1, 99] {
        let (once, twice) = (
            run_seeded(&bundle, Value::Null, seed),
            run_seeded(&bundle, Value::Null, seed),
        );
        assert_eq!(once.events, twice.events, "seed {seed}");
        assert_eq!(once.report, twice.report, "seed {seed}");
    }
}

#[test]
fn results_independent_of_order_are_equal_in_every_order() {
    let bundle = mixed(&json!({"joinStrategy": "SUCCESS_COUNT_THRESHOLD", "threshold": 3}));
    let first = run_seeded(&bundle, Value::Null, 0);
    assert_eq!(first.code(), "");
    let mut orders = std::collections::BTreeSet::new();
    for seed in 0..200 {
        let ran = run_seeded(&bundle, Value::Null, seed);
        assert_eq!(ran.report.status, first.report.status, "seed {seed}");
        assert_eq!(
            ran.report.output["outputs"], first.report.output["outputs"],
            "seed {seed}"
        );
        assert_eq!(ran.visible(), first.visible(), "seed {seed}");
        assert_eq!(ran.report.variables, first.report.variables, "seed {seed}");
        orders.insert(format!(
            "{:?}",
            ran.events
                .iter()
                .map(|event| (event.raised.event_type, &event.thread_id))
                .collect::<Vec<_>>()
        ));
    }
    assert!(orders.len() > 20, "seeds change the order: {}", orders.len());
}

#[test]
fn a_race_has_one_winner_and_no_thread_survives_it() {
    let bundle = mixed(&json!({"joinStrategy": "ANY_COMPLETED"}));
    for seed in 0..200 {
        let ran = run_seeded(&bundle, Value::Null, seed);
        assert_eq!(ran.code(), "", "seed {seed}");
        let completed = ran.report.output["completed"].as_array().map_or(0, Vec::len);
        assert_eq!(completed, 1, "seed {seed}");
    }
}

/// Returns the resident memory in KiB, or `None` on a system without `/proc`.
fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

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
            handle.settled_blocking();
        }
        if batch == 4 {
            after_warm_up = resident();
        }
    }
    assert_eq!(engine.live_runs(), 0);
    if let (Some(before), Some(after)) = (after_warm_up, resident()) {
        assert!(
            after < before + 32 * 1024,
            "7,500 runs more kept {} KiB",
            after.saturating_sub(before)
        );
    }
    let report = engine.shutdown_blocking(Duration::from_secs(5));
    assert_eq!((report.runs_left, report.tasks_left, report.work_left), (0, 0, 0));
}
