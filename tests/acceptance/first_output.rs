//! The value of `output` at the start of a thread (SPEC section 2 "Expressions"): the last node's output.

use pirn_tests::world::{code, forked, line, node, run, wait, workflow};
use serde_json::{Value, json};

fn keep(id: &str) -> Value {
    node(
        id,
        "VARIABLE",
        json!({"variableName": id, "expression": "output", "scope": "global"}),
    )
}

#[test]
fn a_branchs_first_node_sees_the_output_of_the_node_before_its_fork() {
    let said = json!({"operation": "insert", "messages": [{"role": "user", "content": "it was {{output}}"}]});
    for serial in [false, true] {
        let mut forked = forked(
            &[
                vec![keep("a"), code("a2", "return output + '!'")],
                vec![code("b", "return [output, result]")],
                vec![node("c", "CONTEXT_PROCESSOR", said.clone()), wait("c2", 10)],
            ],
            serial,
            &json!({"joinStrategy": "ALL_COMPLETED", "mainPathId": "p2"}),
        );
        for edge in forked["edges"].as_array_mut().into_iter().flatten() {
            if edge["from"] == "start" {
                edge["to"] = json!("before");
            }
        }
        let more = [
            ("nodes", code("before", "return 'before'")),
            ("edges", json!({"from": "before", "to": "fork"})),
        ];
        for (list, item) in more {
            forked[list]
                .as_array_mut()
                .into_iter()
                .for_each(|list| list.push(item.clone()));
        }
        let ran = run(&forked, Value::Null);
        assert_eq!(ran.report.error, None);
        let outputs = &ran.report.output["outputs"];
        assert_eq!(outputs["p0"], "before!", "serial: {serial}");
        assert_eq!(outputs["p1"], json!(["before", "before"]), "serial: {serial}");
        assert_eq!(ran.visible(), ["it was before"], "a template sees it too");
        assert_eq!(ran.report.variables["a"], "before");
    }
}

#[test]
fn nested_forks_and_forks_in_loops_pass_the_output_of_the_node_just_before() {
    let fork =
        |id: &str, path: &str, child: &str| node(id, "FORK", json!({"forkPathIds": [path], "childNodeIds": [child]}));
    let join = |id: &str, path: &str| {
        node(
            id,
            "JOIN",
            json!({"forkPathIds": [path], "joinStrategy": "ALL_COMPLETED"}),
        )
    };
    let mut nested = workflow(
        "nested",
        &[
            node("start", "START", json!({})),
            node("count", "VARIABLE", json!({"variableName": "n", "expression": "n + 1"})),
            fork("outer", "o", "x"),
            code("x", "return output * 10"),
            fork("inner", "i", "y"),
            node(
                "y",
                "VARIABLE",
                json!({"variableName": "seen", "expression": "seen.concat([output])", "scope": "global"}),
            ),
            join("inner-join", "i"),
            join("outer-join", "o"),
            node("end", "END", json!({"output": "seen"})),
        ],
        &["start>count>outer>x>inner>y>inner-join>outer-join"],
    );
    nested["variables"] = json!([{"name": "n", "value": 0}, {"name": "seen", "value": [], "scope": "global"}]);
    for (to, condition) in [("count", "n < 3"), ("end", "n >= 3")] {
        let edge = json!({"from": "outer-join", "to": to, "condition": condition});
        nested["edges"]
            .as_array_mut()
            .into_iter()
            .for_each(|edges| edges.push(edge.clone()));
    }
    assert_eq!(run(&nested, Value::Null).report.output, json!([10, 20, 30]));
}

#[test]
fn a_called_or_triggered_workflow_starts_with_its_input_as_output() {
    let called = line("called", &[keep("called-saw")]);
    let triggered = workflow(
        "triggered",
        &[
            node("from", "START_FROM_TRIGGER", json!({})),
            keep("triggered-saw"),
            node("to", "CONTINUE_FROM_TRIGGER", json!({})),
        ],
        &["from>triggered-saw>to"],
    );
    let main = line(
        "main",
        &[
            code("first", "return 'first'"),
            node("call", "SUBGRAPH", json!({"subgraphId": "called", "input": "[output]"})),
            wait("rest", 50),
        ],
    );
    let trigger = json!({"id": "t", "type": "EVENT",
        "condition": {"eventType": "NODE_STARTED", "expression": "event.nodeId == 'rest'"},
        "action": {"type": "EXECUTE_TRIGGERED_SUBGRAPH", "parameters": {"triggeredWorkflowId": "triggered"}}});
    let ran = run(
        &json!({"workflows": [main, called, triggered], "triggers": [trigger]}),
        json!("in"),
    );
    assert_eq!(ran.report.error, None);
    assert_eq!(
        ran.report.variables["called-saw"],
        json!(["first"]),
        "its START passes its input on"
    );
    let saw = &ran.report.variables["triggered-saw"];
    assert_eq!(saw["triggerId"], "t", "as does START_FROM_TRIGGER");
    assert_eq!(
        (&saw["input"], &saw["output"]),
        (&json!("in"), &json!(["first"])),
        "main's stand in it"
    );
}
