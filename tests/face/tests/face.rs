//! An embedding program, with `pirn` as its only dependency.

mod examples;

use std::collections::BTreeMap;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pirn::serde_json::{Value, json};
use pirn::workflow::Code;
use pirn::{
    BuildError, CallContext, CancelOnDrop, Engine, EventFilter, EventType, FaultCode, Message, Model, ModelCall,
    ModelReply, OutputError, Part, PinSection, Pinned, Profile, Role, RunError, RunErrorCode, RunHandle, RunReport,
    SubscriptionItem, ThreadKind, ThreadStatus, Tokenizer, Tool, ToolCall, ToolContext, ToolSpec, TriggerAction,
    TriggerCondition, TriggerDefinition, TriggerState, WorkClock,
};

type Work<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A model that comments on the last message.
struct Critic;

impl Model for Critic {
    fn call(&self, call: ModelCall) -> Work<Result<ModelReply, RunError>> {
        Box::pin(async move {
            call.clock.sleep(250).await;
            let last = call
                .request
                .messages
                .last()
                .ok_or_else(|| RunError::new(RunErrorCode::ModelError, "nothing to read"))?;
            call.tokens.put("Very ");
            call.tokens.put("good.");
            Ok(ModelReply {
                content: format!("Very good: {}", last.content),
                ..ModelReply::default()
            })
        })
    }
}

/// A tool that doubles a number after a delay.
struct Double;

impl Tool for Double {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "double".to_owned(),
            description: "Doubles a number".to_owned(),
            parameters: json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}),
        }
    }

    fn call(&self, arguments: Value, clock: WorkClock) -> Work<Result<String, String>> {
        Box::pin(async move {
            clock.sleep(1_000).await;
            let n = arguments["n"].as_i64().ok_or("n is missing")?;
            Ok((2 * n).to_string())
        })
    }

    fn is_external(&self) -> bool {
        false
    }
}

/// A tokenizer that counts each word as a token.
struct Words;

impl Tokenizer for Words {
    fn name(&self) -> &'static str {
        "words"
    }

    fn count(&self, text: &str) -> u64 {
        text.split_whitespace().count() as u64
    }
}

fn line(nodes: &[Value]) -> String {
    let mut all = vec![json!({"id": "start", "type": "START"})];
    all.extend_from_slice(nodes);
    all.push(json!({"id": "end", "type": "END"}));
    let ids: Vec<&Value> = all.iter().map(|node| &node["id"]).collect();
    let edges: Vec<Value> = ids
        .windows(2)
        .map(|pair| json!({"from": pair[0], "to": pair[1]}))
        .collect();
    json!({"id": "flow", "nodes": all, "edges": edges}).to_string()
}

#[test]
fn a_custom_model_answers_and_streams() {
    let asks = json!({"id": "ask", "type": "LLM", "config": {"profileId": "critic", "prompt": "three small words"}});
    let mut flow: Value = pirn::serde_json::from_str(&line(&[asks])).expect("JSON");
    flow["config"] = json!({"tokenizer": "words"});
    let engine = Engine::builder()
        .model("critic", Arc::new(Critic))
        .tokenizer("words", Arc::new(Words))
        .workflows(flow.to_string())
        .virtual_time(None)
        .build()
        .expect("valid");
    let mut prepared = engine.run("flow");
    let events = prepared.blocking_events(&[EventType::LlmToken], 10);
    let report: Arc<RunReport> = prepared.start().expect("admitted").outcome_blocking();
    assert_eq!(report.output["content"], "Very good: three small words");
    assert_eq!(report.elapsed_ms, 250);
    engine.shutdown_blocking(Duration::ZERO);
    let pieces: Vec<String> = events
        .map(|heard| match heard {
            SubscriptionItem::Event(event) => event.to_json()["text"].as_str().unwrap_or_default().to_owned(),
            SubscriptionItem::Lagged(count) => format!("missed {count}"),
        })
        .collect();
    assert_eq!(pieces, ["Very ", "good."]);
}

#[test]
fn a_scripted_model_calls_a_custom_tool() {
    let profile = json!({"id": "p", "provider": "scripted",
        "responses": [{"toolCalls": [{"name": "double", "arguments": {"n": 21}}]}, {"content": "done"}]});
    let flow = line(&[json!({"id": "ask", "type": "LLM", "config": {"prompt": "go", "tools": ["double"]}})]);
    let engine = Engine::builder()
        .tool(Arc::new(Double))
        .workflows(format!("{{\"workflows\": [{flow}], \"profiles\": [{profile}]}}"))
        .virtual_time(None)
        .build()
        .expect("valid");
    let report = engine.start("flow", Value::Null).expect("admitted").outcome_blocking();
    let results: Vec<&Message> = report
        .conversation
        .messages
        .iter()
        .filter(|one| one.role == Role::Tool)
        .map(|one| &**one)
        .collect();
    assert_eq!((results.len(), results[0].content.as_str()), (1, "42"));
}

/// A model and tool that reports the workflow, node, run and thread of its call.
struct Whose;

fn whose(context: &CallContext) -> String {
    let node = context.node_id.as_deref().unwrap_or("a trigger");
    let (run, thread) = (&context.run_id, &context.thread_id);
    format!(
        "{} {node} {run} {thread} {}",
        context.workflow_id, context.metadata["tenant"]
    )
}

impl Model for Whose {
    fn call(&self, call: ModelCall) -> Work<Result<ModelReply, RunError>> {
        Box::pin(async move {
            let has_called = call.request.messages.iter().any(|message| message.role == Role::Tool);
            Ok(ModelReply {
                content: whose(&call.context),
                tool_calls: (!has_called)
                    .then(|| ToolCall {
                        id: "c1".to_owned(),
                        name: "whose".to_owned(),
                        arguments: json!({}),
                    })
                    .into_iter()
                    .collect(),
                ..ModelReply::default()
            })
        })
    }
}

impl Tool for Whose {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "whose".to_owned(),
            description: "Says who asks".to_owned(),
            parameters: json!({"type": "object"}),
        }
    }

    fn call(&self, _: Value, _: WorkClock) -> Work<Result<String, String>> {
        Box::pin(async { Err("nobody asks".to_owned()) })
    }

    fn call_in(&self, _: Value, context: ToolContext) -> Work<Result<(String, Vec<Part>), String>> {
        Box::pin(async move {
            let caller = context.caller.ok_or("nobody asks")?;
            Ok((format!("{} {}", whose(&caller), context.call_id), Vec::new()))
        })
    }
}

#[test]
fn models_tools_and_functions_receive_the_context_of_their_run() {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let hear = Arc::clone(&heard);
    let mut flow: Value = line(&[
        json!({"id": "ask", "type": "LLM", "config": {"prompt": "whose?", "tools": ["whose"]}}),
        json!({"id": "quick", "type": "CODE", "config": {"function": "quick"}}),
        json!({"id": "slow", "type": "CODE", "config": {"function": "slow"}}),
        json!({"id": "own", "type": "TOOL", "config": {"tool": "whose"}}),
    ])
    .parse()
    .expect("JSON");
    flow["config"] = json!({});
    flow["triggers"] = json!([{"id": "t", "condition": {"eventType": "NODE_COMPLETED", "expression": "event.nodeId == 'own'"},
        "action": {"type": "CUSTOM", "parameters": {"function": "hear"}}}]);
    let engine = Engine::builder()
        .model("whose", Arc::new(Whose))
        .tool(Arc::new(Whose))
        .function("quick", |input| Ok(json!(whose(&input.context()))))
        .async_function_in("slow", |_, context| async move { Ok(json!(whose(&context))) })
        .function("hear", move |input| {
            hear.lock().expect("nobody panicked").push(whose(&input.context()));
            Ok(Value::Null)
        })
        .workflows(flow.to_string())
        .virtual_time(None)
        .build()
        .expect("valid");
    for tenant in ["acme", "beta"] {
        let run = engine
            .run("flow")
            .metadata([("tenant", tenant)])
            .run_id(format!("of-{tenant}"));
        let run = run.start().expect("admitted");
        let report = run.outcome_blocking();
        run.wait_all_ended_blocking();
        let at = |node: &str| format!("flow {node} of-{tenant} of-{tenant}.0 \"{tenant}\"");
        let said = |role: Role| {
            let all = report.conversation.messages.iter().rev();
            let mut of_role = all.filter(|message| message.role == role);
            of_role.next().map(|message| message.content.clone())
        };
        assert_eq!(said(Role::Assistant), Some(at("ask")), "{:?}", report.error);
        assert_eq!(said(Role::Tool), Some(format!("{} c1", at("ask"))));
        let output = |id: &str| {
            let mut nodes = report.nodes.iter();
            nodes.find(|node| &*node.node_id == id).is_some()
        };
        assert!(output("quick") && output("slow"));
        assert_eq!(heard.lock().expect("nobody panicked").pop(), Some(at("a trigger")));
    }
}

#[test]
fn an_async_function_may_be_any_future_and_its_panic_message_is_reported() {
    async fn slow(input: Value) -> Result<Value, String> {
        assert!(input["n"].is_number(), "n is no number");
        Ok(json!({ "got": input["n"] }))
    }
    let engine = Engine::builder()
        .function("quick", |input| Ok(json!({"n": input["n"]})))
        .async_function("slow", slow)
        .workflows(line(&[
            json!({"id": "a", "type": "CODE", "config": {"function": "quick"}}),
            json!({"id": "b", "type": "CODE", "config": {"function": "slow", "input": "output"}}),
        ]))
        .build()
        .expect("valid");
    let run = |n: Value| {
        engine
            .start("flow", json!({ "n": n }))
            .expect("admitted")
            .outcome_blocking()
    };
    assert_eq!(run(json!(1)).output, json!({"got": 1}));
    let failed = run(json!("one"));
    let error = failed.error.as_ref().expect("it failed");
    assert!(
        error.message.contains("function slow panicked: n is no number"),
        "{error}"
    );
}

#[test]
fn triggers_parse_the_documented_json_and_expose_their_fields() {
    let text = r#"{"id": "stop", "type": "EVENT", "condition": {"eventType": "CUSTOM", "eventName": "enough"},
        "action": {"type": "STOP_THREAD", "parameters": {}}, "maxTriggers": 1}"#;
    let trigger: TriggerDefinition = text.parse().expect("as documented");
    let TriggerCondition {
        event_type, event_name, ..
    } = &trigger.condition;
    assert_eq!(
        (*event_type, event_name.as_deref()),
        (EventType::Custom, Some("enough"))
    );
    assert!(matches!(trigger.action, TriggerAction::StopThread { .. }));
    let state = |_: &TriggerState| ();
    let _ = state;
}

#[test]
fn runs_are_pinned_stopped_by_a_guard_and_by_a_deadline() {
    let engine = Engine::builder()
        .workflows(line(&[
            json!({"id": "wait", "type": "WAIT", "config": {"seconds": 3600}}),
        ]))
        .build()
        .expect("valid");
    let run: RunHandle = engine
        .run("flow")
        .pinned(Pinned::default())
        .conversation(vec![Message::new(Role::User, "hi")])
        .start()
        .expect("admitted");
    run.pin(PinSection::Role, json!("tester"));
    let guard: CancelOnDrop = run.cancel_on_drop("nobody waits");
    drop(guard);
    let report = run.outcome_blocking();
    assert_eq!(report.status, ThreadStatus::Cancelled);
    assert_eq!(report.error.as_ref().map(|error| &*error.message), Some("nobody waits"));
    let kept = engine.start("flow", Value::Null).expect("admitted");
    kept.cancel_on_drop("never").disarm();
    assert!(kept.try_outcome().is_none());
    let late = engine
        .run("flow")
        .deadline(Duration::from_millis(20))
        .start()
        .expect("admitted");
    assert_eq!(late.outcome_blocking().status, ThreadStatus::Timeout);
    assert!(report.threads.iter().all(|thread| thread.kind == ThreadKind::Main));
    engine.shutdown_blocking(Duration::ZERO);
}

/// A price list of the caller, without types of Pirn.
type Prices = BTreeMap<String, Vec<u32>>;

#[test]
fn an_input_is_any_value_and_an_output_any_type() {
    let engine = Engine::builder()
        .workflow(&pirn::workflow("flow", "start", |flow, start| {
            let end = flow.end_with("end", "input");
            flow.edge(start, end);
        }))
        .build()
        .expect("valid");
    let prices: Prices = [("apple".to_owned(), vec![3, 4])].into();
    let report = engine.start("flow", &prices).expect("admitted").outcome_blocking();
    assert_eq!(report.output_as::<Prices>(), Ok(prices));
    let borrowed: BTreeMap<&str, (u8, u8)> = report.output_as().expect("the same");
    assert_eq!(borrowed["apple"], (3, 4));
    let nothing = BTreeMap::from([((1, 2), "keys that are no texts")]);
    let refused = engine.start("flow", nothing).expect_err("JSON has no such maps");
    assert_eq!(refused.code, RunErrorCode::InvalidInput);
}

#[test]
fn an_output_of_the_wrong_type_is_an_error_with_its_location_and_the_expected_type() {
    let engine = Engine::builder()
        .workflow(&pirn::workflow("flow", "start", |flow, start| {
            let end = flow.end_with("end", "input");
            flow.edge(start, end);
        }))
        .workflow(&pirn::workflow("fails", "start", |flow, start| {
            let fails = flow.then(start, "fails", Code::function("fails"));
            let end = flow.end("end");
            flow.edge(fails, end);
        }))
        .function("fails", |_| Err("out of apples".to_owned()))
        .build()
        .expect("valid");
    let outcome = |id: &str, input: Value| engine.start(id, input).expect("admitted").outcome_blocking();
    let report = outcome("flow", json!({"apple": [3, "four"]}));
    let error = report.output_as::<Prices>().expect_err("a text");
    assert_eq!(
        error.to_string(),
        "the run's output at /apple/1: invalid type: string \"four\", expected u32"
    );
    let report = outcome("flow", json!(7));
    let error = report.output_as::<Prices>().expect_err("a number");
    assert_eq!(
        error.to_string(),
        "the run's output: invalid type: integer `7`, expected a map"
    );
    let report = outcome("fails", Value::Null);
    let Err(OutputError::NotCompleted { status, error }) = report.output_as::<Option<u32>>() else {
        panic!("a failed run has no output, and null is none");
    };
    assert_eq!(status, ThreadStatus::Failed);
    assert!(error.expect("it says why").to_string().contains("out of apples"));
}

#[test]
fn files_are_read_by_path_and_every_missing_file_is_named() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let engine = Engine::builder()
        .path(examples.join("tutorial/0-first.json"))
        .build()
        .expect("valid");
    let report = engine.start("first", "Ada").expect("admitted").outcome_blocking();
    assert_eq!(report.output_as(), Ok("Hello, Ada!"));
    let missing = Engine::builder()
        .path("no-such-file.json")
        .path("nor-this.json")
        .build();
    let error = missing.expect_err("they are not there");
    assert!(matches!(&error, BuildError::Files(files) if files.len() == 2));
    let said = error.to_string();
    let lines: Vec<&str> = said.lines().collect();
    assert!(
        lines[0].starts_with("no-such-file.json: ") && lines[1].starts_with("nor-this.json: "),
        "{said}"
    );
}

#[test]
fn faults_that_types_do_not_exclude_are_reported_with_their_location() {
    let twice = pirn::workflow("twice", "start", |flow, start| {
        let one = flow.then(start, "same", Code::function("double"));
        let two = flow.then(one, "same", Code::function("double"));
        let end = flow.end_with("end", "1 +");
        flow.edge(two, end);
    });
    let Err(BuildError::Workflows(faults)) = Engine::builder().workflow(&twice).build() else {
        panic!("two ids and half an expression");
    };
    let told = |code: FaultCode| faults.iter().find(|fault| fault.code == code);
    let same = told(FaultCode::DuplicateNodeId).expect("the id stands twice");
    assert_eq!(
        (&*same.pointer, same.file.as_deref()),
        ("/nodes/2/id", Some("workflow twice"))
    );
    assert!(told(FaultCode::InvalidExpression).is_some(), "{faults:?}");
}

#[test]
fn an_unknown_workflow_is_reported_with_the_nearest_name() {
    let engine = Engine::builder().workflows(line(&[])).build().expect("valid");
    let error = engine.start("flwo", Value::Null).expect_err("there is none");
    assert_eq!(error.code, RunErrorCode::WorkflowNotFound);
    assert_eq!(error.message, "there is no workflow flwo; did you mean flow?");
}

#[test]
fn events_explorations_and_simulations_are_part_of_the_public_api() {
    let profile: Profile = pirn::serde_json::from_value(json!({"id": "p", "provider": "echo"})).expect("a profile");
    let engine = Engine::builder()
        .profiles([profile])
        .workflows(line(&[]))
        .virtual_time(None)
        .build()
        .expect("valid");
    let _events = engine.events(EventFilter::default(), 10);
    let explored = pirn::explore(Engine::builder().workflows(line(&[])))
        .run()
        .expect("valid");
    assert_eq!(explored.outcomes.len(), 1);
    let played = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&played);
    let simulated = pirn::simulate(|| Engine::builder().workflows(line(&[])))
        .seeds(0..3)
        .check(move |_| {
            count.fetch_add(1, Ordering::SeqCst);
            Ok(())
        })
        .run()
        .expect("valid");
    assert!(simulated.failure.is_none());
    assert_eq!(played.load(Ordering::SeqCst), 3);
}

#[test]
fn an_error_with_a_cause_returns_it_as_its_source() {
    let unread =
        pirn::config::ConfigText::read(Path::new("no-such-folder/pirn.toml")).expect_err("there is no such file");
    let cause = std::error::Error::source(&unread).expect("a cause");
    let kind = cause.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
    assert_eq!(kind, Some(std::io::ErrorKind::NotFound));
    // This error displays the wrapped error, so `source` continues with the cause of the wrapped error.
    let profiles = pirn::profiles::ProfilesError::from(unread);
    let cause = std::error::Error::source(&profiles).expect("a cause");
    assert!(cause.is::<std::io::Error>());
}
