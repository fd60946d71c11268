//! Forks as they run: cases A26 and B26.

use std::collections::BTreeSet;

use pirn::{Engine, EventType};
use pirn_tests::world::{code, line, node, run, wait, workflow};
use serde_json::{Value, json};

#[test]
fn a26_path_ids_are_reported_as_the_user_defined_them() {
    let file = workflow(
        "main",
        &[
            node("start", "START", json!({})),
            node(
                "fork",
                "FORK",
                json!({"forkPathIds": ["path1", "path2"], "childNodeIds": ["a", "b"]}),
            ),
            code("a", "return 'first'"),
            code("b", "return 'second'"),
            node(
                "join",
                "JOIN",
                json!({"forkPathIds": ["path1", "path2"], "joinStrategy": "ALL_COMPLETED", "mainPathId": "path1"}),
            ),
            node("end", "END", json!({})),
        ],
        &["start>fork>a>join>end", "fork>b>join"],
    );
    let given = file.clone();
    let ran = run(&file, Value::Null);
    assert_eq!(file, given, "A26: the caller's definition is never changed");
    assert_eq!(
        ran.report.output["outputs"],
        json!({"path1": "first", "path2": "second"}),
        "A26"
    );
    assert_eq!(ran.report.output["completed"], json!(["path1", "path2"]), "A26");
    let threads: BTreeSet<&str> = ran.report.output["childThreadIds"]
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(_, id)| id.as_str())
        .collect();
    assert_eq!(threads.len(), 2, "A26: two threads of two names");
    for event in ran.of(EventType::ThreadCompleted) {
        let path = event.raised.fields.get("pathId").and_then(Value::as_str);
        assert!(matches!(path, None | Some("path1" | "path2")), "A26: {event:?}");
    }
}

#[test]
fn b26_an_action_on_an_unknown_thread_is_a_failed_trigger_and_the_run_completes() {
    for kind in ["STOP_THREAD", "PAUSE_THREAD", "RESUME_THREAD"] {
        let mut main = line("main", &[code("a", "return 1"), wait("w", 10), code("b", "return 2")]);
        main["triggers"] = json!([{"id": "t", "type": "EVENT",
            "condition": {"eventType": "NODE_COMPLETED", "expression": "event.nodeId === 'a'"},
            "action": {"type": kind, "parameters": {"threadId": "nobody"}}}]);
        let ran = run(&main, Value::Null);
        assert_eq!((ran.code(), &ran.report.output), ("", &json!(2)), "B26: {kind}");
        let failed = ran.of(EventType::TriggerFailed);
        let told: Vec<(&Value, &Value)> = failed
            .iter()
            .map(|event| {
                (
                    &event.raised.fields["triggerId"],
                    &event.raised.fields["error"]["message"],
                )
            })
            .collect();
        assert_eq!(
            told,
            [(&json!("t"), &json!("the run has no thread nobody"))],
            "B26: {kind}"
        );
    }
}

#[test]
fn b26_a_run_of_an_unknown_workflow_is_refused() {
    let engine = Engine::builder()
        .virtual_time(Some(1))
        .workflows(line("main", &[code("a", "return 1")]).to_string())
        .build()
        .expect("valid");
    let error = engine.start("nobody", Value::Null).expect_err("B26");
    assert_eq!(error.message, "there is no workflow nobody", "B26");
    assert_eq!(engine.live_runs(), 0, "B26");
}
