//! Variables and expressions: cases L13 and K35.

use pirn_tests::world::{code, line, node, run};
use serde_json::{Value, json};

#[test]
fn l13_a_global_variable_belongs_to_the_run_and_not_to_a_thread() {
    let set = |scope: &str, expression: &str| {
        node(
            &format!("set-{scope}"),
            "VARIABLE",
            json!({"variableName": "v", "expression": expression, "scope": scope}),
        )
    };
    let seen = |nodes: &[Value]| {
        let mut nodes = nodes.to_vec();
        nodes.push(node("call", "SUBGRAPH", json!({"subgraphId": "sub"})));
        nodes.push(code("both", "return [output, v]"));
        // A called workflow runs in a separate thread, which sees only the global variables of its caller.
        let sub = line("sub", &[code("look", "return typeof v === 'undefined' ? 'absent' : v")]);
        let ran = run(&json!({"workflows": [line("main", &nodes), sub]}), Value::Null);
        assert_eq!(ran.code(), "", "L13: {:?}", ran.report.error);
        ran.report.output
    };
    assert_eq!(seen(&[set("global", "100")]), json!([100, 100]), "L13");
    assert_eq!(seen(&[set("thread", "7")]), json!(["absent", 7]), "L13");
    assert_eq!(
        seen(&[set("global", "100"), set("thread", "7")]),
        json!([100, 7]),
        "L13 L04: a thread's own shadows it"
    );
}

/// Names inherited by every object are not variables of the run, and an expression's changes to them are discarded with it.
#[test]
fn k35_no_expression_changes_a_shared_prototype() {
    let tried = |expression: &str| {
        let set = |id: &str, name: &str, expression: &str| {
            node(id, "VARIABLE", json!({"variableName": name, "expression": expression}))
        };
        let mut bad = set("bad", "bad", expression);
        bad["onError"] = json!({"targetNodeId": "after"});
        let mut bundle = line("main", &[bad, set("after", "after", "[typeof ({}).x, typeof input.x]")]);
        bundle["variables"] = json!([{"name": "bad", "value": "unchanged"}, {"name": "v", "value": {}}]);
        let ran = run(&bundle, json!({}));
        assert_eq!(ran.code(), "", "K35 {expression}: {:?}", ran.report.error);
        assert_eq!(
            ran.report.variables["after"],
            json!(["undefined", "undefined"]),
            "K35 {expression}: it stays with the text"
        );
        ran.report.variables["bad"].clone()
    };
    for forbidden in [
        "__proto__.x == 1",
        "__proto__",
        "__proto__.x = 1",
        "typeof constructor ? constructor.x == 1 : 0",
        "v.constructor",
        "(({}).__proto__.x = 1)",
    ] {
        assert_eq!(tried(forbidden), json!("unchanged"), "K35 {forbidden}");
    }
    for (harmless, value) in [
        ("({}).__proto__.x == 1", json!(false)),
        ("input.__proto__.x == 1", json!(false)),
    ] {
        assert_eq!(tried(harmless), value, "K35 {harmless}");
    }
}
