//! The faults of a loop.

use serde_json::{Value, json};

use crate::definitions::fixtures::{codes_of, flow, idle, node};

fn start(id: &str, config: &Value) -> Value {
    json!({"id": id, "type": "LOOP_START", "config": config})
}

fn end(id: &str, loop_id: &str) -> Value {
    json!({"id": id, "type": "LOOP_END", "config": {"loopId": loop_id}})
}

fn counted(loop_id: &str) -> Value {
    json!({"loopId": loop_id, "maxIterations": 2})
}

#[test]
fn loops_are_paired_closed_and_nested() {
    let body = |nodes: &[Value], edges: &[&str]| {
        let mut all = vec![node("s", "START"), node("e", "END")];
        all.extend_from_slice(nodes);
        codes_of(&flow(&Value::Array(all), edges))
    };
    let (l, a, x) = (start("l", &counted("l")), idle("a"), end("x", "l"));
    assert!(body(&[l.clone(), a.clone(), x.clone()], &["s>l", "l>a", "a>x", "x>e"]).is_empty());
    let inner = [start("m", &counted("m")), idle("b"), end("y", "m")];
    let nested = [&[l.clone(), x.clone()][..], &inner].concat();
    assert!(body(&nested, &["s>l", "l>m", "m>b", "b>y", "y>x", "x>e"]).is_empty());
    assert_eq!(
        body(&nested, &["s>l", "l>m", "m>b", "b>x", "x>e"]),
        ["LOOP_NOT_CLOSED", "UNREACHABLE_NODE"][..1],
        "crossing"
    );

    assert_eq!(
        body(&[l.clone(), a.clone()], &["s>l", "l>a", "a>e"])[0],
        "UNPAIRED_LOOP_START"
    );
    assert_eq!(
        body(&[a.clone(), x.clone()], &["s>a", "a>x", "x>e"])[0],
        "UNPAIRED_LOOP_END"
    );
    let twice = [l.clone(), a.clone(), x.clone(), start("k", &counted("l"))];
    assert!(body(&twice, &["s>k", "k>l", "l>a", "a>x", "x>e"]).contains(&"DUPLICATE_LOOP_ID"));
    let leaving = body(
        &[l.clone(), a.clone(), x.clone(), idle("c")],
        &["s>l", "l>a", "a>x", "a>c", "c>e", "x>e"],
    );
    assert_eq!(leaving, ["LOOP_NOT_CLOSED"], "END inside a loop");
    let entering = body(&[idle("c"), l, a, x], &["s>c", "c>l", "c>a", "l>a", "a>x", "x>e"]);
    assert_eq!(entering, ["LOOP_NOT_CLOSED"], "into the middle");
}

#[test]
fn a_loop_that_cannot_start_or_end_is_a_fault() {
    let with = |config: Value, close: Value| {
        let nodes = json!([node("s", "START"), start("l", &config), idle("a"),
            {"id": "x", "type": "LOOP_END", "config": close}, node("e", "END")]);
        codes_of(&flow(&nodes, &["s>l", "l>a", "a>x", "x>e"]))
    };
    assert_eq!(with(json!({"loopId": "l"}), json!({"loopId": "l"})), ["INVALID_VALUE"]);
    assert!(
        with(
            json!({"loopId": "l"}),
            json!({"loopId": "l", "breakCondition": "output"})
        )
        .is_empty()
    );
    assert_eq!(
        with(json!({"loopId": "l", "maxIterations": 0}), json!({"loopId": "l"})),
        ["INVALID_VALUE"]
    );
    assert_eq!(
        with(json!({"loopId": "l", "dataSource": {}}), json!({"loopId": "l"})),
        ["MISSING_FIELD"]
    );
    assert_eq!(
        with(
            json!({"loopId": "l", "onLimit": "stop", "maxIterations": 1}),
            json!({"loopId": "l"})
        ),
        ["INVALID_VALUE"]
    );
}

#[test]
fn a_tool_node_requires_a_tool_name() {
    let with = |config: Value| {
        let nodes = json!([node("s", "START"), {"id": "t", "type": "TOOL", "config": config}, node("e", "END")]);
        codes_of(&flow(&nodes, &["s>t", "t>e"]))
    };
    assert!(with(json!({"tool": "search", "arguments": {"q": "{{input.q}}"}, "assignTo": "found"})).is_empty());
    assert_eq!(with(json!({})), ["MISSING_FIELD"]);
    assert_eq!(with(json!({"tool": ""})), ["INVALID_VALUE"]);
}
