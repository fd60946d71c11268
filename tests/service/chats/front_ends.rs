//! Streams for front ends: AG-UI and the AI SDK's UI messages.

use serde_json::{Value, json};

use crate::world::{Events, World, refusal};

fn agui_input(text: &str) -> Value {
    json!({"threadId": "t1", "runId": "r1", "state": {}, "tools": [], "context": [], "forwardedProps": {},
        "messages": [{"id": "m0", "role": "user", "content": "before"}, {"id": "m1", "role": "assistant", "content": "yes?"},
                     {"id": "m2", "role": "user", "content": text}]})
}

pub(crate) async fn agui(world: &World, workflow: &str) -> Vec<Value> {
    let events = Events::open(world.post(&format!("/v1/agui/{workflow}"), &agui_input("time?"))).await;
    events.all().await.into_iter().map(|event| event.json).collect()
}

async fn chat(world: &World, workflow: &str) -> Vec<Value> {
    let body = json!({"id": "c7", "trigger": "submit-message", "messages": [
        {"id": "m1", "role": "user", "parts": [{"type": "text", "text": "time?"}]}]});
    let events = Events::open(world.post(&format!("/v1/chat/{workflow}"), &body)).await;
    events.all().await.into_iter().map(|event| event.json).collect()
}

pub(crate) fn types(events: &[Value]) -> Vec<&str> {
    events.iter().filter_map(|event| event["type"].as_str()).collect()
}

#[tokio::test]
async fn an_agui_client_receives_steps_text_tool_calls_and_state() {
    let world = World::new().await;
    let events = agui(&world, "chat").await;
    assert_eq!(
        types(&events),
        [
            "RUN_STARTED",
            "STEP_STARTED",
            "STEP_FINISHED",
            "STEP_STARTED",
            "TEXT_MESSAGE_START",
            "TEXT_MESSAGE_CONTENT",
            "TEXT_MESSAGE_CONTENT",
            "TEXT_MESSAGE_CONTENT",
            "TEXT_MESSAGE_END",
            "TOOL_CALL_START",
            "TOOL_CALL_ARGS",
            "TOOL_CALL_END",
            "TOOL_CALL_RESULT",
            "TEXT_MESSAGE_START",
            "TEXT_MESSAGE_CONTENT",
            "TEXT_MESSAGE_CONTENT",
            "TEXT_MESSAGE_CONTENT",
            "TEXT_MESSAGE_END",
            "STEP_FINISHED",
            "STEP_STARTED",
            "STATE_DELTA",
            "STEP_FINISHED",
            "STEP_STARTED",
            "STEP_FINISHED",
            "RUN_FINISHED",
        ]
    );
    assert_eq!(events[0]["threadId"], "t1");
    assert_eq!(events[0]["runId"], "r1");
    assert_eq!(
        events[20]["delta"],
        json!([{"op": "add", "path": "/mood", "value": "good"}])
    );
    let last = events.last().expect("an end");
    assert_eq!(
        (&last["result"], &last["outcome"]),
        (&json!("it is noon"), &json!({"type": "success"}))
    );
    assert_ne!(events[4]["messageId"], events[13]["messageId"]);
}

#[tokio::test]
async fn concurrent_model_nodes_have_separate_messages_and_steps() {
    let world = World::new().await;
    let events = agui(&world, "two-voices").await;
    let said = |id: &Value| -> String {
        let pieces = events
            .iter()
            .filter(|event| event["type"] == "TEXT_MESSAGE_CONTENT" && event["messageId"] == *id);
        pieces.filter_map(|event| event["delta"].as_str()).collect()
    };
    let begun: Vec<&Value> = events
        .iter()
        .filter(|event| event["type"] == "TEXT_MESSAGE_START")
        .map(|event| &event["messageId"])
        .collect();
    assert_eq!(begun.len(), 2);
    assert!(begun.iter().all(|id| said(id) == "one two three"));
}

#[tokio::test]
async fn a_failed_run_is_an_error_and_a_run_without_messages_sends_its_output() {
    let world = World::new().await;
    let failed = agui(&world, "broken").await;
    let last = failed.last().expect("an end");
    assert_eq!(
        (&last["type"], &last["code"]),
        (&json!("RUN_ERROR"), &json!("MODEL_ERROR"))
    );
    let failed = chat(&world, "broken").await;
    assert_eq!(failed[failed.len() - 2]["type"], "error");
    assert_eq!(failed.last(), Some(&json!("[DONE]")));
    let silent = agui(&world, "echo").await;
    let text = silent
        .iter()
        .find(|event| event["type"] == "TEXT_MESSAGE_CONTENT")
        .expect("a text");
    assert!(text["delta"].as_str().expect("a text").contains("time?"));
}

#[tokio::test]
async fn a_use_chat_page_gets_a_ui_message_stream() {
    let world = World::new().await;
    let chunks = chat(&world, "chat").await;
    let shown: Vec<&str> = types(&chunks).into_iter().filter(|kind| *kind != "data-node").collect();
    assert_eq!(
        shown,
        [
            "start",
            "start-step",
            "text-start",
            "text-delta",
            "text-delta",
            "text-delta",
            "text-end",
            "tool-input-available",
            "tool-output-error",
            "text-start",
            "text-delta",
            "text-delta",
            "text-delta",
            "text-end",
            "finish-step",
            "finish",
        ]
    );
    assert_eq!(chunks.last(), Some(&json!("[DONE]")));
}

#[tokio::test]
async fn a_request_of_a_front_end_without_a_user_message_is_refused() {
    let world = World::new().await;
    let body = json!({"threadId": "t", "runId": "r", "messages": [{"role": "assistant", "content": "hm"}]});
    assert_eq!(
        refusal(world.post("/v1/agui/chat", &body)).await,
        (422, "INVALID_VALUE".into())
    );
    assert_eq!(
        refusal(world.post("/v1/chat/chat", &json!({"messages": [{}]}))).await,
        (422, "MISSING_FIELD".into())
    );
    assert_eq!(
        refusal(world.post(
            "/v1/chat/none",
            &json!({"messages": [{"role": "user", "content": "x"}]})
        ))
        .await
        .0,
        404
    );
}
