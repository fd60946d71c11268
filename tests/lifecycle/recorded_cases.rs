//! Recorded runs of generated workflows pass the tests made of them.

use std::sync::Arc;

use futures::FutureExt;
use futures::executor::block_on;
use futures::future::BoxFuture;
use pirn::cases::{Case, Grader};
use pirn::serde_json::{Value, json};
use pirn::store::MemoryStore;
use pirn::{Engine, Model, ModelCall, ModelReply, RunError, RunErrorCode, TokenUsage};
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
    let engine = Engine::builder()
        .workflows(bundle.to_string())
        .model("slow", Arc::new(Slow))
        .store(MemoryStore::new())
        .virtual_time(None)
        .build()
        .expect("valid");
    let run = engine.start(id_of(bundle), json!({"n": 1})).expect("starts");
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
