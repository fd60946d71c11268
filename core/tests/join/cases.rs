//! SPEC section 4's table row by row, and the acceptance cases of join-runtime and join-conversation that a machine can
//! answer, under their ids.

use pirn_core::join::PathEnd::{Cancelled, Completed, Failed, Timeout};
use pirn_core::join::{
    Conversation, Effect, ForkJoinMachine, Input, JoinedPath, PathEnd, PathStatus, Verdict, join_error, join_output,
    path_reports,
};
use pirn_core::status::ThreadStatus;
use pirn_core::thread::Output;
use pirn_definition::definition::JoinStrategy;
use pirn_definition::definition::JoinStrategy::{
    AllCompleted, AllFailed, AnyCompleted, AnyFailed, SuccessCountThreshold,
};
use pirn_definition::definition::{ForkStrategy, MergeVariables};
use pirn_definition::error::RunErrorCode;
use pirn_definition::graph::Fork;
use serde_json::{Value, json};

use super::fork::{ended, fork, graph_of, step, waiting};

/// Case id, strategy, threshold, ends in order, expected result.
type Row<'a> = (&'a str, JoinStrategy, u32, &'a [(usize, PathEnd)], Then);

/// Expected result: the output or the error.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Then {
    Takes(usize),
    Unchanged,
    NotMet,
    TimedOut,
    NoMain,
}

fn outcome(verdict: &Verdict) -> Then {
    match verdict {
        Verdict::Succeeded { conversation, .. } => match conversation {
            Conversation::ReplaceWith(path) => Then::Takes(*path),
            Conversation::Unchanged => Then::Unchanged,
        },
        Verdict::ConditionNotMet => Then::NotMet,
        Verdict::TimedOut => Then::TimedOut,
        Verdict::MainThreadNotFound => Then::NoMain,
        Verdict::Cancelled => panic!("nobody cancels here"),
    }
}

/// Sends the ends one by one, and asserts that the last one decides the join.
#[track_caller]
fn decides_at_the_last(id: &str, fork: &Fork, ends: &[(usize, PathEnd)], then: Then) -> ForkJoinMachine {
    let mut machine = waiting(fork);
    for (path, end) in ends {
        assert_eq!(machine.verdict(), None, "{id}: decided before path {path} ended");
        step(&mut machine, ended(*path, *end));
    }
    let verdict = machine.verdict().unwrap_or_else(|| panic!("{id}: not decided"));
    assert_eq!(outcome(verdict), then, "{id}");
    machine
}

fn joined(machine: &ForkJoinMachine, output: &Value) -> Vec<JoinedPath> {
    let path = |(thread, status): (u32, &PathStatus)| JoinedPath {
        status: *status,
        thread: (*status != PathStatus::Skipped).then_some(thread),
        output: (*status == PathStatus::Completed).then(|| Output::from(output.clone())),
        error: None,
    };
    (0..).zip(machine.paths()).map(path).collect()
}

fn output(machine: &ForkJoinMachine, of_each: &Value) -> Value {
    let graph = graph_of(machine.paths().len());
    let output = join_output(graph, 0, "r".into(), joined(machine, of_each)).expect("it does not nest deep");
    (**output.value()).clone()
}

#[test]
fn after_the_main_path_completes_the_other_paths_cannot_replace_it() {
    let mut fork = fork(3, AllCompleted);
    let mut machine = waiting(&fork);
    assert_eq!([0, 1, 2].map(|path| machine.may_take_over(path)), [true; 3]);
    step(&mut machine, ended(0, Completed));
    assert_eq!([0, 1, 2].map(|path| machine.may_take_over(path)), [true, false, false]);
    // The variables of all paths are merged, so that every path may be needed.
    fork.join.merge_variables = MergeVariables::All;
    let mut machine = waiting(&fork);
    step(&mut machine, ended(0, Completed));
    assert_eq!([0, 1, 2].map(|path| machine.may_take_over(path)), [true; 3]);
    // An explicit main path has no substitute.
    fork.join.merge_variables = MergeVariables::None;
    fork.join.main_path_explicit = true;
    let machine = waiting(&fork);
    assert_eq!([0, 1, 2].map(|path| machine.may_take_over(path)), [true, false, false]);
}

#[test]
fn each_strategy_decides_at_the_first_decisive_end() {
    let (c, f) = (Completed, Failed);
    let three: &[(JoinStrategy, u32, &[PathEnd], Then)] = &[
        (AllCompleted, 1, &[c, c, c], Then::Takes(0)),
        (AllCompleted, 1, &[c, f], Then::NotMet),
        (AnyCompleted, 1, &[f, c], Then::Takes(1)),
        (AnyCompleted, 1, &[f, f, f], Then::NotMet),
        (AllFailed, 1, &[f, f, f], Then::Unchanged),
        (AllFailed, 1, &[f, c], Then::NotMet),
        (AnyFailed, 1, &[c, f], Then::Takes(0)),
        (AnyFailed, 1, &[f], Then::Unchanged),
        (AnyFailed, 1, &[c, c, c], Then::NotMet),
        (SuccessCountThreshold, 2, &[f, c, c], Then::Takes(1)),
        (SuccessCountThreshold, 2, &[c, f, f], Then::NotMet),
        (SuccessCountThreshold, 3, &[c, f], Then::NotMet),
    ];
    for (strategy, threshold, ends, then) in three {
        let mut fork = fork(3, *strategy);
        fork.join.threshold = *threshold;
        let ends: Vec<(usize, PathEnd)> = ends.iter().copied().enumerate().collect();
        decides_at_the_last(&format!("{strategy:?} {ends:?}"), &fork, &ends, *then);
    }
}

#[test]
fn a_timeout_and_an_external_cancel_count_as_failed() {
    for end in [Failed, Timeout, Cancelled] {
        decides_at_the_last("F", &fork(2, AnyFailed), &[(1, end)], Then::Unchanged);
        decides_at_the_last("F", &fork(2, AllCompleted), &[(1, end)], Then::NotMet);
    }
}

#[test]
fn b01_b03_b09_b10_b11_b15_b17_are_decided_at_the_decisive_end() {
    let c = |path| (path, Completed);
    let f = |path| (path, Failed);
    let table: &[Row<'_>] = &[
        ("B01", AllCompleted, 1, &[c(0), c(1), c(2)], Then::Takes(0)),
        ("B03", AnyFailed, 1, &[f(1)], Then::Unchanged),
        ("B09", AllCompleted, 1, &[c(0), f(1)], Then::NotMet),
        ("B10", AllFailed, 1, &[f(0), f(1), f(2)], Then::Unchanged),
        ("B11", AllFailed, 1, &[f(0), c(1)], Then::NotMet),
        ("B15", AnyFailed, 1, &[c(0), f(1)], Then::Takes(0)),
        ("B17", SuccessCountThreshold, 2, &[f(0), f(1)], Then::NotMet),
    ];
    for (id, strategy, threshold, ends, then) in table {
        let mut fork = fork(3, *strategy);
        fork.join.threshold = *threshold;
        let machine = decides_at_the_last(id, &fork, ends, *then);
        let output = output(&machine, &Value::Null);
        let count = |list: &str| output[list].as_array().map_or(0, Vec::len);
        let failed = ends.iter().filter(|(_, end)| *end == Failed).count();
        assert_eq!(count("failed"), failed, "{id}");
        assert_eq!(count("completed"), ends.len() - failed, "{id}");
        assert_eq!(count("cancelled"), 3 - ends.len(), "{id}");
    }
}

#[test]
fn b11_the_running_path_is_cancelled() {
    let mut machine = waiting(&fork(3, AllFailed));
    step(&mut machine, ended(0, Failed));
    let effects = step(&mut machine, ended(1, Completed));
    assert!(effects.contains(&Effect::CancelPath { path: 2 }));
    assert_eq!(machine.paths()[2].thread_status(), ThreadStatus::Cancelled);
}

#[test]
fn b04_a_timeout_is_a_timeout_error_with_every_status_and_the_outputs_so_far() {
    let mut fork = fork(2, AllCompleted);
    fork.join.timeout_ms = Some(1000);
    let mut machine = waiting(&fork);
    step(&mut machine, ended(0, Completed));
    let effects = step(&mut machine, Input::Deadline { generation: 1 });
    let verdict = Verdict::TimedOut;
    assert_eq!(
        effects,
        [
            Effect::Decided {
                verdict: verdict.clone()
            },
            Effect::CancelPath { path: 1 }
        ]
    );

    let paths = joined(&machine, &json!({"data": 1}));
    let error = join_error(&fork.join, &verdict, &path_reports(&fork, "r", &paths)).expect("an error");
    assert_eq!(error.code, RunErrorCode::JoinTimeout);
    assert!(error.message.starts_with("TimeoutError"), "{}", error.message);
    assert_eq!(
        error.details,
        Some(json!({
            "strategy": "ALL_COMPLETED",
            "timeoutMs": 1000,
            "outputs": {"p0": {"data": 1}},
            "completed": ["p0"],
            "failed": [],
            "cancelled": ["p1"],
            "childThreadIds": {"p0": "r.0", "p1": "r.1"},
            "paths": [
                {"pathId": "p0", "status": "COMPLETED", "threadId": "r.0"},
                {"pathId": "p1", "status": "CANCELLED", "threadId": "r.1"},
            ],
        }))
    );
}

#[test]
fn b07_b08_the_output_is_keyed_by_path_id_for_any_number_of_paths() {
    for (id, paths, expected) in [
        ("B07", 1, json!({"p0": {"data": 1}})),
        ("B08", 2, json!({"p0": {"data": 1}, "p1": {"data": 1}})),
    ] {
        let fork = fork(paths, AllCompleted);
        let ends: Vec<(usize, PathEnd)> = (0..paths).map(|path| (path, Completed)).collect();
        let machine = decides_at_the_last(id, &fork, &ends, Then::Takes(0));
        let data = json!({"data": 1});
        let output = output(&machine, &data);
        assert_eq!(output["outputs"], expected, "{id}");
    }
}

#[test]
fn b13_a_failed_explicit_main_path_is_main_thread_not_found() {
    let mut fork = fork(2, AnyCompleted);
    fork.join.main_path_explicit = true;
    let machine = decides_at_the_last("B13", &fork, &[(0, Failed), (1, Completed)], Then::NoMain);
    let verdict = machine.verdict().expect("decided");
    let error = join_error(
        &fork.join,
        verdict,
        &path_reports(&fork, "r", &joined(&machine, &Value::Null)),
    )
    .expect("an error");
    assert_eq!(error.code, RunErrorCode::MainThreadNotFound, "B13");
    assert!(
        error.message.contains("Main thread not found for mainPathId p0"),
        "{}",
        error.message
    );
}

#[test]
fn b18_ends_before_join_waits_decide_at_once() {
    let mut fork = fork(2, AllCompleted);
    fork.join.timeout_ms = Some(1000);
    let mut machine = ForkJoinMachine::new(&fork, None);
    step(&mut machine, Input::Start);
    step(&mut machine, ended(1, Completed));
    let effects = step(&mut machine, ended(0, Completed));
    assert_eq!(effects.len(), 3, "StopTimer, Decided and AllEnded: {effects:?}");
}

#[test]
fn b19_a_timeout_of_zero_disables_the_timeout() {
    for timeout_ms in [None, Some(0)] {
        let mut fork = fork(1, AllCompleted);
        fork.join.timeout_ms = timeout_ms;
        let mut machine = ForkJoinMachine::new(&fork, None);
        let effects = step(&mut machine, Input::Start);
        assert_eq!(effects, [Effect::StartPath { path: 0 }], "B19");
    }
}

#[test]
fn b20_b21_the_main_path_is_the_named_one_or_the_first() {
    for (id, named, then) in [("B20", Some(1), Then::Takes(1)), ("B21", None, Then::Takes(0))] {
        let mut fork = fork(2, AllCompleted);
        fork.join.main_path_explicit = named.is_some();
        fork.join.main_path = named.unwrap_or_default();
        decides_at_the_last(id, &fork, &[(1, Completed), (0, Completed)], then);
    }
}

#[test]
fn b22_a_main_path_unknown_to_the_fork_is_main_thread_not_found() {
    for strategy in [AllCompleted, AnyFailed] {
        let mut fork = fork(1, strategy);
        fork.join.main_path = 9;
        let end = if strategy == AllCompleted { Completed } else { Failed };
        let machine = decides_at_the_last("B22", &fork, &[(0, end)], Then::NoMain);
        let verdict = machine.verdict().expect("decided");
        let error = join_error(
            &fork.join,
            verdict,
            &path_reports(&fork, "r", &joined(&machine, &Value::Null)),
        )
        .expect("an error");
        assert!(
            error.message.contains("Main thread not found for mainPathId"),
            "B22: {}",
            error.message
        );
    }
}

#[test]
fn b30_b31_serial_paths_run_one_after_another_in_path_order_and_parallel_ones_at_once() {
    let mut fork = fork(8, AllCompleted);
    let all: Vec<Effect> = (0..8).map(|path| Effect::StartPath { path }).collect();
    assert_eq!(step(&mut ForkJoinMachine::new(&fork, None), Input::Start), all, "B30");

    fork.strategy = ForkStrategy::Serial;
    let mut machine = ForkJoinMachine::new(&fork, Some(4));
    assert_eq!(step(&mut machine, Input::Start), all[..1], "B31");
    for path in 0..7 {
        assert_eq!(
            step(&mut machine, ended(path, Completed)),
            all[path + 1..=path + 1],
            "B31"
        );
    }
    let effects = step(&mut machine, ended(7, Completed));
    assert_eq!(effects.last(), Some(&Effect::AllEnded), "B31");
}

#[test]
fn a_serial_fork_stops_as_soon_as_it_is_decided_and_the_unstarted_are_cancelled() {
    let mut fork = fork(3, AnyCompleted);
    fork.strategy = ForkStrategy::Serial;
    fork.join.merge_variables = MergeVariables::All;
    let mut machine = waiting(&fork);
    let effects = step(&mut machine, ended(0, Completed));
    let verdict = Verdict::Succeeded {
        conversation: Conversation::ReplaceWith(0),
        merge: vec![0],
    };
    assert_eq!(effects, [Effect::Decided { verdict }, Effect::AllEnded]);
    let output = output(&machine, &Value::Null);
    assert_eq!(output["cancelled"], json!(["p1", "p2"]));
    assert_eq!(
        output["childThreadIds"],
        json!({"p0": "r.0"}),
        "a path that was never started has no thread"
    );
}

#[test]
fn an_unsatisfiable_rule_is_decided_at_the_start() {
    let mut fork = fork(2, SuccessCountThreshold);
    fork.join.threshold = 3;
    let effects = step(&mut ForkJoinMachine::new(&fork, None), Input::Start);
    let verdict = Verdict::ConditionNotMet;
    assert_eq!(effects, [Effect::Decided { verdict }, Effect::AllEnded]);
}

#[test]
fn a_failed_join_lists_every_path_and_has_the_first_failure_as_cause() {
    let fork = fork(12, AllCompleted);
    let mut machine = waiting(&fork);
    step(&mut machine, ended(3, Failed));
    let why = pirn_definition::error::RunError::new(RunErrorCode::ModelError, "no");
    let paths = joined(&machine, &Value::Null);
    let mut reports = path_reports(&fork, "r", &paths);
    reports[3].error = Some(&why);
    let error = join_error(&fork.join, &Verdict::ConditionNotMet, &reports).expect("an error");
    assert_eq!(error.code, RunErrorCode::JoinConditionNotMet);
    assert_eq!(error.cause.as_ref(), Some(&why));
    assert!(error.message.ends_with("and 4 more"), "{}", error.message);
    let details = error.into_facts().details.expect("details");
    assert_eq!(details["paths"].as_array().map(Vec::len), Some(12));
    assert_eq!(
        details["failed"],
        json!([{"pathId": "p3", "error": {"code": "MODEL_ERROR", "message": "no"}}])
    );
}
