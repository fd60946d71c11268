//! Streams for front ends: AG-UI and the AI SDK's UI messages.

use serde_json::{Value, json};

use crate::world::{Events, World, refusal};

fn asked(text: &str) -> Value {
    json!({"threadId": "t1", "runId": "r1", "state": {}, "tools": [], "context": [], "forwardedProps": {},
        "messages": [{"id": "m0", "role": "user", "content": "before"}, {"id": "m1", "role": "assistant", "content": "yes?"},
                     {"id": "m2", "role": "user", "content": text}]})
}

async fn agui(world: &World, workflow: &str) -> Vec<Value> {
    let events = Events::open(world.post(&format!("/v1/agui/{workflow}"), &asked("time?"))).await;
    events.all().await.into_iter().map(|event| event.json).collect()
}

async fn chat(world: &World, workflow: &str) -> Vec<Value> {
    let body = json!({"id": "c7", "trigger": "submit-message", "messages": [
        {"id": "m1", "role": "user", "parts": [{"type": "text", "text": "time?"}]}]});
    let events = Events::open(world.post(&format!("/v1/chat/{workflow}"), &body)).await;
    events.all().await.into_iter().map(|event| event.json).collect()
}

fn types(events: &[Value]) -> Vec<&str> {
    events.iter().filter_map(|event| event["type"].as_str()).collect()
}

#[tokio::test]
async fn an_agui_client_hears_steps_words_tool_calls_and_state() {
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
async fn voices_that_speak_at_once_have_messages_and_steps_of_their_own() {
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
async fn a_run_that_fails_is_an_error_and_one_that_says_nothing_says_its_output() {
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

/// The events of the AG-UI run that answers interrupts.
async fn resume(world: &World, workflow: &str, answers: &Value) -> Vec<Value> {
    let body = json!({"threadId": "t1", "runId": "r2", "messages": [], "resume": answers});
    let events = Events::open(world.post(&format!("/v1/agui/{workflow}"), &body)).await;
    events.all().await.into_iter().map(|event| event.json).collect()
}

fn interrupts(events: &[Value]) -> Vec<Value> {
    let last = events.last().expect("an end");
    assert_eq!(
        (&last["type"], &last["outcome"]["type"]),
        (&json!("RUN_FINISHED"), &json!("interrupt")),
        "{events:?}"
    );
    let opened = events.iter().filter(|event| event["type"] == "STEP_STARTED").count();
    let closed = events.iter().filter(|event| event["type"] == "STEP_FINISHED").count();
    assert_eq!(opened, closed, "no step is left open: {events:?}");
    last["outcome"]["interrupts"].as_array().cloned().unwrap_or_default()
}

fn resolved(interrupt: &Value, payload: &Value) -> Value {
    json!({"interruptId": interrupt["id"], "status": "resolved", "payload": payload})
}

#[tokio::test]
async fn a_run_that_waits_for_a_person_ends_with_an_interrupt_and_the_next_input_answers_it_once() {
    let world = World::new().await;
    let asked = interrupts(&agui(&world, "asks").await);
    assert_eq!(asked.len(), 1);
    assert_eq!(
        (&asked[0]["reason"], &asked[0]["message"], &asked[0]["responseSchema"]),
        (
            &json!("input_required"),
            &json!("Which?"),
            &json!({"enum": ["red", "blue"]})
        )
    );
    let wrong = resume(&world, "asks", &json!([resolved(&asked[0], &json!("green"))])).await;
    assert_eq!(types(&wrong), ["RUN_ERROR"]);
    assert_eq!(wrong[0]["code"], "INVALID_ANSWER");
    let answer = json!([resolved(&asked[0], &json!("blue"))]);
    let ended = resume(&world, "asks", &answer).await;
    assert_eq!(
        types(&ended),
        [
            "RUN_STARTED",
            "STEP_STARTED",
            "STEP_FINISHED",
            "TEXT_MESSAGE_START",
            "TEXT_MESSAGE_CONTENT",
            "TEXT_MESSAGE_END",
            "RUN_FINISHED"
        ],
        "what the first stream told is not told again"
    );
    let last = ended.last().expect("an end");
    assert_eq!(
        (&last["runId"], &last["result"]),
        (&json!("r2"), &json!(["blue", null]))
    );
    assert_eq!(
        resume(&world, "asks", &answer).await,
        ended,
        "the same answer again is none"
    );
    let late = resume(&world, "asks", &json!([resolved(&asked[0], &json!("red"))])).await;
    assert_eq!(late[0]["code"], "INTERACTION_CLOSED");
    for id in ["none", "no.such.0@1", "x@y"] {
        let unknown = resume(&world, "asks", &json!([{"interruptId": id, "status": "resolved"}])).await;
        assert_eq!(types(&unknown), ["RUN_ERROR"], "{id}");
    }
}

#[tokio::test]
async fn questions_at_once_are_interrupts_until_each_is_answered_and_a_person_who_gives_up_cancels() {
    let world = World::new().await;
    let mut asked = interrupts(&agui(&world, "two-people").await);
    let mut answered = Vec::new();
    let ended = loop {
        let first = asked.remove(0);
        answered.push(first["message"].clone());
        let events = resume(&world, "two-people", &json!([resolved(&first, &json!("yes"))])).await;
        if events.last().is_some_and(|last| last["outcome"]["type"] == "success") {
            break events;
        }
        asked = interrupts(&events);
    };
    answered.sort_by_key(ToString::to_string);
    assert_eq!(answered, [json!("Ada?"), json!("Bob?")]);
    assert_eq!(ended.last().expect("an end")["result"], "both");
    let asked = interrupts(&agui(&world, "asks").await);
    let ended = resume(
        &world,
        "asks",
        &json!([{"interruptId": asked[0]["id"], "status": "cancelled"}]),
    )
    .await;
    assert_eq!(ended.last().expect("an end")["outcome"], json!({"type": "cancelled"}));
}

#[tokio::test]
async fn a_tool_call_that_needs_consent_is_an_interrupt_of_that_call() {
    let world = World::new().await;
    for (payload, result) in [
        (json!({"approved": true}), "paid 7"),
        (json!({"approved": true, "editedArgs": {"amount": 5}}), "paid 5"),
        (json!({"approved": false, "reason": "too much"}), "too much"),
    ] {
        let events = agui(&world, "careful").await;
        let asked = interrupts(&events);
        let called = events
            .iter()
            .find(|event| event["type"] == "TOOL_CALL_START")
            .expect("the call");
        assert_eq!(
            (&asked[0]["reason"], &asked[0]["toolCallId"]),
            (&json!("tool_call"), &called["toolCallId"])
        );
        let ended = resume(&world, "careful", &json!([resolved(&asked[0], &payload)])).await;
        assert!(!types(&ended).contains(&"TOOL_CALL_START"), "it was told before");
        let told = ended
            .iter()
            .find(|event| event["type"] == "TOOL_CALL_RESULT")
            .expect("a result");
        assert_eq!(told["toolCallId"], called["toolCallId"]);
        assert!(
            told["content"].as_str().is_some_and(|text| text.contains(result)),
            "{told}"
        );
        assert_eq!(ended.last().expect("an end")["result"], "done");
    }
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
async fn a_front_ends_request_without_a_users_word_is_refused() {
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
