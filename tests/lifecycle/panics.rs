//! A panic ends the thread that it happens in and no other. The run's report includes the thread's tokens and messages up to
//! the panic.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use pirn::{
    Engine, EventType, FiringOutcome, Model, ModelCall, ModelReply, NodeReport, RunError, ThreadStatus, Tool, ToolSpec,
    WorkClock,
};
use pirn_conversation::conversation::TokenUsage;
use pirn_core::thread::NodeStatus;
use pirn_tests::world::{Ran, Touchy, forked, line, node, run_in, wait, workflow};
use serde_json::{Value, json};

fn played(workflows: &[Value], triggers: &Value, seed: u64) -> Ran {
    let engine = Engine::builder()
        .virtual_time(Some(seed))
        .tokenizer("touchy", Arc::new(Touchy))
        .function("panics", |_| panic!("on purpose"));
    let profiles = json!([{"id": "default", "provider": "echo"}]);
    let bundle = json!({"workflows": workflows, "triggers": triggers, "profiles": profiles});
    run_in(engine, &bundle, Value::Null, Vec::new())
}

fn ask(id: &str, prompt: &str) -> Value {
    node(id, "LLM", json!({ "prompt": prompt }))
}

fn panics() -> Value {
    node("bad", "CODE", json!({"function": "panics"}))
}

fn named(nodes: &[NodeReport]) -> Vec<(&str, NodeStatus, u32)> {
    let nodes = nodes.iter();
    nodes.map(|node| (&*node.node_id, node.status, node.attempts)).collect()
}

fn set(name: &str) -> Value {
    node(
        name,
        "VARIABLE",
        json!({"variableName": name, "expression": "'it was set'"}),
    )
}

/// The tokens that these nodes cost in a run without a panic.
fn cost_of(asked: &[Value]) -> TokenUsage {
    let ran = played(&[line("main", asked)], &json!([]), 1);
    assert_eq!(ran.code(), "");
    assert!(ran.report.tokens.spent != TokenUsage::default());
    ran.report.tokens.spent
}

#[test]
fn a_run_that_panics_reports_its_tokens_and_messages_up_to_the_panic() {
    let asked = [ask("ask", "hello there")];
    let cost = cost_of(&asked);
    // The panic happens in the first turn after a wait for the model, and after a wait for a timer.
    for more in [Vec::new(), vec![wait("w", 10)]] {
        let mut nodes = vec![set("kept"), asked[0].clone()];
        nodes.extend(more.iter().cloned());
        nodes.push(panics());
        let ran = played(&[line("main", &nodes)], &json!([]), 1);
        let report = &ran.report;
        assert_eq!((report.status, ran.code()), (ThreadStatus::Failed, "ACTOR_PANICKED"));
        assert_eq!(report.tokens.spent, cost);
        let mut expected = vec![
            ("start", NodeStatus::Completed, 1),
            ("kept", NodeStatus::Completed, 1),
            ("ask", NodeStatus::Completed, 1),
        ];
        expected.extend(more.iter().map(|_| ("w", NodeStatus::Completed, 1)));
        expected.push(("bad", NodeStatus::Failed, 1));
        assert_eq!(named(&report.nodes), expected);
        let said: Vec<&str> = report
            .conversation
            .messages
            .iter()
            .map(|m| m.content.as_str())
            .collect();
        assert_eq!(said, ["hello there", "hello there"]);
        assert!(report.tokens.context > 0);
        assert_eq!(report.variables["kept"], "it was set");
        let error = report.error.as_ref().expect("it failed");
        assert_eq!(error.node_id.as_deref(), Some("bad"), "the error names its node");
        assert_eq!(error.thread_id.as_deref(), Some(&*report.thread_id));
        assert!(error.message.contains("on purpose"), "{error:?}");
        let shown = json!(report);
        assert_eq!(shown["tokens"]["spent"], json!(cost));
        assert_eq!(
            shown["nodes"][2],
            json!({"nodeId": "ask", "status": "COMPLETED", "attempts": 1, "finishReason": "stop"})
        );
        assert_eq!(shown["conversation"]["messages"][1]["role"], "assistant");
    }
}

#[test]
fn a_run_that_panics_in_its_first_turn_reports_its_nodes() {
    let ran = played(&[line("main", &[set("kept"), panics()])], &json!([]), 1);
    assert_eq!(ran.nodes(), ["start", "kept", "bad"]);
    assert_eq!(ran.report.variables["kept"], "it was set");
}

#[test]
fn tokens_spent_by_a_panicked_branch_or_child_count_for_the_run() {
    let asked = [ask("ask", "hello there")];
    let cost = cost_of(&asked);
    let broken = vec![asked[0].clone(), panics()];
    let called = node(
        "call",
        "SUBGRAPH",
        json!({"subgraphId": "child", "conversation": "none"}),
    );
    let cases = [
        vec![forked(
            &[broken.clone(), vec![wait("w", 1_000)]],
            false,
            &json!({"joinStrategy": "ANY_COMPLETED"}),
        )],
        vec![forked(
            &[broken.clone(), vec![wait("w", 1_000)]],
            false,
            &json!({"joinStrategy": "ALL_COMPLETED"}),
        )],
        vec![line("main", &[called]), line("child", &broken)],
    ];
    for workflows in cases {
        for seed in 0..10 {
            let ran = played(&workflows, &json!([]), seed);
            assert_eq!(ran.report.tokens.spent, cost, "{:?}", ran.report);
        }
    }
}

#[test]
fn a_panicked_triggered_sub_workflow_reports_its_nodes_and_tokens() {
    let asked = ask("ask", "hello there");
    let cost = cost_of(std::slice::from_ref(&asked));
    let sub = workflow(
        "sub",
        &[
            node("s", "START_FROM_TRIGGER", json!({})),
            asked,
            panics(),
            node("c", "CONTINUE_FROM_TRIGGER", json!({})),
        ],
        &["s>ask>bad>c"],
    );
    let triggers = json!([{"id": "t", "type": "EVENT", "workflowId": "main",
        "condition": {"eventType": "NODE_COMPLETED", "expression": "event.nodeId === 'kept'"},
        "action": {"type": "EXECUTE_TRIGGERED_SUBGRAPH", "parameters": {"triggeredWorkflowId": "sub"}}}]);
    let ran = played(&[line("main", &[set("kept"), wait("w", 10)]), sub], &triggers, 1);
    assert_eq!(ran.code(), "", "the main thread goes on");
    assert_eq!(ran.report.tokens.spent, cost);
    let firing = &ran.report.firings[0];
    assert_eq!(firing.status, Some(ThreadStatus::Failed));
    assert_eq!(
        named(&firing.nodes),
        [
            ("s", NodeStatus::Completed, 1),
            ("ask", NodeStatus::Completed, 1),
            ("bad", NodeStatus::Failed, 1)
        ]
    );
}

#[test]
fn a_panicked_conversation_retains_its_earlier_messages() {
    let sharing = node(
        "call",
        "SUBGRAPH",
        json!({"subgraphId": "child", "conversation": "share"}),
    );
    let bad = |id: &str| ask(id, "boom");
    let cases = [
        ("its own", vec![line("main", &[ask("a", "one"), bad("b")])]),
        (
            "shared, in a child's hands",
            vec![
                line("main", &[ask("a", "one"), sharing.clone()]),
                line("child", &[bad("b"), wait("w", 10)]),
            ],
        ),
        (
            "shared, in its own hands",
            vec![
                line("main", &[sharing, bad("b")]),
                line("child", &[ask("a", "one"), wait("w", 10)]),
            ],
        ),
    ];
    for (name, mut workflows) in cases {
        for workflow in &mut workflows {
            workflow["config"]["tokenizer"] = json!("touchy");
        }
        for seed in 0..10 {
            let ran = played(&workflows, &json!([]), seed);
            assert_eq!(ran.code(), "ACTOR_PANICKED", "{name}");
            assert_eq!(ran.visible(), ["one", "one"], "{name}");
            assert!(ran.report.tokens.context > 0, "{name}");
            assert!(ran.report.tokens.spent != TokenUsage::default(), "{name}");
        }
    }
}

#[test]
fn tokens_spent_by_a_child_count_if_its_parent_ends_at_that_instant() {
    let asked = ask("ask", "hello there");
    let cost = cost_of(std::slice::from_ref(&asked));
    let call = node(
        "call",
        "SUBGRAPH",
        json!({"subgraphId": "child", "conversation": "none"}),
    );
    let mut timed = call.clone();
    timed["timeoutMs"] = json!(10);
    let until_ten = [asked, wait("w", 10)];
    let child = line("child", &until_ten);
    let cases = [
        ("called", vec![line("main", &[call]), child.clone()], 10),
        ("called, timed", vec![line("main", &[timed]), child], 1_000),
        (
            "forked",
            vec![forked(
                &[until_ten.to_vec()],
                false,
                &json!({"joinStrategy": "ALL_COMPLETED"}),
            )],
            10,
        ),
    ];
    for (name, mut workflows, limit) in cases {
        workflows[0]["config"] = json!({"timeoutMs": limit});
        for seed in 0..60 {
            let ran = played(&workflows, &json!([]), seed);
            assert_eq!(ran.report.tokens.spent, cost, "{name}, seed {seed}: {:?}", ran.report);
        }
    }
}

#[test]
fn a_triggered_workflow_merged_before_a_panic_is_reported_as_completed() {
    let sub = workflow(
        "sub",
        &[
            node("from", "START_FROM_TRIGGER", json!({})),
            set("kept"),
            node(
                "say",
                "CONTEXT_PROCESSOR",
                json!({"operation": "insert", "messages": [{"role": "user", "content": "from the sub-workflow"}]}),
            ),
            node(
                "to",
                "CONTINUE_FROM_TRIGGER",
                json!({"variableCallback": {"includeAll": true},
                    "conversationHistoryCallback": {"lastN": 1, "mode": "append"}}),
            ),
        ],
        &["from>kept>say>to"],
    );
    let trigger = json!({"id": "t", "type": "EVENT",
        "condition": {"eventType": "THREAD_FORK_STARTED"},
        "action": {"type": "EXECUTE_TRIGGERED_SUBGRAPH",
            "parameters": {"triggeredWorkflowId": "sub", "waitForCompletion": false}}});
    // The main thread waits at its JOIN and runs into the panic in the next turn.
    let mut main = forked(
        &[vec![wait("short", 10)], vec![wait("long", 200)]],
        false,
        &json!({"joinStrategy": "ALL_COMPLETED"}),
    );
    if let Some(nodes) = main["nodes"].as_array_mut() {
        nodes.push(panics());
    }
    for edge in main["edges"].as_array_mut().into_iter().flatten() {
        if edge["to"] == "end" {
            edge["to"] = json!("bad");
        }
    }
    if let Some(edges) = main["edges"].as_array_mut() {
        edges.push(json!({"from": "bad", "to": "end"}));
    }
    for arbiters in [1, 2] {
        let engine = Engine::builder()
            .arbiters(arbiters)
            .function("panics", |_| panic!("on purpose"));
        let bundle = json!({"workflows": [main, sub], "triggers": [trigger]});
        let ran = run_in(engine, &bundle, Value::Null, Vec::new());
        assert_eq!(ran.code(), "ACTOR_PANICKED");
        assert_eq!(ran.visible(), ["from the sub-workflow"]);
        assert_eq!(ran.report.variables["kept"], "it was set");
        let outcome = (ran.report.firings[0].outcome, &ran.report.firings[0].error);
        assert_eq!(outcome, (FiringOutcome::Completed, &None), "one run, one truth");
        assert_eq!(ran.of(EventType::TriggeredSubgraphCompleted).len(), 1);
        assert_eq!(ran.of(EventType::TriggeredSubgraphFailed).len(), 0);
    }
}

/// Time passes during a turn: effects after the panic have the time of the turn's start, in the run and in its rebuild.
#[test]
fn a_run_with_a_slow_panic_is_rebuilt_identically() {
    let late = |_: &pirn::Input<'_>| {
        let (_open, never) = std::sync::mpsc::channel::<()>();
        assert!(never.recv_timeout(std::time::Duration::from_millis(20)).is_err());
        panic!("on purpose")
    };
    let branches = [vec![panics()], vec![wait("short", 1)]];
    let main = forked(&branches, false, &json!({"joinStrategy": "ALL_COMPLETED"}));
    let engine = Engine::builder().arbiters(1).function("panics", late);
    let ran = run_in(engine, &main, Value::Null, Vec::new());
    assert_eq!(ran.report.status, ThreadStatus::Failed);
}

/// A model and a tool that panic in a call before its future exists.
struct Abrupt {
    in_is_external: bool,
}

impl Abrupt {
    fn is_external(&self) -> bool {
        assert!(!self.in_is_external, "on purpose");
        false
    }
}

impl Model for Abrupt {
    fn call(&self, _: ModelCall) -> BoxFuture<'static, Result<ModelReply, RunError>> {
        panic!("on purpose")
    }

    fn is_external(&self) -> bool {
        self.is_external()
    }
}

impl Tool for Abrupt {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "abrupt".into(),
            description: "Panics".into(),
            parameters: json!({"type": "object"}),
        }
    }

    fn call(&self, _: Value, _: WorkClock) -> BoxFuture<'static, Result<String, String>> {
        panic!("on purpose")
    }

    fn is_external(&self) -> bool {
        self.is_external()
    }
}

#[test]
fn a_panic_before_a_call_has_a_future_fails_the_call_and_its_error_path_applies() {
    let calls = [
        node("bad", "LLM", json!({"profileId": "abrupt", "prompt": "Hello"})),
        node("bad", "CODE", json!({"function": "abrupt"})),
        node("bad", "TOOL", json!({"tool": "abrupt"})),
    ];
    for (call, in_is_external, is_durable) in calls.iter().flat_map(|call| {
        [
            (call, false, false),
            (call, false, true),
            (call, true, false),
            (call, true, true),
        ]
    }) {
        let mut call = call.clone();
        call["onError"] = json!({"targetNodeId": "end"});
        let engine = Engine::builder()
            .arbiters(1)
            .model("abrupt", Arc::new(Abrupt { in_is_external }))
            .tool(Arc::new(Abrupt { in_is_external }))
            .async_function("abrupt", |input: Value| {
                assert!(!input.is_null(), "on purpose");
                async { Ok(Value::Null) }
            })
            .workflows(line("main", &[call.clone()]).to_string());
        let engine = if is_durable {
            engine.store(pirn::store::MemoryStore::new())
        } else {
            engine
        };
        let engine = engine.build().expect("valid");
        let report = engine.start("main", Value::Null).expect("admitted").outcome_blocking();
        let case = format!("{call}, in is_external: {in_is_external}, durable: {is_durable}");
        assert_eq!(report.status, ThreadStatus::Completed, "{case}: {:?}", report.error);
        let shown = json!(report).to_string();
        assert!(shown.contains("on purpose"), "{case}: {shown}");
        engine.shutdown_blocking(Duration::from_secs(5));
    }
}
