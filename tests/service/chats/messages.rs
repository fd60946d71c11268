//! Messages of people to runs in progress: over REST, and as steering messages of AG-UI and the AI SDK.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use pirn::store::MemoryStore;
use pirn::{Engine, EngineBuilder, Model, ModelCall, ModelReply, Role, RunError};
use pirn_service::Options;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::chats::front_ends::types;
use crate::world::{Events, World, answer, refusal};

/// Repeats the last user message. Each call waits for a permit.
struct Parrot(Arc<Semaphore>);

impl Model for Parrot {
    fn call(&self, call: ModelCall) -> BoxFuture<'static, Result<ModelReply, RunError>> {
        let permits = Arc::clone(&self.0);
        async move {
            permits.acquire().await.expect("it is never closed").forget();
            let mut messages = call.request.messages.iter().rev();
            let last = messages.find(|message| message.role == Role::User);
            Ok(ModelReply {
                content: last.map_or_else(String::new, |last| last.content.as_str().to_owned()),
                ..ModelReply::default()
            })
        }
        .boxed()
    }
}

async fn world(builder: EngineBuilder) -> (World, Arc<Semaphore>) {
    let permits = Arc::new(Semaphore::new(0));
    let workflow = json!({"workflows": [{"id": "talks",
        "nodes": [{"id": "start", "type": "START"},
                  {"id": "say", "type": "LLM", "config": {"prompt": "{{input.message}}", "profileId": "parrot"}},
                  {"id": "end", "type": "END", "config": {"output": "output.content"}}],
        "edges": [{"from": "start", "to": "say"}, {"from": "say", "to": "end"}]}],
      "profiles": [{"id": "parrot", "provider": "parrot"}]});
    let builder = builder.workflows(workflow.to_string());
    let builder = builder.model("parrot", Arc::new(Parrot(Arc::clone(&permits))));
    (World::of(builder, Options::default()).await, permits)
}

fn user_texts(report: &Value) -> Vec<&str> {
    let messages = report["conversation"]["messages"].as_array().expect("messages");
    let users = messages.iter().filter(|message| message["role"] == "user");
    users.filter_map(|message| message["content"].as_str()).collect()
}

#[tokio::test]
async fn a_message_to_a_run_in_progress_is_added_once_and_an_ended_run_refuses_it() {
    for builder in [Engine::builder(), Engine::builder().store(MemoryStore::new())] {
        let (world, permits) = world(builder).await;
        let id = world.start("talks", json!({"message": "first"})).await;
        world.until(&id, "NODE_STARTED").await;
        let path = format!("/v1/runs/{id}/messages");
        for _ in 0..2 {
            let said = json!({"message": "second", "when": "whenIdle", "id": "m-1"});
            let said = answer(world.post(&path, &said)).await;
            assert_eq!(
                (said.status.as_u16(), said.body),
                (200, json!({"ok": true, "id": "m-1"}))
            );
        }
        let said = answer(world.post(&path, &json!({"message": "third"}))).await;
        assert!(
            said.body["id"].as_str().is_some_and(|id| id.starts_with("message-")),
            "{}",
            said.body
        );
        let report = answer(world.get(&format!("/v1/runs/{id}"))).await.body;
        let waiting = report["waitingMessages"].as_array().map(Vec::len);
        assert_eq!(waiting, Some(2), "{report}");
        assert_eq!(
            refusal(world.post(&path, &json!({"message": " "}))).await,
            (422, "INVALID_VALUE".into())
        );
        for (said, pointer) in [
            (json!({"message": "x", "id": "y".repeat(129)}), "/id"),
            (json!({"message": "x", "id": ""}), "/id"),
            (json!({"message": ""}), "/message"),
        ] {
            let refused = answer(world.post(&path, &said)).await;
            assert_eq!(
                (refused.status.as_u16(), &refused.body["pointer"]),
                (422, &json!(pointer)),
                "{}",
                refused.body
            );
        }
        permits.add_permits(9);
        let report = world.ended(&id).await;
        assert_eq!(user_texts(&report), ["first", "second", "third"]);
        assert_eq!(report["output"], "third");
        assert_eq!(
            refusal(world.post(&path, &json!({"message": "late"}))).await,
            (409, "RUN_ENDED".into())
        );
        let unknown = refusal(world.post("/v1/runs/none/messages", &json!({"message": "x"}))).await;
        assert_eq!(unknown, (404, "UNKNOWN_RUN".into()));
        let paid = world.start("paid", Value::Null).await;
        assert_eq!(
            refusal(world.post(&format!("/v1/runs/{paid}/messages"), &json!({"message": "x"}))).await,
            (409, "NO_MODEL_REQUESTS".into())
        );
    }
}

fn agui_input(steering: &Value, text: &str) -> Value {
    json!({"threadId": "t1", "runId": "r1", "forwardedProps": {"steering": steering}, "messages": [
        {"id": "m0", "role": "user", "content": "before"}, {"id": "m1", "role": "assistant", "content": "yes?"},
        {"id": format!("id of {text}"), "role": "user", "content": text}]})
}

#[tokio::test]
async fn a_steering_message_of_an_agui_client_is_sent_to_the_run_of_its_thread() {
    let (world, permits) = world(Engine::builder()).await;
    let path = "/v1/agui/talks";
    // No run of the thread is in progress, so that the message starts one.
    let mut first = Events::open(world.post(path, &agui_input(&json!(true), "first"))).await;
    while first.next().await.expect("an event").json["stepName"] != "say" {}
    for _ in 0..2 {
        let steered = Events::open(world.post(path, &agui_input(&json!("whenIdle"), "second"))).await;
        let steered: Vec<Value> = steered.all().await.into_iter().map(|event| event.json).collect();
        assert_eq!(types(&steered), ["RUN_STARTED", "RUN_FINISHED"]);
        assert_eq!(steered[1]["result"], json!({"steered": true}));
    }
    let wrong = refusal(world.post(path, &agui_input(&json!("soon"), "x"))).await;
    assert_eq!(wrong, (422, "INVALID_VALUE".into()));
    permits.add_permits(9);
    let rest: Vec<Value> = first.all().await.into_iter().map(|event| event.json).collect();
    let added = rest
        .iter()
        .filter(|event| event["name"] == "userMessage" && event["value"]["status"] == "ADDED");
    assert_eq!(added.count(), 1);
    assert_eq!(rest.last().expect("an end")["result"], "second");
}

#[tokio::test]
async fn a_steering_message_of_a_chat_is_sent_to_its_turn_in_progress() {
    let (world, permits) = world(Engine::builder()).await;
    let path = "/v1/chat/talks";
    let body = |text: &str| {
        json!({"id": "c1", "steering": true, "messages": [
            {"id": format!("id of {text}"), "role": "user", "parts": [{"type": "text", "text": text}]}]})
    };
    let mut first = Events::open(world.post(path, &body("first"))).await;
    while first.next().await.expect("an event").json["data"]["nodeId"] != "say" {}
    let steered = Events::open(world.post(path, &body("second"))).await;
    let steered: Vec<Value> = steered.all().await.into_iter().map(|event| event.json).collect();
    assert_eq!(
        steered,
        [json!({"type": "start"}), json!({"type": "finish"}), json!("[DONE]")]
    );
    permits.add_permits(9);
    let rest: Vec<Value> = first.all().await.into_iter().map(|event| event.json).collect();
    let said = rest.iter().filter_map(|chunk| chunk["delta"].as_str());
    assert_eq!(said.collect::<Vec<_>>(), ["first", "second"]);
}

#[tokio::test]
async fn the_message_that_started_a_run_is_not_sent_to_it_again_with_a_steering_message() {
    let (world, permits) = world(Engine::builder()).await;
    let part = |text: &str| json!([{"type": "text", "text": text}]);
    let message =
        |text: &str| json!({"id": format!("id of {text}"), "role": "user", "content": text, "parts": part(text)});
    let body = |texts: &[&str]| {
        let messages: Vec<Value> = texts.iter().map(|text| message(text)).collect();
        json!({"id": "c1", "threadId": "t1", "runId": "r1", "steering": true, "forwardedProps": {"steering": true}, "messages": messages})
    };
    for path in ["/v1/agui/talks", "/v1/chat/talks"] {
        let mut first = Events::open(world.post(path, &body(&["first"]))).await;
        loop {
            let event = first.next().await.expect("an event").json;
            if event["stepName"] == "say" || event["data"]["nodeId"] == "say" {
                break;
            }
        }
        // The reply has not started: both messages follow the last reply.
        for texts in [&["first"][..], &["first", "second"]] {
            Events::open(world.post(path, &body(texts))).await.all().await;
        }
        permits.add_permits(2);
        let rest: Vec<Value> = first.all().await.into_iter().map(|event| event.json).collect();
        let said = rest.iter().filter_map(|event| event["delta"].as_str());
        assert_eq!(said.collect::<Vec<_>>(), ["first", "second"], "{path}");
        let added = rest
            .iter()
            .flat_map(|event| [&event["value"], &event["data"]["data"], &event["data"]]);
        let added = added
            .filter(|value| value["status"] == "ADDED")
            .filter_map(|value| value["text"].as_str());
        assert_eq!(added.collect::<Vec<_>>(), ["second"], "{path}: {rest:#?}");
    }
}
