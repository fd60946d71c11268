//! Model requests and explanations of stored runs.

use std::sync::Arc;

use futures::FutureExt;
use futures::executor::block_on;
use futures::future::BoxFuture;
use pirn::store::MemoryStore;
use pirn::tools::tool_fn;
use pirn::{
    EXPLAIN_LINES, Engine, EngineBuilder, Model, ModelCall, ModelReply, PrefixReason, RunError, RunErrorCode, RunView,
    ToolCall,
};
use pirn_tests::world::{code, forked, line, node};
use serde_json::{Value, json};

const RUN: &str = "run-1";

/// A model that replies with one line, or fails if the prompt is `fail`. If the request has tools, the model calls one of them once.
struct Replies;

impl Model for Replies {
    fn call(&self, call: ModelCall) -> BoxFuture<'static, Result<ModelReply, RunError>> {
        let said = call.request.messages.last().map(|message| message.content.clone());
        let asks = said.as_deref() == Some("look");
        let reply = if said.as_deref() == Some("fail") {
            Err(RunError::new(RunErrorCode::ModelError, "no words are left"))
        } else {
            Ok(ModelReply {
                content: "a reply of some words".to_owned(),
                tool_calls: asks
                    .then(|| ToolCall {
                        id: "call-1".to_owned(),
                        name: "look".to_owned(),
                        arguments: json!({}),
                    })
                    .into_iter()
                    .collect(),
                ..ModelReply::default()
            })
        };
        std::future::ready(reply).boxed()
    }
}

fn engine(workflow: &Value) -> EngineBuilder {
    let profile = |id: &str, model: &str| {
        let profile = json!({"id": id, "provider": "replies", "model": model,
            "parameters": {"maxTokens": 9, "apiKey": "sk-canary"}});
        serde_json::from_value(profile).expect("a profile")
    };
    let look = tool_fn("look", "looks", json!({"type": "object"}), |_: Value| {
        std::future::ready(Ok::<_, String>("seen".to_owned()))
    });
    Engine::builder()
        .virtual_time(None)
        .store(MemoryStore::new())
        .workflows(workflow.to_string())
        .tool(look)
        .function("broken", |_| Err("the card was declined".to_owned()))
        .model("replies", Arc::new(Replies))
        .profiles([profile("one", "model-1"), profile("two", "model-2")])
}

/// Runs a workflow to its end.
fn run(engine: &Engine, workflow: &Value) -> RunView {
    let id = workflow["id"].as_str().expect("an id");
    let run = engine
        .run(id)
        .run_id(RUN)
        .input(json!({"amount": 7}))
        .start()
        .expect("starts");
    run.outcome_blocking();
    run.wait_all_ended_blocking();
    block_on(engine.view(RUN, None)).expect("is read")
}

fn ask(id: &str, config: Value) -> Value {
    let mut all = json!({"prompt": format!("question {id}"), "profileId": "one"});
    let Value::Object(fields) = config else {
        panic!("not an object: {config}");
    };
    for (name, value) in fields {
        all[name] = value;
    }
    node(id, "LLM", all)
}

#[test]
fn a_request_states_why_the_prefix_of_the_previous_one_ended() {
    let compress = json!({"operation": "compress", "strategy": "keep_recent", "parameters": {"count": 1}});
    let replace = json!({"operation": "replace", "target": {"lastN": 2}, "replacement": "other"});
    let nodes = [
        ask("first", json!({})),
        ask("second", json!({})),
        node("compress", "CONTEXT_PROCESSOR", compress),
        ask("compressed", json!({})),
        node("replace", "CONTEXT_PROCESSOR", replace),
        ask("replaced", json!({})),
        ask("other", json!({"profileId": "two"})),
        ask(
            "tools",
            json!({"profileId": "two", "tools": ["look"], "prompt": "look"}),
        ),
        ask(
            "format",
            json!({"profileId": "two", "tools": ["look"], "responseFormat": {"type": "json_object"}}),
        ),
    ];
    let workflow = line("main", &nodes);
    let engine = engine(&workflow).build().expect("builds");
    let view = run(&engine, &workflow);
    let mut reasons: Vec<(String, Option<PrefixReason>)> = Vec::new();
    let mut previous: Option<String> = None;
    for request in &view.requests {
        let shown = block_on(engine.model_request(RUN, &request.effect_id)).expect("is read");
        assert_eq!(shown.summary, *request);
        assert_eq!(shown.prefix.as_ref().map(|prefix| &prefix.previous), previous.as_ref());
        previous = Some(request.effect_id.clone());
        let reason = shown.prefix.and_then(|prefix| prefix.comparison.reason);
        reasons.push((request.node_id.to_string(), reason));
    }
    let reasons: Vec<(&str, Option<PrefixReason>)> = reasons.iter().map(|(id, reason)| (&**id, *reason)).collect();
    let expected = [
        ("first", None),
        ("second", None),
        ("compressed", Some(PrefixReason::Compression)),
        ("replaced", Some(PrefixReason::History)),
        ("other", Some(PrefixReason::Profile)),
        ("tools", Some(PrefixReason::Tools)),
        // The request after the result of the tool.
        ("tools", None),
        ("format", Some(PrefixReason::ResponseFormat)),
    ];
    assert_eq!(reasons[..expected.len()], expected);
}

#[test]
fn a_request_contains_no_key() {
    let workflow = line("main", &[ask("first", json!({}))]);
    let engine = engine(&workflow).build().expect("builds");
    let view = run(&engine, &workflow);
    let request = block_on(engine.model_request(RUN, &view.requests[0].effect_id)).expect("is read");
    assert_eq!(
        json!(request.request.parameters),
        json!({"maxTokens": 9, "apiKey": "***"})
    );
    assert_eq!(request.summary.model.as_deref(), Some("model-1"));
    assert_eq!(
        request.response.expect("a reply").message.content,
        "a reply of some words"
    );
    for unknown in ["run-1.0.999", "run-1.0.07", "run-2.0.1", "nothing"] {
        let error = block_on(engine.model_request(RUN, unknown)).expect_err("there is none");
        assert_eq!(error.code(), "NO_SUCH_REQUEST", "{unknown}");
    }
}

#[test]
fn an_explanation_names_the_failed_node_of_the_branch_that_made_a_join_impossible() {
    let broken = node("charge", "CODE", json!({"function": "broken"}));
    let branches = [vec![code("fine", "return 1")], vec![broken]];
    let mut workflow = forked(&branches, false, &json!({"joinStrategy": "ALL_COMPLETED"}));
    workflow["id"] = json!("main");
    let engine = engine(&workflow).build().expect("builds");
    let text = run(&engine, &workflow).explain();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("run-1 of main: FAILED after step "), "{text}");
    assert!(
        lines[1].starts_with("Cause: node charge of thread run-1.2, path p1: "),
        "{text}"
    );
    assert!(
        lines[1].contains("the card was declined; the run failed at node join with JOIN_CONDITION_NOT_MET."),
        "{text}"
    );
    let failing = lines
        .iter()
        .position(|line| line.starts_with("Failing node: charge (CODE) of thread run-1.2"));
    let failing = failing.unwrap_or_else(|| panic!("{text}"));
    assert!(lines[failing + 1].starts_with("  input: "), "{text}");
    assert!(text.contains("\n  fork COMPLETED"), "{text}");
    assert!(text.contains("\nOther threads: 2\n"), "{text}");
}

#[test]
fn an_explanation_shows_the_last_message_of_a_failed_model_call() {
    let workflow = line(
        "main",
        &[ask("first", json!({})), ask("second", json!({"prompt": "fail"}))],
    );
    let engine = engine(&workflow).build().expect("builds");
    let text = run(&engine, &workflow).explain();
    assert!(text.contains("\nCause: node second: MODEL_ERROR: "), "{text}");
    assert!(
        text.contains("\nFailing node: second (LLM) of thread run-1.0"),
        "{text}"
    );
    assert!(text.contains("\n  input: \"fail\" (last user message of "), "{text}");
    assert!(
        text.contains("\nCost: 2 model calls (1 failed or cancelled), "),
        "{text}"
    );
}

#[test]
fn an_explanation_of_a_long_run_has_a_limited_number_of_lines() {
    let nodes: Vec<Value> = (0..150).map(|number| ask(&format!("n{number}"), json!({}))).collect();
    let mut long = line("main", &nodes);
    long["nodes"][3]["config"]["prompt"] = json!("a\nb\n".repeat(500));
    let engine = engine(&long).build().expect("builds");
    let text = run(&engine, &long).explain();
    assert!(text.lines().count() <= EXPLAIN_LINES, "{text}");
    assert!(text.contains("more nodes"), "{text}");
    assert!(
        text.contains("Cause: the main thread reached its end at node end."),
        "{text}"
    );
    assert!(text.lines().all(|line| line.chars().count() <= 410), "{text}");
}

#[test]
fn an_explanation_names_the_agents_of_a_script_by_their_labels() {
    let code = "await agent('say this', { label: 'first view' }); return await agent('say that')";
    let workflow = line("main", &[node("plan", "SCRIPT", json!({"code": code}))]);
    let engine = engine(&workflow).build().expect("builds");
    let text = run(&engine, &workflow).explain();
    let threads: Vec<&str> = text.lines().skip_while(|line| *line != "Other threads: 2").collect();
    assert_eq!(threads.len(), 3, "{text}");
    assert!(
        threads[1].starts_with("  run-1.1 subgraph of plan labelled first view: COMPLETED"),
        "{text}"
    );
    assert!(
        threads[2].starts_with("  run-1.2 subgraph of plan: COMPLETED"),
        "{text}"
    );
}

#[test]
fn an_explanation_of_a_waiting_run_names_its_question() {
    let question = node("sure", "USER_INTERACTION", json!({"question": "Really?"}));
    let workflow = line("main", &[question]);
    let engine = engine(&workflow).build().expect("builds");
    let run = engine.run("main").run_id(RUN).start().expect("starts");
    engine.wait_idle();
    block_on(run.wait_durable()).expect("is durable");
    let view = block_on(engine.view(RUN, None)).expect("is read");
    let text = view.explain();
    assert!(
        text.contains("\nCause: it waits for a person's answer at node sure.\n"),
        "{text}"
    );
    let id = &view.interactions[0].id;
    assert!(
        text.contains(&format!("\nQuestion: {id} of node sure: Really?\n")),
        "{text}"
    );
    assert!(text.starts_with("run-1 of main: WAITING after step "), "{text}");
    run.cancel("enough");
    run.outcome_blocking();
    engine.wait_idle();
    let text = block_on(engine.view(RUN, None)).expect("is read").explain();
    assert!(text.starts_with("run-1 of main: CANCELLED after step "), "{text}");
    assert!(text.contains("enough"), "{text}");
}
