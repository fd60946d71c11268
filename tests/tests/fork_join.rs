//! SPEC section 4 in a real engine: branches are threads, decided by strategy, time and cancellation.

use pirn::{Engine, EventType, Message, Role, ThreadStatus};
use pirn_tests::world::{Ran, code, forked, line, node, run, run_in, say, wait, workflow};
use serde_json::{Value, json};

/// How a branch is to end.
#[derive(Clone, Copy)]
enum Ends {
    Completes(u32),
    Fails(u32),
    Never,
}
use Ends::{Completes, Fails, Never};

/// A wait, then a value or a throw.
fn branch(place: usize, ends: Ends) -> Vec<Value> {
    let (ms, last) = match ends {
        Completes(ms) => (ms, format!("return {{from: {place}}}")),
        Fails(ms) => (ms, "throw new Error('broken')".to_owned()),
        Never => (3_600_000, "return 'late'".to_owned()),
    };
    vec![wait(&format!("w{place}"), ms), code(&format!("c{place}"), &last)]
}

fn joined(ends: &[Ends], serial: bool, join: &Value) -> Ran {
    let branches: Vec<Vec<Value>> = (0..).zip(ends).map(|(place, ends)| branch(place, *ends)).collect();
    run(&forked(&branches, serial, join), Value::Null)
}

/// Its id, the JOIN, how branches end, the error's code, when it is decided, how each path ended.
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
fn a_join_that_fails_lists_every_path_and_what_had_finished() {
    let ran = joined(
        &[Completes(5), Fails(6), Never],
        false,
        &json!({"joinStrategy": "SUCCESS_COUNT_THRESHOLD", "threshold": 3}),
    );
    let details = ran
        .report
        .error
        .and_then(|error| error.details)
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
fn outputs_have_one_shape_whatever_their_number() {
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
fn a_branch_keeps_its_own_variables_and_sees_its_parents() {
    let set = |id: &str, name: &str, expression: &str, scope: &str| {
        node(
            id,
            "VARIABLE",
            json!({"variableName": name, "expression": expression, "scope": scope}),
        )
    };
    let mut bundle = forked(
        &[
            vec![
                set("a", "branchVar", "\"value-a\"", "thread"),
                code("ra", "return [branchVar, sharedVar]"),
            ],
            vec![
                set("b", "branchVar", "\"value-b\"", "thread"),
                code("rb", "return [branchVar, sharedVar]"),
            ],
        ],
        false,
        &json!({"joinStrategy": "ALL_COMPLETED"}),
    );
    bundle["variables"] = json!([{"name": "sharedVar", "type": "string", "value": "shared-value", "scope": "global"}]);
    let ran = run(&bundle, Value::Null);
    assert_eq!(
        ran.report.output["outputs"],
        json!({"p0": ["value-a", "shared-value"], "p1": ["value-b", "shared-value"]}),
        "B28 B29"
    );
    assert!(
        !ran.report.variables.contains_key("branchVar"),
        "thread ones stay in the branch"
    );
}

#[test]
fn variables_are_merged_as_the_join_says() {
    let set = |place: usize, name: &str, value: usize| {
        node(
            &format!("v{place}{name}"),
            "VARIABLE",
            json!({"variableName": name, "expression": value.to_string()}),
        )
    };
    let apart = [vec![set(0, "x", 1)], vec![set(1, "y", 2)]];
    let clash = [vec![set(0, "x", 1)], vec![set(1, "x", 2)]];
    let same = [vec![set(0, "x", 1)], vec![set(1, "x", 1)]];
    let cases = [
        ("none", &apart, "", json!({})),
        ("main", &apart, "", json!({"x": 1})),
        ("main", &clash, "", json!({"x": 1})),
        ("all", &apart, "", json!({"x": 1, "y": 2})),
        ("all", &same, "", json!({"x": 1})),
        ("all", &clash, "VARIABLE_MERGE_CONFLICT", json!({})),
    ];
    for (merge, branches, code, variables) in cases {
        let ran = run(
            &forked(
                branches,
                false,
                &json!({"joinStrategy": "ALL_COMPLETED", "mergeVariables": merge}),
            ),
            Value::Null,
        );
        assert_eq!(ran.code(), code, "{merge}");
        assert_eq!(json!(ran.report.variables), variables, "{merge}");
    }
}

#[test]
fn eight_branches_run_once_each_and_what_follows_once() {
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
            .filter(|event| event.raised.data["nodeId"] == id)
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
fn the_main_paths_conversation_replaces_the_parents() {
    let hello = vec![Message::new(Role::User, "hello")];
    let two = |join: Value| forked(&[vec![say("a", "from c0")], vec![say("b", "from c1")]], false, &join);
    let cases = [
        (
            "B20",
            json!({"joinStrategy": "ALL_COMPLETED", "mainPathId": "p1"}),
            Vec::new(),
            vec!["from c1"],
        ),
        (
            "B21",
            json!({"joinStrategy": "ALL_COMPLETED"}),
            Vec::new(),
            vec!["from c0"],
        ),
        (
            "B23",
            json!({"joinStrategy": "ALL_COMPLETED"}),
            hello.clone(),
            vec!["hello", "from c0"],
        ),
    ];
    for (case, join, before, after) in cases {
        let ran = run_in(Engine::builder().virtual_time(Some(1)), &two(join), Value::Null, before);
        assert_eq!(ran.visible(), after, "{case}");
        assert_eq!(
            ran.report.conversation.messages.len(),
            after.len(),
            "{case}: nothing else in the history"
        );
    }
    // The main path by default did not complete: the first that did, none of them: unchanged.
    let fails = |id: &str| vec![say(id, "lost"), code(&format!("{id}x"), "throw 1")];
    let any = forked(
        &[
            fails("a"),
            vec![wait("w", 5), say("b", "second")],
            vec![wait("v", 9), say("c", "third")],
        ],
        false,
        &json!({"joinStrategy": "SUCCESS_COUNT_THRESHOLD", "threshold": 2}),
    );
    let ran = run_in(
        Engine::builder().virtual_time(Some(1)),
        &any,
        Value::Null,
        hello.clone(),
    );
    assert_eq!(ran.visible(), ["hello", "second"]);
    let none = forked(
        &[fails("a"), fails("b")],
        false,
        &json!({"joinStrategy": "ALL_FAILED", "mainPathId": "p1"}),
    );
    let ran = run_in(Engine::builder().virtual_time(Some(1)), &none, Value::Null, hello);
    assert_eq!(ran.visible(), ["hello"], "B10: unchanged");
}

#[test]
fn a_failed_join_leaves_the_parents_conversation_alone() {
    let bundle = forked(
        &[vec![say("a", "from c0")], vec![wait("w", 5), code("b", "throw 1")]],
        false,
        &json!({"joinStrategy": "ALL_COMPLETED"}),
    );
    let ran = run_in(
        Engine::builder().virtual_time(Some(1)),
        &bundle,
        Value::Null,
        vec![Message::new(Role::User, "hello")],
    );
    assert_eq!(ran.code(), "JOIN_CONDITION_NOT_MET");
    assert_eq!(ran.visible(), ["hello"]);
}

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
fn losers_are_cancelled_down_through_nested_forks_and_sub_workflows() {
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
fn a_timeout_cancels_down_too() {
    let ran = run(
        &nested(&json!({"joinStrategy": "ALL_COMPLETED", "timeout": 2})),
        Value::Null,
    );
    assert_eq!(ran.code(), "JOIN_TIMEOUT");
    assert_eq!(ran.report.elapsed_ms, 2000);
    assert_eq!(ran.of(EventType::ThreadCancelled).len(), 4);
}

#[test]
fn detached_losers_run_on_and_their_results_are_ignored() {
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

#[test]
fn at_most_the_bound_runs_at_once() {
    let branches: Vec<Vec<Value>> = (0..6).map(|place| branch(place, Completes(10))).collect();
    let mut bundle = forked(&branches, false, &json!({"joinStrategy": "ALL_COMPLETED"}));
    bundle["config"] = json!({"maxConcurrentBranches": 2});
    let ran = run(&bundle, Value::Null);
    assert_eq!(ran.report.elapsed_ms, 30, "three rounds of two");
}

#[test]
fn an_endless_script_in_a_losing_branch_is_stopped() {
    let ran = run(
        &forked(
            &[
                vec![wait("w", 5)],
                vec![code("spin", "await new Promise(() => {}); return 1")],
            ],
            false,
            &json!({"joinStrategy": "ANY_COMPLETED"}),
        ),
        Value::Null,
    );
    assert_ne!(ran.path_end("p1"), Some(ThreadStatus::Completed));
}

#[test]
fn a_panic_stays_in_its_branch_and_the_join_decides() {
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

#[test]
fn what_branches_spent_counts_however_the_join_ends() {
    let ask = |id: &str| {
        node(
            id,
            "LLM",
            json!({"profileId": "main", "prompt": "a question of some words"}),
        )
    };
    let spent = |join: Value, late_ms: u32, fails: bool| {
        let last = if fails { "throw 1" } else { "return 1" };
        let branches = [
            vec![ask("a"), wait("aw", 5)],
            vec![ask("b"), wait("bw", late_ms), code("bc", last)],
        ];
        let bundle = forked(&branches, false, &join);
        let bundle = json!({"workflows": [bundle], "profiles": [{"id": "main", "provider": "echo"}]});
        json!(run(&bundle, Value::Null).report.tokens.spent)
    };
    let both = spent(json!({"joinStrategy": "ALL_COMPLETED"}), 5, false);
    let cases = [
        ("a loser", json!({"joinStrategy": "ANY_COMPLETED"}), 500, false),
        ("a failed join", json!({"joinStrategy": "ALL_COMPLETED"}), 50, true),
        (
            "a timeout",
            json!({"joinStrategy": "ALL_COMPLETED", "timeout": 0.1}),
            500,
            false,
        ),
        ("a failure", json!({"joinStrategy": "ANY_FAILED"}), 50, true),
    ];
    for (case, join, late_ms, fails) in cases {
        assert_eq!(spent(join, late_ms, fails), both, "{case}");
    }
}

#[test]
fn a_cancelled_run_takes_its_branches_with_it() {
    let bundle = forked(
        &[
            vec![node("w", "WAIT", json!({"event": "never"}))],
            vec![node("v", "WAIT", json!({"event": "never"}))],
        ],
        false,
        &json!({"joinStrategy": "ALL_COMPLETED"}),
    );
    let engine = Engine::builder()
        .virtual_time(Some(1))
        .workflows(bundle.to_string())
        .build()
        .unwrap_or_else(|error| panic!("{error}"));
    let handle = engine
        .start("forked", Value::Null)
        .unwrap_or_else(|error| panic!("{error}"));
    handle.cancel("enough");
    let report = handle.outcome_blocking();
    handle.settled_blocking();
    assert_eq!(report.status, ThreadStatus::Cancelled);
    assert!(
        report
            .threads
            .iter()
            .all(|thread| thread.status == ThreadStatus::Cancelled),
        "{report:?}"
    );
    assert_eq!(engine.live_runs(), 0);
}
