//! Budgets through an engine: calls that are made, calls that are refused, and faults reported before a run starts.

use std::sync::{Arc, Mutex};

use futures::FutureExt;
use futures::future::BoxFuture;
use pirn::{BuildError, Engine, EventType, Model, ModelCall, ModelReply, RunError, ThreadStatus, TokenUsage};
use pirn_tests::wire::{Answer, Server};
use pirn_tests::world::{Ran, line, node, run_in, workflow};
use serde_json::{Value, json};

use crate::models::{asking, engine, profile};

/// Answers after a second and counts its concurrent calls.
#[derive(Clone, Default)]
struct Slow(Arc<Mutex<(usize, usize)>>);

impl Slow {
    fn at_once(&self) -> usize {
        self.0.lock().expect("no panic").1
    }
}

impl Model for Slow {
    fn call(&self, call: ModelCall) -> BoxFuture<'static, Result<ModelReply, RunError>> {
        let slow = self.clone();
        async move {
            {
                let mut calls = slow.0.lock().expect("no panic");
                calls.0 += 1;
                calls.1 = calls.1.max(calls.0);
            }
            call.clock.sleep(1_000).await;
            slow.0.lock().expect("no panic").0 -= 1;
            Ok(ModelReply {
                content: "yes".to_owned(),
                usage: TokenUsage::new(10, 20, 30),
                ..ModelReply::default()
            })
        }
        .boxed()
    }
}

fn asks(id: &str) -> Value {
    node(
        id,
        "LLM",
        json!({"profileId": "slow", "prompt": "hi", "parameters": {"maxTokens": 400}}),
    )
}

/// Three branches with one model call each.
fn forked(budget: &Value) -> Value {
    let paths = json!(["a", "b", "c"]);
    let mut nodes = vec![
        node("s", "START", json!({})),
        node("e", "END", json!({})),
        node("fork", "FORK", json!({"forkPathIds": paths, "childNodeIds": paths})),
        node(
            "join",
            "JOIN",
            json!({"forkPathIds": paths, "joinStrategy": "ALL_COMPLETED"}),
        ),
    ];
    nodes.extend(["a", "b", "c"].map(asks));
    let edges = ["s>fork", "fork>a>join", "fork>b>join", "fork>c>join", "join>e"];
    let mut main = workflow("main", &nodes, &edges);
    main["config"] = json!({ "budget": budget });
    main
}

fn play(main: &Value, slow: &Slow) -> Ran {
    let builder = Engine::builder()
        .virtual_time(Some(7))
        .model("slow", Arc::new(slow.clone()));
    run_in(builder, &json!({"workflows": [main]}), Value::Null, Vec::new())
}

#[test]
fn branches_make_as_many_concurrent_calls_as_the_budget_allows() {
    for (tokens, at_once) in [(500, 1), (900, 2), (5_000, 3)] {
        let slow = Slow::default();
        let ran = play(&forked(&json!({ "tokens": tokens })), &slow);
        assert_eq!(ran.report.status, ThreadStatus::Completed, "{:?}", ran.report.error);
        assert_eq!(slow.at_once(), at_once, "{tokens}");
        let told = serde_json::to_value(&ran.report.budget).expect("JSON");
        assert_eq!(told, json!({"tokens": {"limit": tokens, "used": 90}}));
    }
}

#[test]
fn each_path_has_a_separate_budget() {
    let slow = Slow::default();
    let ran = play(&forked(&json!({"perPath": {"tokens": 100}})), &slow);
    assert_eq!(slow.at_once(), 0, "no call is made");
    let failed = ran.of(EventType::NodeFailed);
    let error = &failed[0].raised.fields["error"];
    assert_eq!(error["code"], "TOKEN_BUDGET_EXCEEDED", "{error}");
    assert_eq!(
        (&error["details"]["budgetOf"], &error["details"]["budgetOfPath"]),
        (&json!("main"), &error["pathId"])
    );
}

#[test]
fn a_called_workflow_draws_on_two_budgets_its_callers_and_one_per_call() {
    let called = |budget: Value| {
        let mut called = line("called", &[asks("ask")]);
        called["config"] = json!({ "budget": budget });
        called
    };
    let call = |id: &str| node(id, "SUBGRAPH", json!({"subgraphId": "called"}));
    let mut main = line("main", &[call("one"), call("two"), call("three")]);
    main["config"] = json!({"budget": {"modelCalls": 2}});
    for (own, calls) in [(json!({"modelCalls": 1}), 2), (json!({"tokens": 100}), 0)] {
        let slow = Slow::default();
        let builder = Engine::builder()
            .virtual_time(Some(7))
            .model("slow", Arc::new(slow.clone()));
        let bundle = json!({"workflows": [main, called(own)]});
        let ran = run_in(builder, &bundle, Value::Null, Vec::new());
        assert_eq!(ran.report.status, ThreadStatus::Failed);
        let told = serde_json::to_value(&ran.report.budget).expect("JSON");
        assert_eq!(told, json!({"modelCalls": {"limit": 2, "used": calls}}));
    }
}

#[test]
fn the_second_request_for_structured_output_is_reserved_with_the_first() {
    let answers = || Server::answering([Answer::saying(&["{\"n\": 0}"]), Answer::saying(&["{\"n\": 1}"])]);
    let format = json!({"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}, "required": ["n"]});
    for (tokens, requests) in [(700, 0), (2_000, 2)] {
        let server = answers();
        let asks = json!({"prompt": "how many?", "parameters": {"maxTokens": 100}, "responseFormat": format});
        let mut bundle = asking(asks);
        bundle["config"] = json!({"budget": {"tokens": tokens}});
        let ran = run_in(engine([profile(&server, &json!({}))]), &bundle, Value::Null, Vec::new());
        assert_eq!(server.requests().len(), requests, "{:?}", ran.report.error);
        assert!(ran.of(EventType::BudgetOverrun).is_empty());
    }
}

#[test]
fn a_profile_with_injected_faults_retains_its_prices_and_limits() {
    for faults in [json!({}), json!({"models": {"*": {"late": 1.0, "lateMs": [1, 2]}}})] {
        let mut main = line(
            "main",
            &[node("ask", "LLM", json!({"profileId": "dear", "prompt": "hi"}))],
        );
        main["config"] = json!({"budget": {"cost": 0.001}});
        let dear = json!({"id": "dear", "provider": "scripted", "responses": [{"content": "yes"}],
            "parameters": {"maxTokens": 100}, "prices": {"input": 1_000, "output": 1_000}});
        let builder = Engine::builder()
            .virtual_time(Some(7))
            .faults(serde_json::from_value(faults).expect("faults"));
        let bundle = json!({"workflows": [main], "profiles": [dear]});
        let ran = run_in(builder, &bundle, Value::Null, Vec::new());
        let code = ran.report.error.as_ref().map(|error| error.code.as_str());
        assert_eq!(code, Some("TOKEN_BUDGET_EXCEEDED"), "{:?}", ran.report);
    }
}

#[test]
fn unbounded_calls_and_cost_budgets_without_prices_are_faults_of_the_file() {
    let server = Server::answering([]);
    let codes = |more: &Value, budget: &Value| -> Vec<String> {
        let mut main = line("main", &[node("ask", "LLM", json!({"prompt": "hi"}))]);
        main["config"] = json!({ "budget": budget });
        let built = Engine::builder()
            .profiles([profile(&server, more)])
            .workflows(main.to_string())
            .build();
        match built {
            Ok(_) => Vec::new(),
            Err(BuildError::Workflows(faults)) => faults.iter().map(|fault| fault.code.to_string()).collect(),
            Err(other) => panic!("{other}"),
        }
    };
    let (bounded, prices) = (json!({"maxTokens": 100}), json!({"input": 1, "output": 1}));
    let (tokens, cost) = (json!({"tokens": 1_000}), json!({"cost": 1.5}));
    assert_eq!(codes(&json!({}), &tokens), ["BUDGET_WITHOUT_MAXIMUM"]);
    assert_eq!(codes(&json!({}), &json!({"modelCalls": 3})), Vec::<String>::new());
    assert_eq!(codes(&json!({"parameters": bounded}), &tokens), Vec::<String>::new());
    assert_eq!(codes(&json!({"parameters": bounded}), &cost), ["BUDGET_WITHOUT_PRICES"]);
    assert_eq!(
        codes(&json!({"parameters": bounded, "prices": prices}), &cost),
        Vec::<String>::new()
    );
    let wrong = json!({"tokens": 0, "cost": -1.0, "warnAt": 2.0, "perPath": {"modelCalls": 0, "warnAt": 0.0, "perPath": {"tokens": 5}}});
    assert_eq!(
        codes(&json!({"parameters": bounded, "prices": prices}), &wrong),
        ["INVALID_VALUE"; 6]
    );
}
