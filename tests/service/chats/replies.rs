//! Streamed replies: a client that reconnects in the middle of a reply receives the rest of it.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use pirn::store::MemoryStore;
use pirn::{Engine, EngineBuilder, Model, ModelCall, ModelReply, RunError, TokenUsage};
use pirn_service::Options;
use reqwest::StatusCode;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::chats::front_ends::types;
use crate::world::{Events, Sent, World, answer, later, refusal};

/// Number of pieces of a reply of [`Speaker`].
const PIECES: usize = 9;

/// Sends a piece of its reply for each permit.
struct Speaker(Arc<Semaphore>);

impl Model for Speaker {
    fn call(&self, call: ModelCall) -> BoxFuture<'static, Result<ModelReply, RunError>> {
        let permits = Arc::clone(&self.0);
        async move {
            for piece in 0..PIECES {
                permits.acquire().await.expect("it is never closed").forget();
                call.tokens.put(&format!("w{piece} "));
            }
            Ok(ModelReply {
                content: words(0..PIECES),
                usage: TokenUsage::new(1, 9, 10),
                ..ModelReply::default()
            })
        }
        .boxed()
    }
}

fn words(pieces: std::ops::Range<usize>) -> String {
    pieces
        .flat_map(|piece| ["w".to_owned(), piece.to_string(), " ".to_owned()])
        .collect()
}

/// A workflow with a slow reply, and one that questions a person during such a reply.
fn workflows() -> String {
    let says = json!({"prompt": "{{input.message}}", "profileId": "speaker"});
    let start = json!({"id": "start", "type": "START"});
    let paths = json!(["a", "b"]);
    json!({"workflows": [
        {"id": "says",
         "nodes": [start, {"id": "say", "type": "LLM", "config": says},
                   {"id": "end", "type": "END", "config": {"output": "nodes['say'].content"}}],
         "edges": [{"from": "start", "to": "say"}, {"from": "say", "to": "end"}]},
        {"id": "says-and-asks",
         "nodes": [start,
                   {"id": "fork", "type": "FORK",
                    "config": {"forkPathIds": paths, "childNodeIds": ["say", "ask"], "forkStrategy": "parallel"}},
                   {"id": "say", "type": "LLM", "config": says},
                   {"id": "ask", "type": "WAIT", "config": {"event": "ask"}},
                   {"id": "sure", "type": "USER_INTERACTION", "config": {"question": "Sure?"}},
                   {"id": "join", "type": "JOIN", "config": {"forkPathIds": paths, "joinStrategy": "ALL_COMPLETED"}},
                   {"id": "end", "type": "END", "config": {"output": "'both'"}}],
         "edges": [{"from": "start", "to": "fork"}, {"from": "fork", "to": "say"}, {"from": "fork", "to": "ask"},
                   {"from": "ask", "to": "sure"}, {"from": "say", "to": "join"}, {"from": "sure", "to": "join"},
                   {"from": "join", "to": "end"}]}],
      "profiles": [{"id": "speaker", "provider": "speaker"}]})
    .to_string()
}

async fn world(builder: EngineBuilder) -> (World, Arc<Semaphore>) {
    let permits = Arc::new(Semaphore::new(0));
    let speaker = Arc::new(Speaker(Arc::clone(&permits)));
    let builder = builder.model("speaker", speaker).workflows(workflows());
    (World::of(builder, Options::default()).await, permits)
}

/// Reads a stream until `count` events satisfy `is_one`; returns all events read.
async fn read(events: &mut Events, count: usize, is_one: impl Fn(&Sent) -> bool) -> Vec<Sent> {
    let mut read = Vec::new();
    while read.iter().filter(|sent| is_one(sent)).count() < count {
        read.push(events.next().await.expect("more comes"));
    }
    read
}

fn text(sent: &[Sent], kind: &str, field: &str) -> String {
    let of_kind = sent.iter().filter(|sent| sent.json["type"] == kind);
    of_kind.filter_map(|sent| sent.json[field].as_str()).collect()
}

fn last_id(sent: &[Sent]) -> &str {
    sent.last().and_then(|sent| sent.position.as_deref()).expect("an id")
}

#[tokio::test]
async fn a_client_that_reconnects_during_a_reply_gets_each_later_piece_once() {
    for builder in [Engine::builder(), Engine::builder().store(MemoryStore::new())] {
        let (world, permits) = world(builder).await;
        let id = world.start("says", json!({"message": "go"})).await;
        let path = format!("/v1/runs/{id}/events");
        let is_piece = |sent: &Sent| sent.json["type"] == "LLM_TOKEN";
        let mut seen: Vec<Sent> = Vec::new();
        // Reconnects after each piece but the last; two more pieces are sent while no client is connected.
        for _ in 0..PIECES / 3 {
            let mut request = world.get(&path);
            if !seen.is_empty() {
                request = request.header("last-event-id", last_id(&seen));
            }
            let mut events = Events::open(request).await;
            permits.add_permits(1);
            let missed = if seen.is_empty() { 0 } else { 2 };
            seen.extend(read(&mut events, 1 + missed, is_piece).await);
            drop(events);
            permits.add_permits(2);
        }
        let rest = Events::open(world.get(&format!("{path}?after={}", last_id(&seen)))).await;
        seen.extend(rest.all().await);
        assert_eq!(text(&seen, "LLM_TOKEN", "text"), words(0..PIECES));
        let ids: Vec<&str> = seen.iter().filter_map(|sent| sent.position.as_deref()).collect();
        let whole = Events::open(world.get(&path)).await.all().await;
        let all: Vec<&str> = whole.iter().filter_map(|sent| sent.position.as_deref()).collect();
        assert_eq!(ids, all, "each once, in order");
        let mut unique = ids.clone();
        unique.dedup();
        assert_eq!(unique, ids, "no two events have one id");
    }
}

#[tokio::test]
async fn a_client_that_reconnects_after_a_resume_gets_the_reply_streamed_again() {
    let (world, permits) = world(Engine::builder().store(MemoryStore::new())).await;
    let id = world.start("says", json!({"message": "go"})).await;
    let path = format!("/v1/runs/{id}/events");
    let is_piece = |sent: &Sent| sent.json["type"] == "LLM_TOKEN";
    let mut events = Events::open(world.get(&path)).await;
    permits.add_permits(4);
    let seen = read(&mut events, 4, is_piece).await;
    answer(world.post(&format!("/v1/runs/{id}/park"), &json!({}))).await;
    events.all().await;
    let resumed = answer(world.post(&format!("/v1/runs/{id}/resume"), &json!({}))).await;
    assert_eq!(resumed.status, StatusCode::OK, "{}", resumed.body);
    permits.add_permits(PIECES);
    let rest = Events::open(world.get(&path).header("last-event-id", last_id(&seen))).await;
    let rest = rest.all().await;
    let first = rest.iter().find(|sent| is_piece(sent)).expect("a piece");
    assert_eq!(first.json["restart"], true, "{first:?}");
    assert_eq!(text(&rest, "LLM_TOKEN", "text"), words(0..PIECES));
}

#[tokio::test]
async fn a_reconnected_chat_gets_the_rest_of_the_reply() {
    let (world, permits) = world(Engine::builder().store(MemoryStore::new())).await;
    let again = "/v1/chat/says/c9/stream";
    let none = world.get(again).send().await.expect("an answer");
    assert_eq!(none.status(), StatusCode::NO_CONTENT, "no turn is under way");
    let body = json!({"id": "c9", "messages": [{"role": "user", "parts": [{"type": "text", "text": "go"}]}]});
    let mut events = Events::open(world.post("/v1/chat/says", &body)).await;
    permits.add_permits(4);
    let mut seen = read(&mut events, 4, |sent| sent.json["type"] == "text-delta").await;
    drop(events);
    permits.add_permits(2);
    // The AI SDK sends no event id and reads the stream from its start.
    let mut whole = Events::open(world.get(again)).await;
    let whole = read(&mut whole, 6, |sent| sent.json["type"] == "text-delta").await;
    assert_eq!(whole[0].json["type"], "start");
    assert_eq!(text(&whole, "text-delta", "delta"), words(0..6));
    permits.add_permits(3);
    let rest = Events::open(world.get(again).header("last-event-id", last_id(&seen))).await;
    seen.extend(rest.all().await);
    assert_eq!(text(&seen, "text-delta", "delta"), words(0..PIECES));
    let kinds: Vec<&str> = seen.iter().filter_map(|sent| sent.json["type"].as_str()).collect();
    for once in ["start", "text-start", "text-end", "finish"] {
        assert_eq!(
            kinds.iter().filter(|kind| **kind == once).count(),
            1,
            "{once}: {kinds:?}"
        );
    }
    let ended = world.get(again).send().await.expect("an answer");
    assert_eq!(ended.status(), StatusCode::NO_CONTENT, "the turn has ended");
}

fn agui(resume: &Value) -> Value {
    json!({"threadId": "t1", "runId": "r1", "messages": [{"role": "user", "content": "go"}], "resume": resume})
}

#[tokio::test]
async fn a_reconnected_agui_client_gets_the_rest_of_the_reply() {
    let (world, permits) = world(Engine::builder().store(MemoryStore::new())).await;
    let mut events = Events::open(world.post("/v1/agui/says", &agui(&json!([])))).await;
    permits.add_permits(4);
    let mut seen = read(&mut events, 4, |sent| sent.json["type"] == "TEXT_MESSAGE_CONTENT").await;
    drop(events);
    permits.add_permits(5);
    let again = "/v1/agui/says?threadId=t1&runId=r1";
    let rest = Events::open(world.get(again).header("last-event-id", last_id(&seen))).await;
    seen.extend(rest.all().await);
    assert_eq!(text(&seen, "TEXT_MESSAGE_CONTENT", "delta"), words(0..PIECES));
    let events: Vec<Value> = seen.into_iter().map(|sent| sent.json).collect();
    for once in ["RUN_STARTED", "TEXT_MESSAGE_START", "TEXT_MESSAGE_END", "RUN_FINISHED"] {
        assert_eq!(types(&events).iter().filter(|kind| **kind == once).count(), 1, "{once}");
    }
    let ended = world.get(again).send().await.expect("an answer");
    assert_eq!(ended.status(), StatusCode::NO_CONTENT);
}

/// The requests that start a run as a front end, and those that resume its stream; the types of a piece and of the last event.
fn front_ends() -> [(&'static str, Value, &'static str, [&'static str; 2]); 2] {
    let chat = json!({"id": "c9", "messages": [{"role": "user", "parts": [{"type": "text", "text": "go"}]}]});
    [
        (
            "/v1/chat/says",
            chat,
            "/v1/chat/says/c9/stream",
            ["text-delta", "finish"],
        ),
        (
            "/v1/agui/says",
            agui(&json!([])),
            "/v1/agui/says?threadId=t1&runId=r1",
            ["TEXT_MESSAGE_CONTENT", "RUN_FINISHED"],
        ),
    ]
}

#[tokio::test]
async fn the_stream_of_a_run_that_leaves_its_process_breaks_off_and_is_resumed() {
    for (start, body, again, [piece, last]) in front_ends() {
        for parks in [true, false] {
            let store = MemoryStore::new();
            let (first, permits) = world(Engine::builder().store(store.clone())).await;
            // An earlier run of the chat or thread, which has ended and is in memory.
            permits.add_permits(PIECES);
            Events::open(first.post(start, &body)).await.all().await;
            later().await;
            let mut response = first.post(start, &body).send().await.expect("an answer");
            permits.add_permits(2);
            let mut received = String::new();
            while received.matches(piece).count() < 2 {
                let chunk = response.chunk().await.expect("no break").expect("more comes");
                received.push_str(&String::from_utf8_lossy(&chunk));
            }
            let id = received.rsplit("id: ").next().and_then(|rest| rest.lines().next());
            let id = id.expect("an id").to_owned();
            let run = answer(first.get("/v1/runs")).await.body["runs"][0]["runId"].clone();
            let run = run.as_str().expect("an id");
            if parks {
                answer(first.post(&format!("/v1/runs/{run}/park"), &json!({}))).await;
            } else {
                first.service.shut_down(Duration::ZERO).await;
            }
            let is_broken = loop {
                match response.chunk().await {
                    Ok(Some(chunk)) => received.push_str(&String::from_utf8_lossy(&chunk)),
                    Ok(None) => break false,
                    Err(_) => break true,
                }
            };
            assert!(is_broken, "{received}");
            for end in ["RUN_ERROR", "RUN_FINISHED", "\"error\"", "\"finish\"", "[DONE]"] {
                assert!(!received.contains(end), "{received}");
            }
            let (world, permits) = if parks {
                (first, permits)
            } else {
                world(Engine::builder().store(store)).await
            };
            // 204 would stop the client, but the run has not ended.
            let waiting = world.get(again).header("last-event-id", &id).send().await;
            let waiting = waiting.expect("an answer");
            assert_eq!(waiting.status(), StatusCode::OK);
            assert!(waiting.text().await.is_err(), "it is not the rest of the earlier run");
            let resumed = answer(world.post(&format!("/v1/runs/{run}/resume"), &json!({}))).await;
            assert_eq!(resumed.status, StatusCode::OK, "{}", resumed.body);
            permits.add_permits(PIECES);
            let rest = Events::open(world.get(again).header("last-event-id", &id)).await;
            let rest = rest.all().await;
            assert_eq!(text(&rest, piece, "delta"), words(0..PIECES), "{rest:?}");
            assert!(rest.iter().any(|sent| sent.json["type"] == last), "{rest:?}");
        }
    }
}

#[tokio::test]
async fn a_front_end_gets_the_rest_of_a_run_that_ended_before_a_restart() {
    for (start, body, again, [_, last]) in front_ends() {
        let store = MemoryStore::new();
        let (first, permits) = world(Engine::builder().store(store.clone())).await;
        permits.add_permits(PIECES);
        let whole = Events::open(first.post(start, &body)).await.all().await;
        first.service.shut_down(Duration::ZERO).await;
        let (second, _) = world(Engine::builder().store(store)).await;
        let ids: Vec<&str> = whole.iter().filter_map(|sent| sent.position.as_deref()).collect();
        // A position after the reply: pieces are not in the store.
        let read = ids[ids.len() - 2];
        let from = whole.iter().position(|sent| sent.position.as_deref() == Some(read));
        let rest = Events::open(second.get(again).header("last-event-id", read))
            .await
            .all()
            .await;
        assert_eq!(rest, whole[from.expect("the event") + 1..], "{again}");
        assert!(rest.iter().any(|sent| sent.json["type"] == last), "{rest:?}");
        let ended = answer(second.get(again)).await;
        assert_eq!(ended.status, StatusCode::NO_CONTENT, "no run is in progress");
    }
}

#[tokio::test]
async fn an_interrupt_during_a_reply_loses_no_piece() {
    let (world, permits) = world(Engine::builder().store(MemoryStore::new())).await;
    let mut events = Events::open(world.post("/v1/agui/says-and-asks", &agui(&json!([])))).await;
    permits.add_permits(4);
    let mut seen = read(&mut events, 4, |sent| sent.json["type"] == "TEXT_MESSAGE_CONTENT").await;
    let run = answer(world.get("/v1/runs")).await.body["runs"][0]["runId"].clone();
    let run = run.as_str().expect("an id");
    let asked = answer(world.post(&format!("/v1/runs/{run}/emit"), &json!({"name": "ask"}))).await;
    assert_eq!(asked.status, StatusCode::OK);
    seen.extend(events.all().await);
    let interrupt = seen.last().expect("an end").json["outcome"]["interrupts"][0]["id"].clone();
    permits.add_permits(5);
    // The reply is complete before the client reconnects.
    let mut live = Events::open(world.get(&format!("/v1/runs/{run}/events"))).await;
    read(&mut live, 1, |sent| {
        sent.json["type"] == "NODE_COMPLETED" && sent.json["nodeId"] == "say"
    })
    .await;
    let resume = json!([{"interruptId": interrupt, "status": "resolved", "payload": "yes"}]);
    let rest = Events::open(world.post("/v1/agui/says-and-asks", &agui(&resume))).await;
    seen.extend(rest.all().await);
    assert_eq!(text(&seen, "TEXT_MESSAGE_CONTENT", "delta"), words(0..PIECES));
    assert_eq!(seen.last().expect("an end").json["outcome"]["type"], "success");
}

#[tokio::test]
async fn a_position_beyond_the_end_gives_the_end_event_and_an_invalid_one_is_refused() {
    let (world, permits) = world(Engine::builder().store(MemoryStore::new())).await;
    permits.add_permits(PIECES);
    let id = world.start("says", json!({"message": "go"})).await;
    let path = format!("/v1/runs/{id}/events");
    let endless = u64::MAX.to_string();
    // Requested while the run is under way or after its end.
    let beyond = Events::open(world.get(&format!("{path}?after={endless}")))
        .await
        .all()
        .await;
    assert_eq!(beyond.len(), 1, "{beyond:?}");
    assert_eq!(beyond[0].json["status"], "COMPLETED");
    let back = |position: &str| world.get(&path).header("last-event-id", position);
    for position in [endless.as_str(), "1000000", "7.18446744073709551615"] {
        let status = back(position).send().await.expect("an answer").status();
        let expected = if position.starts_with('7') {
            StatusCode::OK
        } else {
            StatusCode::NO_CONTENT
        };
        assert_eq!(status, expected, "{position}");
    }
    for wrong in ["-1", "x", "", "1.x", "18446744073709551616"] {
        assert_eq!(refusal(back(wrong)).await, (400, "INVALID_REQUEST".into()), "{wrong}");
        let after = world.get(&format!("{path}?after={wrong}"));
        assert_eq!(refusal(after).await, (400, "INVALID_REQUEST".into()), "{wrong}");
        let chat = world.get("/v1/chat/says/c1/stream").header("last-event-id", wrong);
        assert_eq!(refusal(chat).await, (400, "INVALID_REQUEST".into()), "{wrong}");
        let agui = world
            .get("/v1/agui/says?threadId=t&runId=r")
            .header("last-event-id", wrong);
        assert_eq!(refusal(agui).await, (400, "INVALID_REQUEST".into()), "{wrong}");
    }
}

#[tokio::test]
async fn an_interrupt_with_a_position_beyond_the_end_answers_its_question_and_ends_with_the_run() {
    let (world, permits) = world(Engine::builder().store(MemoryStore::new())).await;
    permits.add_permits(PIECES);
    let mut events = Events::open(world.post("/v1/agui/says-and-asks", &agui(&json!([])))).await;
    let mut seen = read(&mut events, 1, |sent| sent.json["type"] == "RUN_STARTED").await;
    let run = answer(world.get("/v1/runs")).await.body["runs"][0]["runId"].clone();
    let run = run.as_str().expect("an id");
    answer(world.post(&format!("/v1/runs/{run}/emit"), &json!({"name": "ask"}))).await;
    seen.extend(events.all().await);
    let interrupt = seen.last().expect("an end").json["outcome"]["interrupts"][0]["id"].clone();
    let (question, _) = interrupt
        .as_str()
        .and_then(|id| id.rsplit_once('@'))
        .expect("a position");
    for wrong in ["-1", "x", ""] {
        let resume = json!([{"interruptId": format!("{question}@{wrong}"), "status": "resolved", "payload": "yes"}]);
        let refused = Events::open(world.post("/v1/agui/says-and-asks", &agui(&resume))).await;
        let refused = refused.all().await;
        assert_eq!(refused[0].json["code"], "INVALID_VALUE", "{wrong}");
    }
    let beyond = format!("{question}@{}", u64::MAX);
    let resume = json!([{"interruptId": beyond, "status": "resolved", "payload": "yes"}]);
    let rest = Events::open(world.post("/v1/agui/says-and-asks", &agui(&resume))).await;
    let rest: Vec<Value> = rest.all().await.into_iter().map(|sent| sent.json).collect();
    assert_eq!(rest.last().expect("an end")["outcome"]["type"], "success");
    assert!(!types(&rest).contains(&"STEP_FINISHED"), "{rest:?}");
}
