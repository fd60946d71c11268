//! `config.timeoutMs` of each workflow of a run: the workflow's thread ends TIMEOUT, and its callers continue or end as after
//! any failure.

use pirn::{EventType, ThreadStatus};
use pirn_tests::world::{code, line, node, run, wait, workflow};
use serde_json::{Value, json};

/// START > calls `inner` > END, with `inner`, which waits for `rests_ms` and has a time limit of `limit` ms.
fn calling(rests_ms: u32, limit: u64) -> Value {
    let mut inner = line("inner", &[wait("rest", rests_ms), code("late", "return 'rested'")]);
    inner["config"] = json!({ "timeoutMs": limit });
    let main = line("main", &[node("call", "SUBGRAPH", json!({"subgraphId": "inner"}))]);
    json!({"workflows": [main, inner]})
}

#[test]
fn a_called_workflow_ends_at_its_time_limit_and_fails_its_caller() {
    let ran = run(&calling(5_000, 50), Value::Null);
    assert_eq!(
        (ran.report.status, ran.code(), ran.report.elapsed_ms),
        (ThreadStatus::Failed, "NODE_FAILED", 50)
    );
    let statuses: Vec<ThreadStatus> = ran.report.threads.iter().map(|thread| thread.status).collect();
    assert_eq!(statuses, [ThreadStatus::Failed, ThreadStatus::Timeout]);
    let error = ran.report.error.as_ref().map(|error| json!(error)).unwrap_or_default();
    assert!(error.to_string().contains("workflow inner ended TIMEOUT"), "{error}");
    assert!(error.to_string().contains("50 ms"), "{error}");
}

#[test]
fn a_caller_may_handle_the_timeout_of_a_called_workflow() {
    let mut bundle = calling(5_000, 50);
    let main = &mut bundle["workflows"][0];
    for node in main["nodes"].as_array_mut().into_iter().flatten() {
        if node["id"] == "call" {
            node["onError"] = json!({"targetNodeId": "mend"});
        }
    }
    main["nodes"]
        .as_array_mut()
        .into_iter()
        .for_each(|nodes| nodes.push(code("mend", "return 'mended'")));
    main["edges"]
        .as_array_mut()
        .into_iter()
        .for_each(|edges| edges.push(json!({"from": "mend", "to": "end"})));
    let ran = run(&bundle, Value::Null);
    assert_eq!(
        (ran.code(), &ran.report.output, ran.report.elapsed_ms),
        ("", &json!("mended"), 50)
    );
}

#[test]
fn the_limit_of_a_completed_called_workflow_is_removed() {
    let mut bundle = calling(10, 50);
    bundle["workflows"][0] = line(
        "main",
        &[
            node("call", "SUBGRAPH", json!({"subgraphId": "inner"})),
            node("again", "SUBGRAPH", json!({"subgraphId": "inner"})),
            wait("rest", 1_000),
        ],
    );
    let ran = run(&bundle, Value::Null);
    assert_eq!((ran.code(), ran.report.elapsed_ms), ("", 1_020));
}

#[test]
fn the_earlier_of_two_limits_applies() {
    for (outer, inner, status) in [(40, 50, ThreadStatus::Timeout), (60, 50, ThreadStatus::Failed)] {
        let mut bundle = calling(5_000, inner);
        bundle["workflows"][0]["config"] = json!({ "timeoutMs": outer });
        let ran = run(&bundle, Value::Null);
        assert_eq!(
            (ran.report.status, ran.report.elapsed_ms),
            (status, outer.min(inner)),
            "{outer} {inner}"
        );
    }
}

#[test]
fn a_branch_is_subject_to_the_limit_of_its_parent_thread_only() {
    let nodes = [
        node("start", "START", json!({})),
        node(
            "fork",
            "FORK",
            json!({"forkPathIds": ["p"], "childNodeIds": ["rest"], "forkStrategy": "parallel"}),
        ),
        wait("rest", 5_000),
        node(
            "join",
            "JOIN",
            json!({"forkPathIds": ["p"], "joinStrategy": "ALL_COMPLETED"}),
        ),
        node("end", "END", json!({})),
    ];
    let mut bundle = workflow("main", &nodes, &["start>fork>rest>join>end"]);
    bundle["config"] = json!({"timeoutMs": 50});
    let ran = run(&bundle, Value::Null);
    let statuses: Vec<ThreadStatus> = ran.report.threads.iter().map(|thread| thread.status).collect();
    assert_eq!(statuses, [ThreadStatus::Timeout, ThreadStatus::Cancelled]);
    assert_eq!(ran.report.elapsed_ms, 50);
}

#[test]
fn a_triggered_workflow_ends_at_its_time_limit_and_its_thread_continues() {
    let trigger = json!({"id": "t", "type": "EVENT",
        "condition": {"eventType": "NODE_COMPLETED", "expression": "event.nodeId === 'a'"},
        "action": {"type": "EXECUTE_TRIGGERED_SUBGRAPH", "parameters": {"triggeredWorkflowId": "sub", "timeout": 30}}});
    let mut main = line("main", &[code("a", "return 'of a'"), code("b", "return 'of b'")]);
    main["triggers"] = json!([trigger]);
    let mut sub = workflow(
        "sub",
        &[
            node("first", "START_FROM_TRIGGER", json!({})),
            wait("rest", 5_000),
            node("last", "CONTINUE_FROM_TRIGGER", json!({})),
        ],
        &["first>rest>last"],
    );
    sub["config"] = json!({"timeoutMs": 50});
    let ran = run(&json!({"workflows": [main, sub]}), Value::Null);
    assert_eq!(
        (ran.code(), &ran.report.output, ran.report.elapsed_ms),
        ("", &json!("of b"), 50)
    );
    assert_eq!(ran.of(EventType::TriggeredSubgraphFailed).len(), 1);
    assert_eq!(ran.report.threads[1].status, ThreadStatus::Timeout);
}

#[test]
fn a_reply_after_the_nodes_time_limit_costs_nothing() {
    let spent = |limit: u64| {
        let mut main = line("main", &[node("ask", "LLM", json!({"prompt": "hello"}))]);
        for node in main["nodes"].as_array_mut().into_iter().flatten() {
            if node["id"] == "ask" {
                node["timeoutMs"] = json!(limit);
            }
        }
        let late = json!([{"id": "late", "provider": "scripted", "responses": [{"content": "hi", "delayMs": 100}]}]);
        let ran = run(&json!({"workflows": [main], "profiles": late}), Value::Null);
        (ran.report.status, ran.report.tokens.spent.total)
    };
    assert_eq!(spent(50), (ThreadStatus::Failed, 0), "the request was dropped");
    let (status, total) = spent(200);
    assert_eq!((status, total > 0), (ThreadStatus::Completed, true));
}
