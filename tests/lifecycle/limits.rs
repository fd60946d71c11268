//! A value that a loop grows without bound fails its run, not the process.

use std::fmt::Display;

use pirn::{Engine, RunErrorCode, RunReport, ThreadStatus};
use pirn_tests::world::{node, run_in, workflow};
use serde_json::{Value, json};

/// Evaluates `input`, which contains `x`, and assigns the result to `x`, in an endless loop.
fn grows(input: &Value) -> Value {
    let mut grows = workflow(
        "grows",
        &[
            node("start", "START", json!({})),
            node("next", "CODE", json!({"function": "same", "input": input})),
            node("keep", "VARIABLE", json!({"variableName": "x", "expression": "output"})),
            node("end", "END", json!({})),
        ],
        &["start>next>keep>end"],
    );
    grows["config"] = json!({"maxSteps": 1_000_000});
    grows["variables"] = json!([{"name": "x", "value": "some text"}]);
    grows["edges"] = json!([{"from": "start", "to": "next"}, {"from": "next", "to": "keep"},
        {"from": "keep", "to": "next", "weight": 2}, {"from": "keep", "to": "end", "condition": "false"}]);
    grows
}

fn assert_ended_at_the_limit(report: &RunReport, node: &str, of: &dyn Display) {
    assert_eq!(report.status, ThreadStatus::Failed, "{of}");
    let error = report
        .error
        .as_ref()
        .map(|error| (error.code, error.node_id.as_deref()));
    assert_eq!(error, Some((RunErrorCode::ScriptLimitExceeded, Some(node))), "{of}");
}

fn assert_loop_ends_at_the_limit(input: &Value) {
    let same = Engine::builder().virtual_time(Some(1));
    let same = same.function("same", |input| Ok(input.clone()));
    let ran = run_in(same, &grows(input), Value::Null, Vec::new());
    assert_ended_at_the_limit(&ran.report, "next", input);
}

// Separate tests that run in parallel, because the values grow large and each takes a while.
#[test]
fn a_string_that_a_loop_doubles_ends_at_a_limit() {
    assert_loop_ends_at_the_limit(&json!({"a": "{{x}}{{x}}"}));
}

#[test]
fn an_object_that_a_loop_doubles_ends_at_a_limit() {
    assert_loop_ends_at_the_limit(&json!({"a": "{{x}}", "b": "{{x}}"}));
}

#[test]
fn a_list_that_a_loop_doubles_ends_at_a_limit() {
    assert_loop_ends_at_the_limit(&json!(["{{x}}", "{{x}}"]));
}

#[test]
fn a_value_that_a_loop_nests_ends_at_a_limit() {
    assert_loop_ends_at_the_limit(&json!({"a": "{{x}}"}));
    assert_loop_ends_at_the_limit(&json!([["{{x}}"]]));
}

/// A loop around `work`, with more nodes and the edges.
fn nests(work: &Value, more: &[Value], edges: &[&str]) -> Value {
    let mut nodes = vec![
        node("start", "START", json!({})),
        work.clone(),
        node("end", "END", json!({})),
    ];
    nodes.extend_from_slice(more);
    let mut nests = workflow("nests", &nodes, edges);
    nests["config"] = json!({"maxSteps": 1_000_000});
    nests
}

#[test]
fn a_value_that_joins_or_functions_nest_in_a_loop_ends_at_a_limit() {
    let join = json!({"forkPathIds": ["a", "b"], "joinStrategy": "ALL_COMPLETED"});
    let fork = json!({"forkPathIds": ["a", "b"], "childNodeIds": ["a", "b"], "forkStrategy": "parallel"});
    let mut joins = nests(
        &node("fork", "FORK", fork),
        &[
            node("a", "VARIABLE", json!({"variableName": "v", "expression": "output"})),
            node("b", "VARIABLE", json!({"variableName": "v", "expression": "1"})),
            node("join", "JOIN", join),
        ],
        &["start>fork>a>join", "fork>b>join"],
    );
    let mut calls = nests(
        &node("join", "CODE", json!({"function": "wrap", "input": "output"})),
        &[],
        &["start>join"],
    );
    for (file, again) in [(&mut joins, "fork"), (&mut calls, "join")] {
        let mut edges = file["edges"].as_array().cloned().unwrap_or_default();
        edges.push(json!({"from": "join", "to": again, "weight": 2}));
        edges.push(json!({"from": "join", "to": "end", "condition": "false"}));
        file["edges"] = json!(edges);
        let engine = Engine::builder().virtual_time(Some(1));
        let engine = engine.function("wrap", |input| Ok(json!([input.clone()])));
        let ran = run_in(engine, file, Value::Null, Vec::new());
        assert_ended_at_the_limit(&ran.report, "join", &again);
    }
}

#[test]
fn a_value_at_the_depth_limit_is_passed_to_the_next_node() {
    let deep = |levels: usize| (0..levels).fold(json!(1), |inside, _| json!([inside]));
    let wraps = |levels: usize| {
        let same = Engine::builder()
            .virtual_time(Some(1))
            .function("same", |_| Ok(Value::Null));
        let file = workflow(
            "wraps",
            &[
                node("start", "START", json!({})),
                node("n", "CODE", json!({"function": "same", "input": {"a": "{{input}}"}})),
                node("end", "END", json!({})),
            ],
            &["start>n>end"],
        );
        run_in(same, &file, deep(levels), Vec::new()).report.status
    };
    assert_eq!(wraps(99), ThreadStatus::Completed);
    assert_eq!(wraps(100), ThreadStatus::Failed);
}
