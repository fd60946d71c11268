//! Limits of submitted workflows on everything that starts in them and below.

use std::sync::{Arc, Mutex};

use futures::FutureExt;
use futures::future::BoxFuture;
use pirn::{Engine, EngineBuilder, EventType, Model, ModelCall, ModelReply, Role, RunError, ToolCall};
use pirn_tests::world::{Ran, line, node, run_in};
use serde_json::{Value, json};

use crate::scripts::Echo;

/// A model that makes its calls in one reply, and replies `called` to their results.
struct Caller {
    calls: Vec<(&'static str, Value)>,
    made: Mutex<usize>,
}

impl Caller {
    fn of(calls: impl IntoIterator<Item = (&'static str, Value)>) -> Arc<Self> {
        Arc::new(Self {
            calls: calls.into_iter().collect(),
            made: Mutex::default(),
        })
    }
}

impl Model for Caller {
    fn call(&self, call: ModelCall) -> BoxFuture<'static, Result<ModelReply, RunError>> {
        let has_results = call.request.messages.last().is_some_and(|last| last.role == Role::Tool);
        let mut made = self.made.lock().expect("no panic");
        let mut tool_call = |(name, arguments): &(&str, Value)| {
            *made += 1;
            ToolCall {
                id: format!("c{made}"),
                name: (*name).to_owned(),
                arguments: arguments.clone(),
            }
        };
        let reply = ModelReply {
            content: "called".to_owned(),
            tool_calls: if has_results {
                Vec::new()
            } else {
                self.calls.iter().map(&mut tool_call).collect()
            },
            ..ModelReply::default()
        };
        std::future::ready(Ok(reply)).boxed()
    }
}

/// An engine with the model `default`, which counts its calls, and models that call workflows, submit a script and run code.
fn engine(echo: &Echo) -> EngineBuilder {
    let code = "const all = []
        for (let n = 0; n < 10; n++) { try { await tools.helper({}) } catch (error) { all.push(error.message) } }
        return all";
    let agents = "for (let n = 0; n < 10; n++) await agent('a' + n)";
    Engine::builder()
        .virtual_time(Some(7))
        .model("default", Arc::new(echo.clone()))
        .model("calls", Caller::of([("helper", json!({})), ("helper", json!({}))]))
        .model("calls_slow", Caller::of((0..6).map(|_| ("slow", json!({})))))
        .model("submits", Caller::of([("run_workflow", json!({"script": agents}))]))
        .model("codes", Caller::of([("run_code", json!({"code": code}))]))
}

/// Submits a workflow under these limits. Returns the result of the call, the prompts of the model `default`, and the run.
fn submitted(submission: &Value, limits: &Value) -> (String, Vec<String>, Ran) {
    let llm = |prompt: &str| node("say", "LLM", json!({"profileId": "default", "prompt": prompt}));
    let repeated = |inner: Value| {
        let start = json!({"loopId": "l", "dataSource": {"iterable": 10, "variableName": "n"}});
        [
            node("l", "LOOP_START", start),
            inner,
            node("r", "LOOP_END", json!({"loopId": "l"})),
        ]
    };
    let tick = node("tick", "CODE", json!({"code": "return 1"}));
    let own = json!({"profileId": "submits", "prompt": "p", "tools": ["run_workflow"],
        "dynamic": {"profiles": ["default"], "consent": "auto"}});
    let slow_map = json!({"items": "[1, 2, 3, 4, 5, 6, 7, 8]", "subgraphId": "slow"});
    let slow_script = "return await parallel(Array.from({ length: 8 }, () => () => workflow('slow')))";
    let names = [
        "helper",
        "loops",
        "submits",
        "starts",
        "slow",
        "slow_map",
        "slow_script",
    ];
    let tools: Vec<String> = names.iter().map(|name| format!("workflow:{name}")).collect();
    let tools: Vec<Value> = ["run_workflow", "run_code"]
        .into_iter()
        .map(Value::from)
        .chain(tools.into_iter().map(Value::from))
        .collect();
    let profiles = ["default", "calls", "calls_slow", "submits", "codes"];
    let main = json!({"profileId": "main", "prompt": "go", "tools": tools,
        "dynamic": {"profiles": profiles, "consent": "auto", "limits": limits}});
    let responses = json!([
        {"toolCalls": [{"id": "m", "name": "run_workflow", "arguments": submission}]},
        {"content": "done"},
    ]);
    let bundle = json!({
        "workflows": [
            line("main", &[node("ask", "LLM", main)]),
            line("helper", &[llm("helps")]),
            line("loops", &repeated(llm("loops"))),
            line("submits", &[node("own", "LLM", own)]),
            line("starts", &repeated(tick)),
            line("slow", &[llm("SLOW 100 ")]),
            line("slow_map", &[node("map", "MAP", slow_map)]),
            line("slow_script", &[node("script", "SCRIPT", json!({"code": slow_script}))]),
        ],
        "triggers": [{
            "id": "ticks", "condition": {"eventType": "NODE_COMPLETED", "expression": "event.nodeId == 'tick'"},
            "action": {"type": "START_WORKFLOW", "parameters": {"workflowId": "helper"}},
        }],
        "profiles": [{"id": "main", "provider": "scripted", "responses": responses}],
    });
    let echo = Echo::default();
    let ran = run_in(engine(&echo), &bundle, Value::Null, Vec::new());
    assert_eq!(ran.report.output["content"], "done", "{:?}", ran.report.error);
    assert!(ran.report.threads.iter().all(|thread| thread.status.is_final()));
    let mut results = ran.report.conversation.messages.iter();
    let result = results.find(|message| message.role == Role::Tool).expect("a result");
    (result.content.as_str().to_owned(), echo.prompts(), ran.clone())
}

fn graph(node: &Value) -> Value {
    json!({"graph": line("own", std::slice::from_ref(node))})
}

#[test]
fn agents_below_a_submitted_workflow_count_for_its_limit_however_they_start() {
    let llm =
        |profile: &str, tools: Value| node("n", "LLM", json!({"prompt": "p", "profileId": profile, "tools": tools}));
    let calls = "const all = []
        for (let n = 0; n < 10; n++) all.push(await agent('call', { profileId: 'calls', tools: ['workflow:helper'] }))
        return all";
    let limit = "dynamic.limits.agents";
    // The submission, the number of calls of the model `default`, and a part of the result.
    let cases = [
        // Two agents of the script call the workflow three times.
        (json!({"script": calls}), 3, limit),
        // The node, and four calls of its script.
        (
            graph(&llm("codes", json!(["run_code", "workflow:helper"]))),
            4,
            "called",
        ),
        // A called workflow and its first agent count together.
        (json!({"script": "return await workflow('helper')"}), 1, "re: helps"),
        (json!({"script": "return await workflow('loops')"}), 5, limit),
        (graph(&node("n", "SUBGRAPH", json!({"subgraphId": "loops"}))), 5, limit),
        (graph(&llm("calls", json!(["workflow:helper"]))), 2, "called"),
        // The called workflow, and four agents of the script that its model submits.
        (json!({"script": "return await workflow('submits')"}), 4, "called"),
        // The called workflow, and four runs of the trigger.
        (json!({"script": "return await workflow('starts')"}), 4, ""),
    ];
    for (submission, expected, part) in cases {
        let (result, prompts, _) = submitted(&submission, &json!({"agents": 5, "depth": 2}));
        assert!(result.contains(part), "{submission}: {result}");
        assert_eq!(prompts.len(), expected, "{submission}: {prompts:?}: {result}");
    }
}

#[test]
fn a_start_of_a_trigger_that_the_limit_does_not_allow_is_a_failed_firing() {
    let (_, _, ran) = submitted(
        &json!({"script": "return await workflow('starts')"}),
        &json!({"agents": 5}),
    );
    let failed = ran.of(EventType::TriggeredSubgraphFailed);
    assert_eq!(failed.len(), 6);
    let error = &failed[0].raised.fields["error"];
    assert_eq!(error["code"], "OVERLOADED");
    let message = error["message"].as_str().expect("a message");
    assert!(
        message.contains("`helper` was not started: `dynamic.limits.agents`"),
        "{message}"
    );
}

#[test]
fn a_workflow_that_a_submitted_one_calls_submits_no_further_one_beyond_the_depth() {
    let submission = json!({"script": "return await workflow('submits')"});
    let (_, prompts, ran) = submitted(&submission, &json!({}));
    assert_eq!(prompts.len(), 0, "{prompts:?}");
    let failed = ran.of(EventType::ToolCallFailed);
    let result = failed[0].raised.fields["result"].as_str().expect("a text").to_owned();
    assert!(result.contains("`dynamic.limits.depth`"), "{result}");
    let (_, prompts, _) = submitted(&submission, &json!({"depth": 2}));
    assert_eq!(prompts.len(), 10);
}

#[test]
fn the_concurrency_of_a_submitted_workflow_applies_to_everything_below_it() {
    let llm = json!({"prompt": "p", "profileId": "calls_slow", "tools": ["workflow:slow"]});
    let agent = "return await agent('call', { profileId: 'calls_slow', tools: ['workflow:slow'] })";
    let cases = [
        (json!({"script": "return await workflow('slow_map')"}), 8),
        (json!({"script": "return await workflow('slow_script')"}), 8),
        (graph(&node("n", "SUBGRAPH", json!({"subgraphId": "slow_map"}))), 8),
        (graph(&node("n", "LLM", llm)), 6),
        (json!({"script": agent}), 6),
    ];
    for (submission, calls) in cases {
        let (_, prompts, ran) = submitted(&submission, &json!({"concurrency": 2}));
        assert_eq!(prompts.len(), calls, "{submission}");
        assert_eq!(ran.report.elapsed_ms, 50 * calls as u64, "{submission}: two at once");
        let (_, _, ran) = submitted(&submission, &json!({}));
        assert_eq!(ran.report.elapsed_ms, 100, "{submission}: all at once");
    }
}
