//! The actor of a conversation that several threads share can panic like any other. The thread that owns the conversation then
//! fails at once with an error that names the panic, and no thread waits for it.

use std::sync::Arc;

use pirn::{Engine, EventType, RunErrorCode, ThreadStatus};
use pirn_tests::world::{Ran, Touchy, code, forked, line, node, run_in, say, wait, workflow};
use serde_json::{Value, json};

/// Runs the first of the workflows in 20 orders; all of them count with [`Touchy`].
fn in_many_orders(workflows: &[Value], triggers: &Value, check: impl Fn(&Ran)) {
    let mut workflows = workflows.to_vec();
    for workflow in &mut workflows {
        workflow["config"]["tokenizer"] = json!("touchy");
    }
    let bundle = json!({"workflows": workflows, "triggers": triggers});
    for seed in 0..20 {
        let engine = Engine::builder()
            .virtual_time(Some(seed))
            .tokenizer("touchy", Arc::new(Touchy));
        check(&run_in(engine, &bundle, Value::Null, Vec::new()));
    }
}

fn sharing(id: &str) -> Value {
    node(id, "SUBGRAPH", json!({"subgraphId": "child", "conversation": "share"}))
}

#[track_caller]
fn lost(ran: &Ran) {
    let error = ran.report.error.as_ref().expect("the run failed");
    assert_eq!(ran.report.status, ThreadStatus::Failed);
    assert_eq!(error.code, RunErrorCode::ActorPanicked, "{error:?}");
    assert!(error.message.contains("conversation"), "{error:?}");
    assert_eq!(ran.report.elapsed_ms, 0, "at once");
}

#[test]
fn a_run_fails_if_a_child_loses_its_conversation_even_with_an_error_handler() {
    let mut call = sharing("call");
    call["onError"] = json!({"targetNodeId": "rest"});
    let workflows = [
        line("main", &[say("say", "hello"), call, wait("rest", 1_000)]),
        line("child", &[say("bad", "boom"), wait("later", 1_000)]),
    ];
    in_many_orders(&workflows, &json!([]), lost);
}

#[test]
fn a_run_that_loses_its_shared_conversation_fails() {
    let workflows = [
        line("main", &[sharing("call"), say("bad", "boom"), wait("rest", 1_000)]),
        line("child", &[say("say", "hello")]),
    ];
    in_many_orders(&workflows, &json!([]), lost);
}

#[test]
fn no_thread_waits_for_a_lost_conversation() {
    let fork = {
        let mut child = forked(
            &[vec![say("bad", "boom")], vec![say("a", "hello")]],
            false,
            &json!({"joinStrategy": "ALL_COMPLETED"}),
        );
        child["id"] = json!("child");
        child["nodes"][0] = node("start", "START", json!({}));
        child
    };
    let calls = line("child", &[say("bad", "boom"), sharing("deeper")]);
    let mut calls = [calls, line("deeper", &[say("d", "hello")])];
    calls[0]["nodes"][2] = node(
        "deeper",
        "SUBGRAPH",
        json!({"subgraphId": "deeper", "conversation": "fork"}),
    );
    let sub = workflow(
        "sub",
        &[
            node("s", "START_FROM_TRIGGER", json!({})),
            wait("x", 10),
            node("c", "CONTINUE_FROM_TRIGGER", json!({})),
        ],
        &["s>x>c"],
    );
    let triggers = json!([{"id": "t", "type": "EVENT", "condition": {"eventType": "NODE_STARTED"},
        "action": {"type": "EXECUTE_TRIGGERED_SUBGRAPH", "parameters": {"triggeredWorkflowId": "sub", "waitForCompletion": false}}}]);
    let main = |nodes: &[Value]| line("main", nodes);
    let cases = [
        vec![
            main(&[sharing("call")]),
            calls[0].clone(),
            calls[1].clone(),
            sub.clone(),
        ],
        vec![
            main(&[sharing("call"), say("say", "hello"), say("bad", "boom")]),
            line("child", &[code("x", "return 1")]),
            sub.clone(),
        ],
    ];
    for workflows in cases {
        in_many_orders(&workflows, &triggers, |ran| {
            assert_eq!(ran.code(), "ACTOR_PANICKED", "{:?}", ran.report.error);
            for firing in &ran.report.firings {
                let ended = firing.status.is_some_and(ThreadStatus::is_final);
                assert!(ended || firing.error.is_some(), "{firing:?}");
            }
        });
    }
    // A branch has a private conversation: a panic in it ends the branch, and the join decides.
    in_many_orders(&[main(&[sharing("call")]), fork, sub], &triggers, |ran| {
        assert_eq!(ran.report.status, ThreadStatus::Failed);
        assert_eq!(ran.path_end("p0"), Some(ThreadStatus::Failed));
    });
}

#[test]
fn a_branch_that_loses_its_conversation_fails_alone() {
    let workflows = [
        forked(
            &[
                vec![sharing("call"), wait("rest", 1_000)],
                vec![wait("w", 10), code("b", "return 2")],
            ],
            false,
            &json!({"joinStrategy": "ANY_COMPLETED"}),
        ),
        line("child", &[say("bad", "boom")]),
    ];
    in_many_orders(&workflows, &json!([]), |ran| {
        assert_eq!(ran.code(), "");
        assert_eq!(ran.path_end("p0"), Some(ThreadStatus::Failed));
        assert_eq!(ran.path_end("p1"), Some(ThreadStatus::Completed));
    });
}

#[test]
fn a_triggered_sub_workflow_that_loses_its_conversation_fails_alone() {
    let sub = workflow(
        "sub",
        &[
            node("s", "START_FROM_TRIGGER", json!({})),
            sharing("call"),
            node(
                "c",
                "CONTINUE_FROM_TRIGGER",
                json!({"conversationHistoryCallback": {"lastN": 1}}),
            ),
        ],
        &["s>call>c"],
    );
    let workflows = [
        line("main", &[code("a", "return 1"), say("say", "hello")]),
        line("child", &[say("bad", "boom")]),
        sub,
    ];
    let triggers = json!([{"id": "t", "type": "EVENT", "workflowId": "main",
        "condition": {"eventType": "NODE_COMPLETED", "expression": "event.nodeId === 'a'"},
        "action": {"type": "EXECUTE_TRIGGERED_SUBGRAPH", "parameters": {"triggeredWorkflowId": "sub"}}}]);
    in_many_orders(&workflows, &triggers, |ran| {
        assert_eq!(ran.code(), "");
        assert_eq!(ran.visible(), ["hello"]);
        assert_eq!(ran.of(EventType::TriggeredSubgraphFailed).len(), 1);
    });
}
