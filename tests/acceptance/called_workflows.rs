//! A called workflow: case M11. Upstream inlines its nodes into its caller's graph; here it runs in a separate thread (SPEC
//! section 2).

use pirn::EventType;
use pirn_core::thread::ThreadKind;
use pirn_tests::world::{code, line, node, run};
use serde_json::{Value, json};

#[test]
fn m11_a_called_workflow_runs_between_the_nodes_before_and_after_its_call() {
    let call = json!({"subgraphId": "subwf1", "input": {"twice": "{{input.n}}"}, "output": "output + 1"});
    let main = line(
        "main",
        &[node("call", "SUBGRAPH", call), code("after", "return output * 10")],
    );
    let sub = line("subwf1", &[code("inside", "return input.twice * 2")]);
    let ran = run(&json!({"workflows": [main, sub]}), json!({"n": 4}));
    assert_eq!(
        (ran.code(), &ran.report.output),
        ("", &json!(90)),
        "M11: {:?}",
        ran.report.error
    );
    assert_eq!(
        ran.nodes(),
        ["start", "call", "after", "end"],
        "M11: its nodes are not its caller's"
    );
    let called: Vec<(&str, ThreadKind)> = ran.report.threads[1..]
        .iter()
        .map(|thread| (&*thread.workflow_id, thread.kind))
        .collect();
    assert_eq!(called, [("subwf1", ThreadKind::Subgraph)], "M11");
    // In chronological order: events before, inside and after the called workflow.
    let told: Vec<String> = ran
        .events
        .iter()
        .filter_map(|event| match event.raised.event_type {
            EventType::NodeStarted => event.raised.fields["nodeId"].as_str().map(str::to_owned),
            kind @ (EventType::SubgraphStarted | EventType::SubgraphCompleted) => Some(kind.as_str().to_owned()),
            _other => None,
        })
        .collect();
    let expected = [
        "start",
        "call",
        "SUBGRAPH_STARTED",
        "start",
        "inside",
        "end",
        "SUBGRAPH_COMPLETED",
        "after",
        "end",
    ];
    assert_eq!(told, expected, "M11");
}

#[test]
fn a_retry_after_a_failed_output_expression_passes_the_same_input_to_the_called_workflow() {
    let mut call = node(
        "call",
        "SUBGRAPH",
        json!({"subgraphId": "sub", "output": "output.missing.field"}),
    );
    call["retry"] = json!({"maxAttempts": 2, "initialDelayMs": 1});
    let main = line("main", &[code("before", "return {n: 1}"), call]);
    let check = "if (input.n !== 1) throw new Error('another input'); return {n: 2}";
    let sub = line("sub", &[code("inside", check)]);
    let ran = run(&json!({"workflows": [main, sub]}), json!(null));
    assert_eq!(ran.of(EventType::SubgraphCompleted).len(), 2, "{:?}", ran.report.error);
    assert_eq!(ran.report.nodes[2].attempts, 2);
}

/// The LLM node has a higher index than the caller's workflow has nodes.
#[test]
fn a_model_is_called_by_a_workflow_that_shares_the_conversation_of_a_smaller_one() {
    let call = node(
        "call",
        "SUBGRAPH",
        json!({"subgraphId": "sub", "conversation": "share"}),
    );
    let mut nodes: Vec<Value> = (0..4).map(|place| code(&format!("n{place}"), "return 1")).collect();
    nodes.push(node("ask", "LLM", json!({"prompt": "hello"})));
    let profiles = json!([{"id": "m", "provider": "echo"}]);
    let bundle = json!({"workflows": [line("main", &[call]), line("sub", &nodes)], "profiles": profiles});
    let ran = run(&bundle, Value::Null);
    assert_eq!((ran.code(), ran.visible()), ("", vec!["hello", "hello"]));
    assert_eq!(ran.of(EventType::RequestPrepared).len(), 1);
}
