//! SPEC section 4: the moment at which a join is decided, and its output.

use pirn::{Engine, EventType, ThreadStatus};
use pirn_tests::world::{code, forked, node, run, run_in, wait};
use serde_json::{Value, json};

use super::{Completes, Ends, Fails, Never, branch, joined};

/// Case id, JOIN, the ends of the branches, error code, time of the decision, final status of each path.
type Case<'a> = (&'a str, Value, &'a [Ends], &'a str, u64, &'a [ThreadStatus]);

#[test]
fn every_strategy_decides_as_soon_as_it_can() {
    let cases: &[Case<'_>] = {
        use ThreadStatus::{Cancelled, Completed, Failed};
        &[
            (
                "B01",
                json!({"joinStrategy": "ALL_COMPLETED"}),
                &[Completes(5), Completes(8), Completes(12)],
                "",
                12,
                &[Completed, Completed, Completed],
            ),
            (
                "B03",
                json!({"joinStrategy": "ANY_FAILED"}),
                &[Never, Fails(5), Never],
                "",
                5,
                &[Cancelled, Failed, Cancelled],
            ),
            (
                "B04",
                json!({"joinStrategy": "ALL_COMPLETED", "timeout": 1}),
                &[Completes(5), Never],
                "JOIN_TIMEOUT",
                1000,
                &[Completed, Cancelled],
            ),
            (
                "B09",
                json!({"joinStrategy": "ALL_COMPLETED", "timeout": 1}),
                &[Completes(5), Fails(5), Completes(5)],
                "JOIN_CONDITION_NOT_MET",
                5,
                &[],
            ),
            (
                "B10",
                json!({"joinStrategy": "ALL_FAILED", "timeout": 1}),
                &[Fails(5), Fails(5), Fails(5)],
                "",
                5,
                &[Failed, Failed, Failed],
            ),
            (
                "B11",
                json!({"joinStrategy": "ALL_FAILED"}),
                &[Fails(5), Completes(5), Never],
                "JOIN_CONDITION_NOT_MET",
                5,
                &[],
            ),
            (
                "B13",
                json!({"joinStrategy": "ANY_COMPLETED", "mainPathId": "p0"}),
                &[Fails(1), Completes(5)],
                "MAIN_THREAD_NOT_FOUND",
                5,
                &[Failed, Completed],
            ),
            (
                "B15",
                json!({"joinStrategy": "ANY_FAILED", "timeout": 1}),
                &[Completes(5), Fails(50), Completes(60)],
                "",
                50,
                &[Completed, Failed, Cancelled],
            ),
            (
                "B17",
                json!({"joinStrategy": "SUCCESS_COUNT_THRESHOLD", "threshold": 2}),
                &[Fails(5), Fails(10), Completes(300)],
                "JOIN_CONDITION_NOT_MET",
                10,
                &[Failed, Failed, Cancelled],
            ),
            (
                "B18",
                json!({"joinStrategy": "ALL_COMPLETED", "timeout": 1}),
                &[Completes(0), Completes(0)],
                "",
                0,
                &[Completed, Completed],
            ),
            (
                "B19",
                json!({"joinStrategy": "ALL_COMPLETED", "timeout": 0}),
                &[Completes(35_000), Completes(35_000)],
                "",
                35_000,
                &[Completed, Completed],
            ),
            (
                "threshold reached",
                json!({"joinStrategy": "SUCCESS_COUNT_THRESHOLD", "threshold": 2}),
                &[Completes(5), Fails(10), Completes(20), Never],
                "",
                20,
                &[Completed, Failed, Completed, Cancelled],
            ),
            (
                "any completed, all failed",
                json!({"joinStrategy": "ANY_COMPLETED"}),
                &[Fails(5), Fails(10)],
                "JOIN_CONDITION_NOT_MET",
                10,
                &[Failed, Failed],
            ),
            (
                "any failed, all completed",
                json!({"joinStrategy": "ANY_FAILED"}),
                &[Completes(5), Completes(10)],
                "JOIN_CONDITION_NOT_MET",
                10,
                &[Completed, Completed],
            ),
            (
                "fraction of a second",
                json!({"joinStrategy": "ANY_COMPLETED", "timeout": 0.25}),
                &[Never, Never],
                "JOIN_TIMEOUT",
                250,
                &[Cancelled, Cancelled],
            ),
        ]
    };
    for (case, join, ends, code, at, statuses) in cases {
        let ran = joined(ends, false, join);
        assert_eq!(ran.code(), *code, "{case}: {:?}", ran.report.error);
        assert_eq!(ran.report.elapsed_ms, *at, "{case}: decided at");
        for (place, status) in statuses.iter().enumerate() {
            assert_eq!(ran.path_end(&format!("p{place}")), Some(*status), "{case}: p{place}");
        }
        let expected = if code.is_empty() {
            ThreadStatus::Completed
        } else {
            ThreadStatus::Failed
        };
        assert_eq!(ran.report.status, expected, "{case}");
        assert_eq!(ran.of(EventType::ThreadForkStarted).len(), 1, "{case}");
        assert_eq!(ran.of(EventType::ThreadForkCompleted).len(), 1, "{case}");
        assert_eq!(
            ran.of(EventType::ThreadJoinConditionMet).len(),
            usize::from(code.is_empty()),
            "{case}"
        );
    }
}

#[test]
fn a_failed_join_lists_every_path_and_the_outputs_of_completed_branches() {
    let ran = joined(
        &[Completes(5), Fails(6), Never],
        false,
        &json!({"joinStrategy": "SUCCESS_COUNT_THRESHOLD", "threshold": 3}),
    );
    let details = ran
        .report
        .error
        .and_then(|error| error.into_facts().details)
        .expect("it has details");
    let statuses: Vec<&Value> = (0..3).map(|place| &details["paths"][place]["status"]).collect();
    assert_eq!(statuses, ["COMPLETED", "FAILED", "CANCELLED"], "{details}");
    assert_eq!(details["outputs"], json!({"p0": {"from": 0}}));
}

#[test]
fn a_serial_fork_stops_when_it_is_decided() {
    let ran = joined(
        &[Completes(10), Completes(10), Completes(10)],
        true,
        &json!({"joinStrategy": "ANY_COMPLETED"}),
    );
    assert_eq!(ran.report.elapsed_ms, 10);
    assert_eq!(ran.report.output["completed"], json!(["p0"]));
    assert_eq!(ran.report.output["cancelled"], json!(["p1", "p2"]));
    assert_eq!(ran.of(EventType::ThreadStarted).len(), 2, "main and one branch");
    let all = joined(
        &[Completes(10), Completes(10), Completes(10)],
        true,
        &json!({"joinStrategy": "ALL_COMPLETED"}),
    );
    assert_eq!(all.report.elapsed_ms, 30, "one after the other");
}

#[test]
fn outputs_have_one_shape_for_any_number_of_branches() {
    for (case, ends) in [("B07", vec![Completes(1)]), ("B08", vec![Completes(1), Completes(2)])] {
        let ran = joined(&ends, false, &json!({"joinStrategy": "ALL_COMPLETED"}));
        let output = &ran.report.output;
        for place in 0..ends.len() {
            assert_eq!(output["outputs"][format!("p{place}")], json!({"from": place}), "{case}");
        }
        assert_eq!(output["strategy"], "ALL_COMPLETED", "{case}");
        let ids = output["childThreadIds"].as_object().map_or(0, serde_json::Map::len);
        assert_eq!(ids, ends.len(), "{case}");
    }
}

#[test]
fn eight_branches_and_the_node_after_the_join_run_once_each() {
    let branches: Vec<Vec<Value>> = (0..8)
        .map(|i| vec![code(&format!("x{i}"), &format!("return {i}"))])
        .collect();
    let ran = run(
        &forked(&branches, false, &json!({"joinStrategy": "ALL_COMPLETED"})),
        Value::Null,
    );
    let completed = |id: &str| {
        ran.of(EventType::NodeCompleted)
            .iter()
            .filter(|event| event.raised.fields["nodeId"] == id)
            .count()
    };
    assert_eq!((0..8).map(|i| completed(&format!("x{i}"))).max(), Some(1), "B30");
    assert_eq!((0..8).map(|i| completed(&format!("x{i}"))).min(), Some(1), "B30");
    assert_eq!((completed("join"), completed("end")), (1, 1), "B30");
    assert_eq!(ran.nodes(), ["start", "fork", "join", "end"], "B30");
}

#[test]
fn serial_branches_run_in_path_order() {
    let branches: Vec<Vec<Value>> = (0..8)
        .map(|i| {
            vec![node(
                &format!("x{i}"),
                "VARIABLE",
                json!({"variableName": "list", "expression": format!("[...list, {i}]"), "scope": "global"}),
            )]
        })
        .collect();
    let mut bundle = forked(&branches, true, &json!({"joinStrategy": "ALL_COMPLETED"}));
    bundle["variables"] = json!([{"name": "list", "type": "array", "value": [], "scope": "global"}]);
    let ran = run(&bundle, Value::Null);
    assert_eq!(
        json!(ran.report.variables["list"]),
        json!([0, 1, 2, 3, 4, 5, 6, 7]),
        "B31"
    );
}

#[test]
fn at_most_max_concurrent_branches_run_at_once() {
    let branches: Vec<Vec<Value>> = (0..6).map(|place| branch(place, Completes(10))).collect();
    let mut bundle = forked(&branches, false, &json!({"joinStrategy": "ALL_COMPLETED"}));
    bundle["config"] = json!({"maxConcurrentBranches": 2});
    let ran = run(&bundle, Value::Null);
    assert_eq!(ran.report.elapsed_ms, 30, "three rounds of two");
}

#[test]
fn a_panic_fails_only_its_branch_and_the_join_decides() {
    let bundle = |strategy: &str| {
        forked(
            &[
                vec![node("bad", "CODE", json!({"function": "panics"}))],
                vec![wait("w", 5), code("good", "return 1")],
            ],
            false,
            &json!({"joinStrategy": strategy}),
        )
    };
    let engine = || {
        Engine::builder()
            .virtual_time(Some(1))
            .function("panics", |_| panic!("on purpose"))
    };
    let ran = run_in(engine(), &bundle("ANY_COMPLETED"), Value::Null, Vec::new());
    assert_eq!(ran.code(), "");
    assert_eq!(ran.report.output["failed"][0]["pathId"], "p0");
    assert_eq!(ran.report.output["failed"][0]["error"]["code"], "ACTOR_PANICKED");
    assert_eq!(
        ran.path_end("p0"),
        Some(ThreadStatus::Failed),
        "its event names the path"
    );
    let ran = run_in(engine(), &bundle("ALL_COMPLETED"), Value::Null, Vec::new());
    assert_eq!(ran.code(), "JOIN_CONDITION_NOT_MET");
}
