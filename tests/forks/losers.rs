//! SPEC section 4: the branches that a join does not wait for.

use std::time::Duration;

use pirn::{Engine, EventType, RunHandle, SubscriptionItem, ThreadStatus};
use pirn_tests::world::{code, forked, line, node, run, run_seeded, wait, workflow};
use serde_json::{Map, Value, json};

/// start > fork(p0: quick, p1: inner fork(q0: WAIT, q1: sub-workflow that WAITs)) > join > end
fn nested(join: &Value) -> Value {
    let mut join = join.clone();
    join["forkPathIds"] = json!(["p0", "p1"]);
    let main = workflow(
        "outer",
        &[
            node("start", "START", json!({})),
            node(
                "fork",
                "FORK",
                json!({"forkPathIds": ["p0", "p1"], "childNodeIds": ["quick", "inner"]}),
            ),
            wait("quick", 5),
            node(
                "inner",
                "FORK",
                json!({"forkPathIds": ["q0", "q1"], "childNodeIds": ["long", "call"]}),
            ),
            wait("long", 3_600_000),
            node("call", "SUBGRAPH", json!({"subgraphId": "sub"})),
            node(
                "meet",
                "JOIN",
                json!({"forkPathIds": ["q0", "q1"], "joinStrategy": "ALL_COMPLETED"}),
            ),
            node("join", "JOIN", join),
            node("end", "END", json!({})),
        ],
        &[
            "start>fork>quick>join",
            "fork>inner>long>meet>join>end",
            "inner>call>meet",
        ],
    );
    json!({"workflows": [main, line("sub", &[wait("sleep", 3_600_000)])]})
}

#[test]
fn losing_branches_are_cancelled_with_their_nested_forks_and_sub_workflows() {
    let ran = run(&nested(&json!({"joinStrategy": "ANY_COMPLETED"})), Value::Null);
    assert_eq!(ran.code(), "");
    assert_eq!(ran.report.elapsed_ms, 5);
    let cancelled = ran.of(EventType::ThreadCancelled);
    assert_eq!(cancelled.len(), 4, "p1, q0, q1 and the sub-workflow");
    assert!(
        cancelled
            .iter()
            .all(|event| event.timestamp <= ran.of(EventType::ThreadStarted)[0].timestamp + 5)
    );
}

#[test]
fn a_timeout_cancels_descendants_too() {
    let ran = run(
        &nested(&json!({"joinStrategy": "ALL_COMPLETED", "timeout": 2})),
        Value::Null,
    );
    assert_eq!(ran.code(), "JOIN_TIMEOUT");
    assert_eq!(ran.report.elapsed_ms, 2000);
    assert_eq!(ran.of(EventType::ThreadCancelled).len(), 4);
}

#[test]
fn detached_losing_branches_continue_and_their_results_are_ignored() {
    let mark = node(
        "mark",
        "VARIABLE",
        json!({"variableName": "late", "expression": "1", "scope": "global"}),
    );
    let ran = run(
        &forked(
            &[vec![wait("w", 5)], vec![wait("v", 500), mark]],
            false,
            &json!({"joinStrategy": "ANY_COMPLETED", "onDecided": "detach"}),
        ),
        Value::Null,
    );
    assert_eq!(ran.report.elapsed_ms, 5);
    assert_eq!(ran.report.output["completed"], json!(["p0"]));
    assert_eq!(ran.path_end("p1"), Some(ThreadStatus::Completed), "it ran on");
    assert!(!ran.report.variables.contains_key("late"));
    let nested = run(
        &nested(&json!({"joinStrategy": "ANY_COMPLETED", "onDecided": "detach"})),
        Value::Null,
    );
    assert_eq!(nested.report.elapsed_ms, 5);
    assert_eq!(nested.path_end("p1"), Some(ThreadStatus::Completed));
    assert_eq!(nested.of(EventType::ThreadCancelled).len(), 0);
}

/// A run of two branches, once both have entered their nodes `a` and `b`.
fn inside(engine: &Engine) -> RunHandle {
    let mut run = engine.run("forked");
    let mut events = run.blocking_events(&[EventType::NodeStarted], 100);
    let handle = run.start().unwrap_or_else(|error| panic!("{error}"));
    for _ in 0..2 {
        let entered = events.any(
            |heard| matches!(heard, SubscriptionItem::Event(event) if ["a", "b"].iter().any(|id| event.raised.fields["nodeId"] == *id)),
        );
        assert!(entered, "both branches begin");
    }
    handle
}

#[test]
fn an_endless_script_in_a_losing_branch_is_stopped() {
    let branches = [
        vec![node("a", "WAIT", json!({"event": "go"}))],
        vec![code("b", "for (;;) {}")],
    ];
    let join = json!({"joinStrategy": "ANY_COMPLETED"});
    let engine = Engine::builder()
        .workflows(forked(&branches, false, &join).to_string())
        .build()
        .unwrap_or_else(|error| panic!("{error}"));
    let handle = inside(&engine);
    handle.emit("go", Map::new());
    let report = handle.outcome_blocking();
    assert_eq!(report.status, ThreadStatus::Completed, "{:?}", report.error);
    // Stopped by the time limit for scripts, the branch would be listed as failed.
    assert_eq!(report.output["cancelled"], json!(["p1"]), "{}", report.output);
    handle.wait_all_ended_blocking();
    let left = engine.shutdown_blocking(Duration::from_secs(5));
    assert_eq!((left.work_left, left.tasks_left), (0, 0));
}

#[test]
fn a_cancelled_run_cancels_its_branches() {
    let branches = ["a", "b"].map(|id| vec![node(id, "WAIT", json!({"event": "never"}))]);
    let engine = Engine::builder()
        .virtual_time(Some(1))
        .workflows(forked(&branches, false, &json!({"joinStrategy": "ALL_COMPLETED"})).to_string())
        .build()
        .unwrap_or_else(|error| panic!("{error}"));
    let handle = inside(&engine);
    handle.cancel("enough");
    let report = handle.outcome_blocking();
    handle.wait_all_ended_blocking();
    let statuses: Vec<ThreadStatus> = report.threads.iter().map(|thread| thread.status).collect();
    assert_eq!(
        statuses,
        [ThreadStatus::Cancelled; 3],
        "main and both branches: {report:?}"
    );
    assert_eq!(engine.live_runs(), 0);
}

#[test]
fn a_cancelled_branch_reports_whether_its_join_or_its_parent_cancelled_it() {
    let branches = [vec![wait("a", 5)], vec![wait("b", 1_000)]];
    let reason = |strategy: &str, limit: u32| {
        let mut bundle = forked(&branches, false, &json!({ "joinStrategy": strategy }));
        bundle["config"] = json!({ "timeoutMs": limit });
        let ran = run(&bundle, Value::Null);
        let of_branch = |event: &&&pirn::Event| event.raised.fields["pathId"] == "p1";
        let cancelled = ran.of(EventType::ThreadCancelled);
        let event = cancelled.iter().find(of_branch).expect("it is cancelled");
        event.raised.fields["error"]["message"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    assert_eq!(reason("ANY_COMPLETED", 500), "its JOIN was decided without it");
    assert_eq!(reason("ALL_COMPLETED", 500), "the thread that started it ended");
}

/// Returns each path of a failed join with its status in the error and in the report's threads; empty if the join succeeded.
fn path_statuses(bundle: &Value, seed: u64) -> Vec<(Value, Value, Value)> {
    let report = run_seeded(bundle, Value::Null, seed).report;
    let Some(error) = &report.error else { return Vec::new() };
    let paths = error.details.as_ref().and_then(|details| details["paths"].as_array());
    let paths = paths.unwrap_or_else(|| panic!("{error:?}"));
    let status_of = |id: &Value| {
        let mut threads = report.threads.iter();
        let thread = threads.find(|thread| *id == *thread.thread_id);
        json!(thread.map(|thread| thread.status))
    };
    paths
        .iter()
        .filter(|path| path["threadId"].is_string())
        .map(|path| {
            (
                path["pathId"].clone(),
                path["status"].clone(),
                status_of(&path["threadId"]),
            )
        })
        .collect()
}

#[test]
fn the_status_of_a_path_in_the_error_equals_its_threads_status_in_the_report() {
    let fails = |id: &str| code(id, "throw new Error('no')");
    let after = |ms: u32, count: usize, last: &dyn Fn(&str) -> Value| -> Vec<Vec<Value>> {
        let branch = |no: usize| vec![wait(&format!("w{no}"), ms), last(&format!("n{no}"))];
        (0..count).map(branch).collect()
    };
    let good = |id: &str| code(id, "return 1");
    for (branches, join) in [
        (after(5, 3, &good), json!({"joinStrategy": "ALL_FAILED"})),
        (after(5, 3, &fails), json!({"joinStrategy": "ALL_COMPLETED"})),
        (
            after(5, 3, &good),
            json!({"joinStrategy": "ALL_COMPLETED", "timeout": 0.005}),
        ),
        // More branches than are notified in one batch.
        (after(5, 80, &good), json!({"joinStrategy": "ALL_FAILED"})),
        (after(0, 80, &fails), json!({"joinStrategy": "ALL_COMPLETED"})),
    ] {
        let workflow = forked(&branches, false, &join);
        for seed in 0..if branches.len() > 3 { 4 } else { 60 } {
            let mut told = path_statuses(&workflow, seed);
            // A timeout that is handled last does not fail the join.
            assert!(!told.is_empty() || join.get("timeout").is_some());
            told.retain(|(_, in_error, in_report)| in_error != in_report);
            assert_eq!(told, [], "seed {seed}, {join}");
        }
    }
}

#[test]
fn the_status_of_an_item_in_the_error_equals_its_threads_status_in_the_report() {
    // All timers are due at one instant; the first item fails for want of a route, and decides the join before the others resume.
    let workflow = json!({ "workflows": [
        {
            "id": "forked",
            "nodes": [
                { "id": "start", "type": "START" },
                { "id": "map", "type": "MAP", "config": { "items": "[0, 1, 2, 3, 4]", "subgraphId": "one" } },
                { "id": "end", "type": "END" },
            ],
            "edges": [{ "from": "start", "to": "map" }, { "from": "map", "to": "end" }],
        },
        {
            "id": "one",
            "nodes": [
                { "id": "start", "type": "START" },
                { "id": "wait", "type": "WAIT", "config": { "seconds": 0.005 } },
                { "id": "route", "type": "ROUTE", "config": { "routes": [{ "condition": "input > 0", "targetNodeId": "end" }] } },
                { "id": "end", "type": "END" },
            ],
            "edges": [{ "from": "start", "to": "wait" }, { "from": "wait", "to": "route" }, { "from": "route", "to": "end" }],
        },
    ] });
    for seed in 0..60 {
        let mut told = path_statuses(&workflow, seed);
        assert_eq!(told.len(), 5, "seed {seed}");
        told.retain(|(_, in_error, in_report)| in_error != in_report);
        assert_eq!(told, [], "seed {seed}");
    }
}
