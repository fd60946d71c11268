//! Loops: cases M02 to M09. SPEC has no LOOP node (section 2: loops are edges); what the cases' node iterates over, an
//! expression makes a list of.

use pirn_tests::world::{Ran, node, run, workflow};
use serde_json::{Value, json};

/// Makes a list of the input by `items`, and goes round once for each, at most `most` times and until `broken` holds:
/// the output is what it met.
fn looped(items: &str, broken: &str, most: u32, input: Value) -> Ran {
    let set = |id: &str, name: &str, expression: &str| {
        node(id, "VARIABLE", json!({"variableName": name, "expression": expression}))
    };
    let route = json!({"routes": [
        {"condition": format!("i < items.length && i < {most}"), "targetNodeId": "body", "priority": 1},
        {"condition": broken, "targetNodeId": "end", "priority": 9},
    ], "defaultTargetNodeId": "end"});
    let mut bundle = workflow(
        "loop",
        &[
            node("start", "START", json!({})),
            set("make", "items", items),
            node("turn", "ROUTE", route),
            set("body", "met", "[...met, items[i]]"),
            set("next", "i", "i + 1"),
            node("end", "END", json!({"output": "met"})),
        ],
        &["start>make>turn>body>next>turn", "turn>end"],
    );
    bundle["variables"] = json!([{"name": "i", "value": 0}, {"name": "met", "value": []}]);
    run(&bundle, input)
}

#[test]
fn a_loop_goes_round_once_for_each_item_up_to_its_limit() {
    let pairs = "Object.entries(input).map(([key, value]) => ({key, value}))";
    let numbers = "Array.from({length: input}, (_, place) => place)";
    let cases = [
        (
            "M02",
            pairs,
            "false",
            10,
            json!({"x": 1, "y": 2}),
            json!([{"key": "x", "value": 1}, {"key": "y", "value": 2}]),
        ),
        ("M03", numbers, "false", 10, json!(5), json!([0, 1, 2, 3, 4])),
        (
            "M04",
            "[...input]",
            "false",
            10,
            json!("hello"),
            json!(["h", "e", "l", "l", "o"]),
        ),
        (
            "M05",
            "{{input.items}}",
            "false",
            10,
            json!({"items": [1, 2, 3]}),
            json!([1, 2, 3]),
        ),
        ("M07", "input", "false", 10, json!([]), json!([])),
        ("M08", "[0, 1, 2, 3, 4, 5]", "false", 3, json!(null), json!([0, 1, 2])),
        ("M09", numbers, "i === 2", 10, json!(5), json!([0, 1])),
    ];
    for (case, items, broken, most, input, expected) in cases {
        let ran = looped(items, broken, most, input);
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
fn m06_what_is_not_there_cannot_be_gone_through() {
    let ran = looped("{{invalid.items}}", "false", 10, json!({}));
    let error = ran.report.error.as_ref().map(ToString::to_string).unwrap_or_default();
    assert!(!ran.code().is_empty() && error.contains("invalid"), "M06: {error}");
    assert!(!ran.nodes().contains(&"body"), "M06");
}
