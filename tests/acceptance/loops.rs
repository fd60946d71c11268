//! Loops: cases M02 to M10, run by an engine.

use pirn_tests::world::{Ran, node, run, workflow};
use serde_json::{Value, json};

/// Runs a loop over `source` until `broken` is true. The output is the list of its items.
fn looped(source: &Value, broken: &str, most: Option<u64>, input: Value) -> Ran {
    let mut start = json!({"loopId": "l"});
    if !source.is_null() {
        start["dataSource"] = json!({"iterable": source, "variableName": "item"});
    }
    if let Some(most) = most {
        start["maxIterations"] = json!(most);
    }
    let body = json!({"variableName": "met", "expression": "[...met, loop.item]"});
    let mut bundle = workflow(
        "loop",
        &[
            node("start", "START", json!({})),
            node("turn", "LOOP_START", start),
            node("body", "VARIABLE", body),
            node("next", "LOOP_END", json!({"loopId": "l", "breakCondition": broken})),
            node("end", "END", json!({"output": "met"})),
        ],
        &["start>turn>body>next>end"],
    );
    bundle["variables"] = json!([{"name": "met", "value": []}]);
    run(&bundle, input)
}

#[test]
fn a_loop_executes_its_body_once_for_each_item() {
    let none = json!(null);
    let cases = [
        (
            "M02",
            json!({"x": 1, "y": 2}),
            "false",
            Some(10),
            none.clone(),
            json!([{"key": "x", "value": 1}, {"key": "y", "value": 2}]),
        ),
        ("M03", json!(5), "false", Some(10), none.clone(), json!([0, 1, 2, 3, 4])),
        (
            "M04",
            json!("'hello'"),
            "false",
            None,
            none.clone(),
            json!(["h", "e", "l", "l", "o"]),
        ),
        ("M04", json!("input"), "false", None, json!("hé"), json!(["h", "é"])),
        (
            "M05",
            json!("{{input.items}}"),
            "false",
            Some(10),
            json!({"items": [1, 2, 3]}),
            json!([1, 2, 3]),
        ),
        ("M07", json!([]), "false", None, none.clone(), json!([])),
        ("M08", json!(null), "false", Some(3), none.clone(), json!([0, 1, 2])),
        ("M09", json!(5), "loop.index === 1", None, none.clone(), json!([0, 1])),
        (
            "M10",
            json!("input.map(n => n * 2)"),
            "loop.last",
            None,
            json!([1, 2]),
            json!([2, 4]),
        ),
    ];
    for (case, source, broken, most, input, expected) in cases {
        let ran = looped(&source, broken, most, input);
        assert_eq!(
            (ran.code(), &ran.report.output),
            ("", &expected),
            "{case}: {:?}",
            ran.report.error
        );
        let rounds = ran.nodes().iter().filter(|node| **node == "body").count();
        assert_eq!(Some(rounds), expected.as_array().map(Vec::len), "{case}: rounds");
        assert_eq!(ran.nodes().last(), Some(&"end"), "{case}: it went on after the loop");
    }
}

#[test]
fn m06_a_loop_over_a_missing_path_fails() {
    let ran = looped(&json!("{{invalid.items}}"), "false", None, json!({}));
    let error = ran.report.error.as_ref().map(ToString::to_string).unwrap_or_default();
    assert!(!ran.code().is_empty() && error.contains("invalid"), "M06: {error}");
    assert!(!ran.nodes().contains(&"body"), "M06");
}

#[test]
fn fork_branches_in_a_loop_see_the_item_and_reducers_merge_their_variables() {
    let add =
        |id: &str, expression: &str| node(id, "VARIABLE", json!({"variableName": "sum", "expression": expression}));
    let join = json!({"joinStrategy": "ALL_COMPLETED", "mergeVariables": "all"});
    let mut bundle = workflow(
        "loop",
        &[
            node("start", "START", json!({})),
            node(
                "for",
                "LOOP_START",
                json!({"loopId": "l", "dataSource": {"iterable": [1, 2]}}),
            ),
            node("both", "FORK", json!({})),
            add("left", "loop.item"),
            add("right", "loop.item * 10"),
            node("join", "JOIN", join),
            node(
                "keep",
                "VARIABLE",
                json!({"variableName": "sums", "expression": "[...sums, sum]"}),
            ),
            node("next", "LOOP_END", json!({"loopId": "l"})),
            node("end", "END", json!({"output": "sums"})),
        ],
        &["start>for>both>left>join>keep>next>end", "both>right>join"],
    );
    bundle["variables"] = json!([{"name": "sum", "value": 0, "reduce": "sum"}, {"name": "sums", "value": []}]);
    let ran = run(&bundle, json!(null));
    assert_eq!(
        (ran.code(), &ran.report.output),
        ("", &json!([11, 22])),
        "{:?}",
        ran.report.error
    );
}
