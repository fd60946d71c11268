//! What a loop makes larger and larger ends in an error of its run, not in the end of the process.

use pirn::{Engine, RunErrorCode, ThreadStatus};
use pirn_tests::world::{node, run_in, workflow};
use serde_json::{Value, json};

/// Puts `x` into `input` again and again.
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

#[test]
fn what_a_loop_wraps_or_doubles_ends_at_a_limit() {
    for input in [
        json!({"a": "{{x}}{{x}}"}),
        json!({"a": "{{x}}", "b": "{{x}}"}),
        json!(["{{x}}", "{{x}}"]),
        json!({"a": "{{x}}"}),
        json!([["{{x}}"]]),
    ] {
        let same = Engine::builder().virtual_time(Some(1));
        let same = same.function("same", |input| Ok(input.clone()));
        let ran = run_in(same, &grows(&input), Value::Null, Vec::new());
        assert_eq!(ran.report.status, ThreadStatus::Failed, "{input}");
        let error = ran
            .report
            .error
            .as_ref()
            .map(|error| (error.code, error.node_id.as_deref()));
        assert_eq!(
            error,
            Some((RunErrorCode::ScriptLimitExceeded, Some("next"))),
            "{input}"
        );
    }
}

#[test]
fn a_value_as_deep_as_a_file_may_have_it_is_handed_on() {
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
    assert_eq!(wraps(127), ThreadStatus::Completed);
    assert_eq!(wraps(128), ThreadStatus::Failed);
}
