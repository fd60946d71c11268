//! Requests about runs that another service owns: two services on one shared store forward them to each other.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use pirn::{Engine, Model, ModelCall, ModelReply, RunError};
use pirn_service::{Access, Options};
use reqwest::RequestBuilder;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::chats::client_tools::{self, tools};
use crate::chats::front_ends::{agui, types};
use crate::shared_store::SharedStore;
use crate::world::{Events, Sent, World, answer, refusal};

/// Replies in words. Each word waits for a permit.
struct Speaker(Arc<Semaphore>);

impl Model for Speaker {
    fn call(&self, call: ModelCall) -> BoxFuture<'static, Result<ModelReply, RunError>> {
        let permits = Arc::clone(&self.0);
        async move {
            for word in ["one ", "two ", "three"] {
                permits.acquire().await.expect("it is never closed").forget();
                call.tokens.put(word);
            }
            Ok(ModelReply {
                content: "one two three".to_owned(),
                ..ModelReply::default()
            })
        }
        .boxed()
    }
}

/// Two services on one store. The first owns the runs.
struct Pair {
    owner: World,
    other: World,
    /// The store of the owner.
    store: SharedStore,
    /// Permits for the words of the model.
    words: Arc<Semaphore>,
}

impl Pair {
    /// Returns services that can look up the owner's address.
    async fn new() -> Self {
        let pair = Self::with(Access::default()).await;
        pair.store.advertise(&format!("http://{}", pair.owner.address));
        pair
    }

    /// Returns services without addresses, the second one with these access rules.
    async fn with(access: Access) -> Self {
        let store = SharedStore::new();
        let words = Arc::new(Semaphore::new(0));
        let speaks = json!({"workflows": [{"id": "speaks",
            "nodes": [{"id": "start", "type": "START"},
                      {"id": "say", "type": "LLM", "config": {"prompt": "{{input.message}}", "profileId": "speaker"}},
                      {"id": "end", "type": "END", "config": {"output": "output.content"}}],
            "edges": [{"from": "start", "to": "say"}, {"from": "say", "to": "end"}]}],
          "profiles": [{"id": "speaker", "provider": "speaker"}]})
        .to_string();
        let world = async |store: SharedStore, access: Access| {
            let builder = Engine::builder().store(store).workflows(client_tools::WORKFLOWS);
            let builder = builder.workflows(speaks.clone());
            let builder = builder.model("speaker", Arc::new(Speaker(Arc::clone(&words))));
            let options = Options {
                access,
                ..Options::default()
            };
            World::of(builder, options).await
        };
        Self {
            owner: world(store.clone(), Access::default()).await,
            other: world(store.of_process(2), access).await,
            store,
            words,
        }
    }
}

fn events_of(world: &World, id: &str) -> RequestBuilder {
    world.get(&format!("/v1/runs/{id}/events"))
}

async fn rest(mut events: Events, read: &mut Vec<Sent>) {
    while let Some(event) = events.next().await {
        read.push(event);
    }
}

/// Reads up to and including the next piece of a reply.
async fn until_piece(events: &mut Events, read: &mut Vec<Sent>) -> Value {
    loop {
        let event = events.next().await.expect("the stream goes on");
        assert_ne!(event.name.as_deref(), Some("end"), "{event:?}");
        read.push(event.clone());
        if event.json["type"] == "LLM_TOKEN" {
            return event.json["text"].clone();
        }
    }
}

fn pieces(read: &[Sent]) -> usize {
    read.iter().filter(|event| event.json["type"] == "LLM_TOKEN").count()
}

#[tokio::test]
async fn a_reply_of_a_run_of_another_service_arrives_piece_by_piece_with_the_ids_of_its_owner() {
    let Pair {
        owner, other, words, ..
    } = Pair::new().await;
    let id = owner.start("speaks", json!({"message": "count"})).await;
    let mut there = Events::open(events_of(&other, &id)).await;
    let mut there_read = Vec::new();
    for word in ["one ", "two "] {
        // The model waits for the next permit until the reader has received the piece.
        words.add_permits(1);
        assert_eq!(until_piece(&mut there, &mut there_read).await, word);
    }
    let last = there_read
        .last()
        .and_then(|event| event.position.clone())
        .expect("an id");
    let back = Events::open(events_of(&other, &id).header("last-event-id", &last)).await;
    words.add_permits(1);
    let after_last = there_read.len();
    rest(there, &mut there_read).await;
    let mut here_read = Vec::new();
    rest(Events::open(events_of(&owner, &id)).await, &mut here_read).await;
    assert_eq!(there_read, here_read);
    let mut back_read = Vec::new();
    rest(back, &mut back_read).await;
    assert_eq!(back_read, there_read[after_last..], "the client reconnected");
    assert_eq!(pieces(&there_read), 3);
}

#[tokio::test]
async fn a_front_end_that_reconnects_at_another_service_receives_the_pieces_of_the_reply() {
    let Pair {
        owner, other, words, ..
    } = Pair::new().await;
    let message = json!({"id": "m1", "role": "user", "content": "count", "parts": [{"type": "text", "text": "count"}]});
    let input = json!({"threadId": "t1", "runId": "r1", "messages": [message]});
    let body = json!({"id": "c1", "messages": [message]});
    for (start, body, again) in [
        ("/v1/agui/speaks", input, "/v1/agui/speaks?threadId=t1&runId=r1"),
        ("/v1/chat/speaks", body, "/v1/chat/speaks/c1/stream"),
    ] {
        let mut here = Events::open(owner.post(start, &body)).await;
        let mut there = Events::open(other.get(again)).await;
        for word in ["one ", "two ", "three"] {
            words.add_permits(1);
            for stream in [&mut here, &mut there] {
                while stream.next().await.expect("the reply").json["delta"] != word {}
            }
        }
        let (mut here_read, mut there_read) = (Vec::new(), Vec::new());
        rest(here, &mut here_read).await;
        rest(there, &mut there_read).await;
        assert_eq!(there_read, here_read, "{again}");
    }
}

#[tokio::test]
async fn an_interrupt_of_a_run_of_another_service_is_answered_over_agui() {
    let Pair { owner, other, .. } = Pair::new().await;
    let asked = agui(&owner, "asks").await;
    let interrupt = asked.last().expect("an end")["outcome"]["interrupts"][0]["id"].clone();
    let resume = json!([{"interruptId": interrupt, "status": "resolved", "payload": "blue"}]);
    let input = json!({"threadId": "t1", "runId": "r2", "messages": [], "resume": resume});
    let mut there = Vec::new();
    rest(Events::open(other.post("/v1/agui/asks", &input)).await, &mut there).await;
    let last = there.last().expect("an end");
    assert_eq!(
        (&last.json["type"], &last.json["result"]),
        (&json!("RUN_FINISHED"), &json!(["blue", null])),
        "{there:?}"
    );
    let mut here = Vec::new();
    rest(Events::open(owner.post("/v1/agui/asks", &input)).await, &mut here).await;
    assert_eq!(there, here, "the same answer again has the same stream");
}

#[tokio::test]
async fn results_of_the_tools_of_a_front_end_reach_a_run_of_another_service() {
    let Pair { owner, other, .. } = Pair::new().await;
    let all = async |request: RequestBuilder| {
        let events = Events::open(request).await.all().await.into_iter();
        events.map(|event| event.json).collect::<Vec<_>>()
    };
    let user = json!({"id": "m", "role": "user", "content": "where?", "parts": [{"type": "text", "text": "where?"}]});

    let input = |messages: Value| json!({"threadId": "t1", "runId": "r1", "tools": tools(), "messages": messages});
    all(owner.post("/v1/agui/guide", &input(json!([user])))).await;
    let call = json!({"id": "g1", "type": "function", "function": {"name": "location", "arguments": "{}"}});
    let reply = json!({"id": "a", "role": "assistant", "toolCalls": [call]});
    let result = json!({"id": "x", "role": "tool", "toolCallId": "g1", "content": "Oslo"});
    let continued = all(other.post("/v1/agui/guide", &input(json!([user, reply, result])))).await;
    let calls = continued
        .iter()
        .filter(|event| event["type"] == "TOOL_CALL_START")
        .count();
    assert_eq!(calls, 2, "the next calls of the same run: {continued:?}");

    let body = |messages: Value| json!({"id": "c1", "tools": tools(), "messages": messages});
    let first = all(owner.post("/v1/chat/guide", &body(json!([user])))).await;
    let part = json!({"type": "dynamic-tool", "toolName": "location", "toolCallId": "g1", "state": "output-available", "output": "Oslo"});
    let reply = json!({"id": first[0]["messageId"], "role": "assistant", "parts": [part]});
    let continued = all(other.post("/v1/chat/guide", &body(json!([user, reply])))).await;
    let calls = continued
        .iter()
        .filter(|chunk| chunk["type"] == "tool-input-available")
        .count();
    assert_eq!(calls, 2, "the next calls of the same run: {continued:?}");
}

#[tokio::test]
async fn a_steering_message_of_a_front_end_reaches_the_run_of_another_service() {
    let Pair {
        owner, other, words, ..
    } = Pair::new().await;
    let message = |id: &str| json!({"id": id, "role": "user", "content": id, "parts": [{"type": "text", "text": id}]});
    let body = |id: &str| json!({"id": "c1", "threadId": "t1", "runId": "r1", "steering": true, "forwardedProps": {"steering": true}, "messages": [message(id)]});
    for path in ["/v1/agui/speaks", "/v1/chat/speaks"] {
        let mut first = Events::open(owner.post(path, &body("first"))).await;
        let is_said = |event: Value| event["stepName"] == "say" || event["data"]["nodeId"] == "say";
        while !is_said(first.next().await.expect("the run goes on").json) {}
        let steered = Events::open(other.post(path, &body("second"))).await.all().await;
        let steered: Vec<Value> = steered.into_iter().map(|event| event.json).collect();
        let is_empty = types(&steered) == ["RUN_STARTED", "RUN_FINISHED"] || types(&steered) == ["start", "finish"];
        assert!(is_empty, "no run was started: {steered:?}");
        // The message makes the node call its model once more.
        words.add_permits(6);
        let said = first.all().await;
        let said = said.iter().filter(|event| event.json["delta"] == "three").count();
        assert_eq!(said, 2, "{path}");
    }
}

/// Reads a stream until the run waits in its gate, after a reply.
async fn to_gate(request: RequestBuilder) -> Vec<Sent> {
    let (mut events, mut read) = (Events::open(request).await, Vec::new());
    loop {
        let event = events.next().await.expect("the stream goes on");
        let is_found = event.json["type"] == "NODE_STARTED" && event.json["nodeId"] == "gate";
        read.push(event);
        if is_found {
            return read;
        }
    }
}

/// Starts a run that waits after a reply. Returns its id and its events at the owner.
async fn waiting(pair: &Pair) -> (String, Vec<Sent>) {
    let id = pair.owner.start("talks-then-waits", json!({"message": "hello"})).await;
    let whole = to_gate(events_of(&pair.owner, &id)).await;
    assert_eq!(pieces(&whole), 3);
    (id, whole)
}

/// Returns the events without the pieces of replies, which the journal does not have.
fn journaled(events: &[Sent]) -> Vec<Sent> {
    let others = events.iter().filter(|event| event.json["type"] != "LLM_TOKEN");
    others.cloned().collect()
}

#[tokio::test]
async fn a_forwarded_request_is_not_forwarded_again() {
    let pair = Pair::new().await;
    let (id, whole) = waiting(&pair).await;
    let marked = events_of(&pair.other, &id).header("pirn-forwarded", "1");
    assert_eq!(to_gate(marked).await, journaled(&whole));
    assert_eq!(to_gate(events_of(&pair.other, &id)).await, whole);
    // As after a restart: the address of the owner is that of the service itself.
    pair.store.advertise(&format!("http://{}", pair.other.address));
    assert_eq!(to_gate(events_of(&pair.other, &id)).await, journaled(&whole));
}

/// Returns access rules with one token.
fn token(token: &str) -> Access {
    Access {
        tokens: vec![token.to_owned()],
        ..Access::default()
    }
}

#[tokio::test]
async fn the_events_come_from_the_journal_if_the_owner_does_not_answer_or_does_not_know_the_token() {
    let pair = Pair::with(token("s3cret")).await;
    let (id, whole) = waiting(&pair).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let closed = listener.local_addr().expect("an address");
    drop(listener);
    let refusing = World::with(Options {
        access: token("another"),
        ..Options::default()
    });
    let refusing = refusing.await;
    for address in [closed, refusing.address] {
        pair.store.advertise(&format!("http://{address}"));
        let read = to_gate(events_of(&pair.other, &id)).await;
        assert_eq!(read, journaled(&whole), "{address}");
    }
}

/// Answers requests with `answer`.
async fn answering(listener: TcpListener, answer: String) {
    loop {
        let (mut connection, _) = listener.accept().await.expect("a connection");
        let (mut head, answer) = (Vec::new(), answer.clone());
        while !head.ends_with(b"\r\n\r\n") {
            head.push(connection.read_u8().await.expect("a request"));
        }
        connection.write_all(answer.as_bytes()).await.expect("written");
    }
}

#[tokio::test]
async fn an_answer_of_another_server_at_the_address_of_the_owner_is_not_passed_on() {
    let pair = Pair::new().await;
    let (id, whole) = waiting(&pair).await;
    let input = json!({"threadId": "t1", "runId": "r1", "forwardedProps": {"steering": true},
        "messages": [{"id": "m", "role": "user", "content": "hello"}]});
    let mut first = Events::open(pair.owner.post("/v1/agui/speaks", &input)).await;
    while first.next().await.expect("the run goes on").json["stepName"] != "say" {}
    for head in [
        "200 OK\r\ncontent-type: text/html",
        "200 OK",
        "301 Moved Permanently\r\nlocation: https://other.example/",
        "308 Permanent Redirect\r\nlocation: https://other.example/",
        "404 Not Found\r\ncontent-type: text/html",
        "404 Not Found\r\ncontent-type: application/problem+json",
        "500 Internal Server Error\r\ncontent-type: application/json",
        "502 Bad Gateway\r\ncontent-type: text/html",
        "503 Service Unavailable",
    ] {
        let owner = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = owner.local_addr().expect("an address");
        pair.store.advertise(&format!("http://{address}"));
        let answer = format!("HTTP/1.1 {head}\r\nset-cookie: a=b\r\ncontent-length: 2\r\nconnection: close\r\n\r\nno");
        let other = tokio::spawn(answering(owner, answer));
        assert_eq!(to_gate(events_of(&pair.other, &id)).await, journaled(&whole), "{head}");
        if head.ends_with("problem+json") {
            other.abort();
            continue;
        }
        // The run may have received the message.
        let refused = pair
            .other
            .post("/v1/agui/speaks", &input)
            .send()
            .await
            .expect("an answer");
        assert_eq!(refused.status(), 502, "{head}");
        let refused = refused.text().await.expect("a text");
        assert!(refused.contains("OWNER_UNREACHABLE"), "{head}: {refused}");
        assert!(!refused.contains(&address.port().to_string()), "{refused}");
        other.abort();
    }
}

/// Event that the owner's double sends, with the head of its response.
const STARTED: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n\
                       13\r\nid: 2\ndata: \"two\"\n\n\r\n";

/// Answers a request with one event of a stream that stays open. Returns the connection and the head of the request.
async fn started(listener: &TcpListener) -> (TcpStream, String) {
    let (mut connection, _) = listener.accept().await.expect("a connection");
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        head.push(char::from(connection.read_u8().await.expect("a request")));
    }
    connection.write_all(STARTED.as_bytes()).await.expect("written");
    (connection, head)
}

#[tokio::test]
async fn a_stream_breaks_off_when_the_owner_dies_and_the_client_gets_the_events_after_the_last_one() {
    let pair = Pair::with(token("s3cret")).await;
    let (id, whole) = waiting(&pair).await;
    let owner = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = owner.local_addr().expect("an address");
    pair.store.advertise(&format!("http://{address}/base/"));
    let request = events_of(&pair.other, &id).header("last-event-id", "1");
    let (answer, (connection, head)) = tokio::join!(request.send(), started(&owner));
    let line = format!("GET /base/v1/runs/{id}/events HTTP/1.1\r\n");
    assert!(head.starts_with(&line), "{head}");
    for header in [
        "authorization: Bearer s3cret",
        "last-event-id: 1",
        "pirn-forwarded: 1",
        &format!("host: {address}"),
    ] {
        assert!(head.contains(&format!("\r\n{header}\r\n")), "{header}: {head}");
    }
    let mut answer = answer.expect("an answer");
    assert_eq!(answer.headers()["content-type"], "text/event-stream");
    let chunk = answer.chunk().await.expect("the stream goes on");
    assert_eq!(chunk.as_deref(), Some("id: 2\ndata: \"two\"\n\n".as_bytes()));
    drop((connection, owner));
    answer.chunk().await.expect_err("no end of the stream");
    let back = events_of(&pair.other, &id).header("last-event-id", "2");
    assert_eq!(to_gate(back).await, journaled(&whole)[2..]);
}

#[tokio::test]
async fn a_request_that_the_owner_may_have_received_is_not_executed_by_another_service() {
    let pair = Pair::new().await;
    let input = json!({"threadId": "t1", "runId": "r1", "forwardedProps": {"steering": true},
        "messages": [{"id": "m", "role": "user", "content": "hello"}]});
    let mut first = Events::open(pair.owner.post("/v1/agui/speaks", &input)).await;
    while first.next().await.expect("the run goes on").json["stepName"] != "say" {}
    let owner = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    pair.store
        .advertise(&format!("http://{}", owner.local_addr().expect("an address")));
    let dies = async {
        let (mut connection, _) = owner.accept().await.expect("a connection");
        connection.read_u8().await.expect("a request");
    };
    let (refused, ()) = tokio::join!(refusal(pair.other.post("/v1/agui/speaks", &input)), dies);
    assert_eq!(refused, (502, "OWNER_UNREACHABLE".into()));
    let runs = answer(pair.other.get("/v1/runs?workflow=speaks")).await.body;
    assert_eq!(runs["runs"].as_array().map(Vec::len), Some(1), "{runs}");
}

#[tokio::test]
async fn a_client_that_disconnects_closes_the_stream_of_the_owner() {
    let pair = Pair::with(Access::default()).await;
    let (id, _) = waiting(&pair).await;
    let owner = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    pair.store
        .advertise(&format!("http://{}", owner.local_addr().expect("an address")));
    let (answer, (mut connection, _)) = tokio::join!(events_of(&pair.other, &id).send(), started(&owner));
    drop(answer.expect("an answer"));
    let closed = connection.read(&mut [0]).await;
    assert!(matches!(closed, Ok(0) | Err(_)), "{closed:?}");
}
