//! Recorded runs of generated workflows pass the tests made of them.

use std::sync::{Arc, OnceLock};

use futures::FutureExt;
use futures::executor::block_on;
use futures::future::BoxFuture;
use pirn::cases::{Case, CaseError, Grader, OutsideInputKind};
use pirn::serde_json::{Value, json};
use pirn::store::MemoryStore;
use pirn::{
    Engine, EventType, Model, ModelCall, ModelReply, PinSection, RunError, RunErrorCode, SubscriptionItem, TokenUsage,
    WeakEngine, When,
};
use pirn_tests::world::line;
use proptest::prelude::*;

use super::generated::generated;

/// Replies late, with another text for each request, and fails for some.
struct Slow;

impl Model for Slow {
    fn call(&self, call: ModelCall) -> BoxFuture<'static, Result<ModelReply, RunError>> {
        // A number that depends on the request only.
        let texts = call.request.messages.iter().map(|message| &message.content);
        let thread = call.context.thread_id.bytes();
        let number = texts.flat_map(|text| text.bytes()).chain(thread);
        let number = number.fold(0_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)));
        async move {
            call.clock.sleep(number % 23).await;
            if number.is_multiple_of(7) {
                return Err(RunError::new(RunErrorCode::ModelError, format!("failure {number}")));
            }
            Ok(ModelReply {
                content: format!("reply {number}"),
                usage: TokenUsage::new(number % 100, 3, number % 100 + 3),
                ..ModelReply::default()
            })
        }
        .boxed()
    }
}

/// Must not be called.
struct Unused;

impl Model for Unused {
    fn call(&self, _: ModelCall) -> BoxFuture<'static, Result<ModelReply, RunError>> {
        panic!("a test of a case called the model")
    }
}

fn id_of(bundle: &Value) -> &str {
    bundle["workflows"][0]["id"].as_str().expect("an id")
}

/// Runs the first workflow of a bundle into a store and records the run.
fn recorded(bundle: &Value) -> Case {
    recorded_in(bundle, id_of(bundle), None)
}

/// Runs a workflow in the order of a seed into a store, and records the run.
fn recorded_in(bundle: &Value, workflow: &str, order: Option<u64>) -> Case {
    let engine = Engine::builder()
        .workflows(bundle.to_string())
        .model("slow", Arc::new(Slow))
        .store(MemoryStore::new())
        .virtual_time(order)
        .build()
        .expect("valid");
    let run = engine.start(workflow, json!({"n": 1})).expect("starts");
    engine.cancel_if_deadlocked(&run);
    run.outcome_blocking();
    engine.wait_idle();
    block_on(Case::record(&engine, run.run_id())).expect("it has ended")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_recorded_random_run_passes_its_test(generated in generated()) {
        let mut bundle = generated.bundle();
        bundle["profiles"][0]["provider"] = json!("slow");
        let case = recorded(&bundle);
        // As a file.
        let case: Case = pirn::serde_json::from_str(&json!(case).to_string()).expect("its own format");
        let tested = case.run(Engine::builder().model("slow", Arc::new(Unused))).expect("it runs");
        prop_assert_eq!(&tested.failures, &Vec::new(), "{:#}", json!(case));
        // An update changes nothing, because nothing is new.
        let updated = case.update(Engine::builder().model("slow", Arc::new(Unused))).expect("it runs");
        prop_assert_eq!(&updated.recording, &case.recording);
        prop_assert_eq!(&updated.expect, &case.expect);
    }
}

#[test]
fn a_case_does_not_compare_the_runs_that_the_recorded_run_starts() {
    let model = json!({"id": "m", "type": "LLM", "config": {"profileId": "m", "prompt": "x"}});
    let mut main = line(
        "main",
        &[json!({"id": "c", "type": "CODE", "config": {"code": "return 1"}})],
    );
    main["triggers"] = json!([{"id": "t", "condition": {"eventType": "NODE_COMPLETED", "expression": "event.nodeId == 'c'"},
        "action": {"type": "START_WORKFLOW", "parameters": {"workflowId": "other"}}}]);
    let bundle = json!({"workflows": [main, line("other", &[model])], "profiles": [{"id": "m", "provider": "echo"}]});
    let case = recorded(&bundle);
    let tested = case.run(Engine::builder()).expect("it runs");
    assert_eq!(tested.failures, Vec::new());
}

#[test]
fn a_reply_that_decides_a_race_arrives_at_its_recorded_time() {
    let says =
        |id: &str, prompt: &str| json!({"id": id, "type": "LLM", "config": {"profileId": "m", "prompt": prompt}});
    let bundle = json!({"workflows": [{"id": "main", "nodes": [
            {"id": "start", "type": "START"},
            {"id": "fork", "type": "FORK", "config": {"forkPathIds": ["a", "b"], "childNodeIds": ["a", "b"]}},
            says("a", "first"), says("b", "second"),
            {"id": "join", "type": "JOIN", "config": {"forkPathIds": ["a", "b"], "joinStrategy": "ANY_COMPLETED"}},
            {"id": "end", "type": "END", "config": {"output": "output.outputs[output.completed[0]].content"}}],
        "edges": [{"from": "start", "to": "fork"}, {"from": "fork", "to": "a"}, {"from": "fork", "to": "b"},
            {"from": "a", "to": "join"}, {"from": "b", "to": "join"}, {"from": "join", "to": "end"}]}],
        "profiles": [{"id": "m", "provider": "scripted", "responses": [
            {"match": "first", "content": "late", "delayMs": 500}, {"match": "second", "content": "early", "delayMs": 400}]}]});
    let case = recorded(&bundle);
    let tested = case.run(Engine::builder()).expect("it runs");
    assert_eq!((tested.failures, tested.report.elapsed_ms), (Vec::new(), 400));
    assert!(
        case.expect.contains(&Grader::Equal { value: json!("early") }),
        "{case:?}"
    );
    // The other request was cancelled before its reply.
    let [first, second] = &case.recording.requests[..] else {
        panic!("{case:?}")
    };
    assert_eq!((first.after_ms, second.after_ms), (None, Some(400)));
    // With an earlier reply the other branch wins.
    let mut other = case;
    let reply = ModelReply {
        content: "earlier".to_owned(),
        ..ModelReply::default()
    };
    (other.recording.requests[0].after_ms, other.recording.requests[0].reply) = (Some(399), Some(reply));
    let tested = other.run(Engine::builder()).expect("it runs");
    assert_eq!(
        (&tested.report.output, tested.report.elapsed_ms),
        (&json!("earlier"), 399)
    );
    assert_eq!(
        tested.failures[0].message,
        "output: expected \"early\", got \"earlier\""
    );
}

/// Replies like [`Slow`], and sends inputs to the run while a request is open.
struct Meddling(Arc<OnceLock<WeakEngine>>);

impl Model for Meddling {
    fn call(&self, call: ModelCall) -> BoxFuture<'static, Result<ModelReply, RunError>> {
        let engine = Arc::clone(&self.0);
        let (run_id, clock) = (Arc::clone(&call.context.run_id), call.clock.clone());
        let texts = call.request.messages.iter().map(|message| message.content.len());
        let number = texts.sum::<usize>() as u64 + call.context.thread_id.bytes().map(u64::from).sum::<u64>();
        let reply = Slow.call(call);
        async move {
            clock.sleep(number % 5).await;
            let engine = engine.get().and_then(WeakEngine::upgrade).expect("the engine runs");
            let run = engine.find(&run_id).expect("the run calls the model");
            match number % 4 {
                0 => run.emit("meddled", [("number", json!(number))]),
                1 => run.pin(PinSection::Role, json!(format!("role {number}"))),
                // Refused if the main workflow calls no model.
                2 => drop(
                    run.say(format!("message {number}"), When::BeforeNextRequest)
                        .now_or_never(),
                ),
                _ => {}
            }
            reply.await
        }
        .boxed()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_random_run_with_inputs_from_outside_passes_its_test(generated in generated()) {
        let mut bundle = generated.bundle();
        bundle["profiles"][0]["provider"] = json!("meddling");
        let engine_of_model = Arc::default();
        let engine = Engine::builder()
            .workflows(bundle.to_string())
            .model("meddling", Arc::new(Meddling(Arc::clone(&engine_of_model))))
            .store(MemoryStore::new())
            .virtual_time(None)
            .build()
            .expect("valid");
        prop_assert!(engine_of_model.set(engine.downgrade()).is_ok());
        let run = engine.start(id_of(&bundle), json!({"n": 1})).expect("starts");
        engine.cancel_if_deadlocked(&run);
        run.outcome_blocking();
        engine.wait_idle();
        let case = block_on(Case::record(&engine, run.run_id())).expect("it has ended");
        let case: Case = pirn::serde_json::from_str(&json!(case).to_string()).expect("its own format");
        let tested = case.run(Engine::builder().model("meddling", Arc::new(Unused))).expect("it runs");
        prop_assert_eq!(&tested.failures, &Vec::new(), "{:#}", json!(case));
    }
}

fn chat(nodes: &[Value]) -> Value {
    json!({"workflows": [line("main", nodes)], "profiles": [{"id": "m", "provider": "echo"}]})
}

fn asks(id: &str) -> Value {
    json!({"id": id, "type": "LLM", "config": {"profileId": "m", "prompt": format!("prompt of {id}")}})
}

/// Workflow that waits for an event and a person between two model calls.
fn waiting() -> Vec<Value> {
    vec![
        asks("first"),
        json!({"id": "go", "type": "WAIT", "config": {"event": "go"}}),
        json!({"id": "sure", "type": "USER_INTERACTION", "config": {"question": "Sure?"}}),
        asks("second"),
    ]
}

#[test]
fn messages_events_pins_and_named_answers_are_delivered_at_their_recorded_positions() {
    let engine = Engine::builder()
        .workflows(chat(&waiting()).to_string())
        .store(MemoryStore::new())
        .virtual_time(None)
        .build()
        .expect("valid");
    let run = engine.start("main", json!(null)).expect("starts");
    engine.wait_idle();
    block_on(run.say("Be brief.", When::BeforeNextRequest)).expect("accepted");
    run.pin(PinSection::Role, json!("a weaver"));
    run.emit("go", [("n", json!(5))]);
    engine.wait_idle();
    let question = block_on(run.interactions()).pop().expect("a question");
    block_on(run.answer_by("Ada", &question.id, json!("yes"))).expect("accepted");
    run.outcome_blocking();
    engine.wait_idle();
    let case = block_on(Case::record(&engine, run.run_id())).expect("it has ended");

    assert_eq!(case.recording.answers[0].by.as_deref(), Some("Ada"));
    let [message, pin, event] = &case.recording.inputs[..] else {
        panic!("{:#}", json!(case))
    };
    for input in [message, pin, event] {
        let node = input.after.as_ref().and_then(|after| after.node_id.as_deref());
        assert!(matches!(node, Some("go") | None), "{input:?}");
    }
    assert!(matches!(&message.input, OutsideInputKind::Message(said) if &*said.text == "Be brief."));
    let tested = case.run(Engine::builder()).expect("it runs");
    assert_eq!(tested.failures, Vec::new(), "{:#}", json!(case));

    // A changed workflow that does not reach the positions is reported.
    let changed = Case {
        definition: Some(chat(&[asks("first")])),
        ..case.clone()
    };
    let tested = changed.run(Engine::builder()).expect("it runs");
    let messages: Vec<&str> = tested.failures.iter().map(|failure| failure.message.as_str()).collect();
    assert!(
        messages.iter().any(|message| message.starts_with(
            "input 1 (message \"Be brief.\") was not delivered: the run did not reach NODE_STARTED 1 of node `go` in thread"
        )),
        "{messages:#?}"
    );
    assert!(
        messages
            .iter()
            .any(|message| message.starts_with("input 3 (event `go`)")),
        "{messages:#?}"
    );
    // An update would lose them.
    let refused = changed.update(Engine::builder()).expect_err("inputs are missing");
    assert!(refused.to_string().contains("correct its position"), "{refused}");
}

#[test]
fn a_cancelled_run_is_cancelled_again_at_the_same_position() {
    let engine = Engine::builder()
        .workflows(chat(&waiting()).to_string())
        .store(MemoryStore::new())
        .virtual_time(None)
        .build()
        .expect("valid");
    let run = engine.start("main", json!(null)).expect("starts");
    engine.wait_idle();
    run.cancel("no longer needed");
    run.outcome_blocking();
    engine.wait_idle();
    let case = block_on(Case::record(&engine, run.run_id())).expect("it has ended");
    let tested = case.run(Engine::builder()).expect("it runs");
    assert_eq!(tested.failures, Vec::new(), "{:#}", json!(case));
    let Some(error) = &tested.report.error else {
        panic!("{:?}", tested.report)
    };
    assert!(error.message.contains("no longer needed"), "{error}");
}

#[test]
fn a_recorded_fork_excludes_the_time_before_its_start() {
    let mut bundle = chat(&[asks("first")]);
    let reply = json!({"match": "prompt", "content": "fine", "delayMs": 400});
    bundle["profiles"] = json!([{"id": "m", "provider": "scripted", "responses": [reply]}]);
    let engine = Engine::builder()
        .workflows(bundle.to_string())
        .store(MemoryStore::new())
        .virtual_time(None)
        .build()
        .expect("valid");
    engine
        .run("main")
        .run_id("base")
        .start()
        .expect("starts")
        .outcome_blocking();
    engine.wait_idle();
    // The base has sent its request in the step that the fork shares.
    let fork = block_on(engine.fork("base", 0).make("fork")).expect("is forked");
    block_on(fork.start()).expect("starts").outcome_blocking();
    engine.wait_idle();
    let requests = block_on(engine.view("fork", None)).expect("is read").requests;
    let durations: Vec<_> = requests.iter().map(|request| request.duration_ms).collect();
    assert_eq!(durations, [Some(400)]);
    let case = block_on(Case::record(&engine, "fork")).expect("it has ended");
    assert_eq!(case.recording.requests[0].after_ms, Some(400));
    let tested = case.run(Engine::builder()).expect("it runs");
    assert_eq!((tested.failures, tested.report.elapsed_ms), (Vec::new(), 400));
}

/// Workflow with a prompt and an output that contain times, thread ids and a random number.
fn varying() -> Value {
    let each = json!({"id": "each", "nodes": [
        {"id": "start", "type": "START"},
        {"id": "fork", "type": "FORK", "config": {"forkPathIds": ["a", "b"], "childNodeIds": ["a", "b"]}},
        {"id": "a", "type": "CODE", "config": {"code": "for (let i = 0; i < input * 100000; i++); return 1"}},
        {"id": "b", "type": "CODE", "config": {"code": "return 2"}},
        {"id": "join", "type": "JOIN", "config": {"forkPathIds": ["a", "b"], "joinStrategy": "ALL_COMPLETED"}},
        {"id": "end", "type": "END", "config": {"output": "output.childThreadIds"}}],
        "edges": [{"from": "start", "to": "fork"}, {"from": "fork", "to": "a"}, {"from": "fork", "to": "b"},
            {"from": "a", "to": "join"}, {"from": "b", "to": "join"}, {"from": "join", "to": "end"}]});
    let mut main = line(
        "main",
        &[
            json!({"id": "map", "type": "MAP", "config": {"items": "[3, 2, 1]", "subgraphId": "each"}}),
            json!({"id": "sure", "type": "USER_INTERACTION", "config": {"question": "Sure?"}}),
            json!({"id": "go", "type": "WAIT", "config": {"event": "go"}}),
            json!({"id": "draw", "type": "SCRIPT", "config": {"code": "return [Date.now(), Math.random()]"}}),
            json!({"id": "ask", "type": "LLM", "config": {"profileId": "m",
                "prompt": "{{nodes.sure.at}} {{nodes.go.timestamp}} {{nodes.draw}} {{nodes.map.results}}"}}),
        ],
    );
    let nodes = main["nodes"].as_array_mut().expect("nodes");
    nodes.last_mut().expect("END")["config"] = json!({"output": "nodes"});
    json!({"workflows": [main, each], "profiles": [{"id": "m", "provider": "echo"}]})
}

#[test]
fn a_run_in_real_time_passes_its_test_although_times_and_thread_numbers_differ() {
    let bundle = varying();
    let engine = Engine::builder()
        .workflows(bundle.to_string())
        .store(MemoryStore::new())
        .build()
        .expect("valid");
    let mut run = engine.run("main");
    let mut events = run.blocking_events(&[EventType::NodeStarted, EventType::InteractionRequested], 1_000);
    let run = run.start().expect("starts");
    let mut reach = |event_type: EventType, node: &str| {
        let is_reached = |item| match item {
            SubscriptionItem::Event(event) => {
                event.raised.event_type == event_type && event.raised.fields.text("nodeId") == Some(node)
            }
            SubscriptionItem::Lagged(_) => false,
        };
        assert!(events.any(is_reached), "{node}");
    };
    reach(EventType::InteractionRequested, "sure");
    let question = block_on(run.interactions()).pop().expect("a question");
    block_on(run.answer(&question.id, json!("yes"))).expect("accepted");
    reach(EventType::NodeStarted, "go");
    run.emit("go", [("n", json!(5))]);
    let report = run.outcome_blocking();
    engine.wait_idle();
    let case = block_on(Case::record(&engine, run.run_id())).expect("it has ended");
    let at = report.output["sure"]["at"].as_u64().expect("a time");
    assert!(
        (case.recording.started_at..=case.recording.ended_at).contains(&at),
        "{report:?}"
    );

    let tested = case.run(Engine::builder()).expect("it runs");
    assert_eq!(tested.failures, Vec::new(), "{:#}", json!(case));
    assert_eq!(tested.report.output["draw"][1], report.output["draw"][1]);

    // Other values are compared.
    let mut other = case;
    for grader in &mut other.expect {
        if let Grader::Equal { value } = grader {
            value["sure"]["at"] = json!(at + 3_600_000);
        }
    }
    let tested = other.run(Engine::builder()).expect("it runs");
    let messages: Vec<&str> = tested.failures.iter().map(|failure| failure.message.as_str()).collect();
    assert!(
        messages.iter().all(|message| message.starts_with("output/sure/at")) && messages.len() == 1,
        "{messages:?}"
    );
}

#[test]
fn an_update_does_not_replace_a_completed_run_by_a_failed_one() {
    let failing = json!({"id": "m", "provider": "scripted", "responses": [{"match": "prompt", "content": "fine"}]});
    let mut bundle = chat(&[asks("first")]);
    bundle["profiles"] = json!([failing]);
    let mut case = recorded(&bundle);
    bundle["workflows"][0]["nodes"][1]["config"]["prompt"] = json!("unknown");
    case.definition = Some(bundle);
    let refused = case.update(Engine::builder()).expect_err("it fails now");
    let message = refused.to_string();
    assert!(
        matches!(refused, CaseError::NotCompleted(_))
            && message.contains("expects COMPLETED, and the run ended FAILED (MODEL_ERROR)"),
        "{message}"
    );
    // A case that expects the failure is updated.
    case.expect.clear();
    let updated = case.update(Engine::builder()).expect("it runs");
    assert!(
        matches!(&updated.expect[0], Grader::Outcome { error: Some(_), .. }),
        "{updated:?}"
    );
}

#[test]
fn a_run_of_a_session_starts_from_the_recorded_state_of_its_session() {
    let variable = json!({"id": "count", "type": "VARIABLE",
        "config": {"variableName": "count", "scope": "session", "expression": "(variables.count ?? 0) + 1"}});
    let engine = Engine::builder()
        .workflows(chat(&[variable, asks("ask")]).to_string())
        .store(MemoryStore::new())
        .virtual_time(None)
        .build()
        .expect("valid");
    let mut last = String::new();
    for _ in 0..3 {
        let run = engine
            .run("main")
            .session("s")
            .keep_on_failure()
            .start()
            .expect("starts");
        last = run.outcome_blocking().run_id.clone();
        engine.wait_idle();
    }
    let case = block_on(Case::record(&engine, &last)).expect("it has ended");
    let case: Case = pirn::serde_json::from_str(&json!(case).to_string()).expect("its own format");
    let session = case.recording.session.as_ref().expect("a session");
    let state = session.state.as_ref().expect("not the first run");
    assert_eq!((&*session.id, session.keeps_on_failure), ("s", true));
    assert_eq!(*state.variables["count"], json!(2));
    assert_eq!(state.conversation.len(), 4, "{state:?}");
    let tested = case.run(Engine::builder()).expect("it runs");
    assert_eq!(tested.failures, Vec::new(), "{:#}", json!(case));
    assert_eq!(tested.report.conversation.messages.iter().count(), 6);

    // An update writes the same state again.
    let updated = case.update(Engine::builder()).expect("it runs");
    assert_eq!(updated.recording, case.recording);

    // The messages of the session are part of the requests.
    let mut other = case;
    let state = other
        .recording
        .session
        .as_mut()
        .and_then(|session| session.state.as_mut());
    state.expect("not the first run").conversation.truncate(2);
    let tested = other.run(Engine::builder()).expect("it runs");
    assert_eq!(tested.failures[0].grader, "request", "{:?}", tested.failures);
}

#[test]
fn a_case_of_branches_that_race_passes_in_an_order_that_is_found() {
    let set = |id: &str, name: &str, expression: &str| json!({"id": id, "type": "VARIABLE", "config": {"variableName": name, "expression": expression, "scope": "global"}});
    let bundle = json!({"id": "main", "nodes": [
            {"id": "start", "type": "START"},
            {"id": "fork", "type": "FORK", "config": {"forkPathIds": ["a", "b"], "childNodeIds": ["a", "b"]}},
            // `b` fails if it runs before `a`.
            set("a", "one", "1"), set("b", "two", "one + 1"),
            {"id": "join", "type": "JOIN", "config": {"forkPathIds": ["a", "b"], "joinStrategy": "ALL_COMPLETED"}},
            {"id": "end", "type": "END", "config": {"output": "two"}}],
        "edges": [{"from": "start", "to": "fork"}, {"from": "fork", "to": "a"}, {"from": "fork", "to": "b"},
            {"from": "a", "to": "join"}, {"from": "b", "to": "join"}, {"from": "join", "to": "end"}]});
    let builder = || Engine::builder().model("slow", Arc::new(Unused));
    let mut found = 0;
    for seed in 0..12 {
        let mut case = recorded_in(&bundle, "main", Some(seed));
        // The seed of the virtual clock would repeat the order; a live run has no such seed.
        case.recording.seed = None;
        let tested = case.find_order(builder).expect("it runs");
        assert_eq!(tested.failures, Vec::new(), "seed {seed}");
        found += u64::from(case.order.is_some());
        // As a file.
        let case: Case = pirn::serde_json::from_str(&json!(case).to_string()).expect("its own format");
        assert_eq!(
            case.run(builder()).expect("it runs").failures,
            Vec::new(),
            "seed {seed}"
        );
        let updated = case.update(builder()).expect("it runs");
        assert_eq!(updated.order, case.order, "seed {seed}");
    }
    assert!(found > 0, "no recorded run differs from FIFO order");
}
