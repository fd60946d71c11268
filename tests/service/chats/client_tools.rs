//! Tools of front ends: a model calls them, the front end executes them, and its next request continues the run.

use pirn::Engine;
use pirn::store::MemoryStore;
use pirn_service::Options;
use serde_json::{Value, json};

use crate::chats::clients::client;
use crate::chats::front_ends::types;
use crate::shared_store::SharedStore;
use crate::world::{Events, World, answer, refusal};

/// A workflow whose model calls a tool of the client and one of the node, then two tools of the client.
pub(crate) const WORKFLOWS: &str = r#"{"workflows": [
    {"id": "guide",
     "nodes": [{"id": "start", "type": "START"},
               {"id": "ask", "type": "LLM", "config": {"prompt": "{{input.message}}", "profileId": "guide", "tools": ["clock"]}},
               {"id": "end", "type": "END", "config": {"output": "nodes['ask'].content"}}],
     "edges": [{"from": "start", "to": "ask"}, {"from": "ask", "to": "end"}]}],
  "profiles": [{"id": "guide", "provider": "scripted", "responses": [
    {"content": "let me look", "toolCalls": [
        {"id": "g1", "name": "location", "arguments": {"precise": true}}, {"id": "g2", "name": "clock", "arguments": {}}]},
    {"toolCalls": [{"id": "g3", "name": "location", "arguments": {}}, {"id": "g4", "name": "confirm", "arguments": {"text": "Go?"}}]},
    {"content": "you are in Oslo"}]}]}"#;

async fn world() -> World {
    World::of(Engine::builder().workflows(WORKFLOWS), Options::default()).await
}

pub(crate) fn tools() -> Value {
    json!([
        {"name": "location", "description": "Returns the city.", "parameters": {"type": "object", "properties": {"precise": {"type": "boolean"}}}},
        {"name": "confirm", "description": "Asks the user.", "parameters": {"type": "object"}},
    ])
}

fn agui_input(messages: &Value) -> Value {
    json!({"threadId": "t1", "runId": "r1", "state": {}, "tools": tools(), "context": [], "forwardedProps": {}, "messages": messages})
}

async fn agui(world: &World, messages: &Value) -> Vec<Value> {
    let events = Events::open(world.post("/v1/agui/guide", &agui_input(messages))).await;
    events.all().await.into_iter().map(|event| event.json).collect()
}

fn called(events: &[Value], start: &str) -> Vec<String> {
    let starts = events.iter().filter(|event| event["type"] == start);
    starts
        .filter_map(|event| event["toolCallId"].as_str().map(str::to_owned))
        .collect()
}

#[tokio::test]
async fn an_agui_client_executes_its_tools_and_its_next_inputs_continue_the_run() {
    let world = world().await;
    let user = json!({"id": "m", "role": "user", "content": "where am I?"});
    let first = agui(&world, &json!([user])).await;
    assert_eq!(called(&first, "TOOL_CALL_START"), ["g1", "g2"]);
    assert_eq!(
        called(&first, "TOOL_CALL_RESULT"),
        ["g2"],
        "only the tool of the node has a result"
    );
    let last = first.last().expect("an end");
    assert_eq!(
        (&last["type"], &last["outcome"]),
        (&json!("RUN_FINISHED"), &json!({"type": "success"}))
    );
    assert!(last.get("result").is_none(), "the run has not ended: {last}");

    // While the call is open: the interaction is listed, and another run is refused.
    let open = answer(world.get("/v1/interactions")).await.body;
    let asked = &open["interactions"][0];
    assert_eq!(
        asked["clientTool"],
        json!({"name": "location", "arguments": {"precise": true}, "toolCallId": "g1"}),
        "{open}"
    );
    let refused = agui(&world, &json!([user, {"id": "n", "role": "user", "content": "hello?"}])).await;
    assert_eq!(
        (types(&refused), &refused[0]["code"]),
        (vec!["RUN_ERROR"], &json!("INTERRUPTS_OPEN"))
    );
    assert!(
        refused[0]["message"]
            .as_str()
            .is_some_and(|text| text.contains("g1 (location)")),
        "{refused:?}"
    );

    let reply = |calls: Value| json!({"id": "a", "role": "assistant", "toolCalls": calls});
    let call =
        |id: &str, name: &str| json!({"id": id, "type": "function", "function": {"name": name, "arguments": "{}"}});
    let mut messages = vec![user, reply(json!([call("g1", "location"), call("g2", "clock")]))];
    messages.push(json!({"id": "x1", "role": "tool", "toolCallId": "g1", "content": "Oslo"}));
    let second = agui(&world, &json!(messages)).await;
    assert_eq!(types(&second)[0], "RUN_STARTED");
    assert_eq!(
        called(&second, "TOOL_CALL_START"),
        ["g3", "g4"],
        "the first calls are not sent again"
    );
    assert_eq!(
        called(&second, "TOOL_CALL_RESULT"),
        [""; 0],
        "the client has the results of its tools"
    );

    // One of two results: the stream ends again with the other call open.
    messages.push(reply(json!([call("g3", "location"), call("g4", "confirm")])));
    messages.push(json!({"id": "x3", "role": "tool", "toolCallId": "g3", "content": "", "error": "no permission"}));
    let third = agui(&world, &json!(messages)).await;
    assert_eq!(third.last().expect("an end")["type"], "RUN_FINISHED");
    messages.push(json!({"id": "x4", "role": "tool", "toolCallId": "g4", "content": "yes"}));
    let fourth = agui(&world, &json!(messages)).await;
    let last = fourth.last().expect("an end");
    assert_eq!(
        (&last["type"], &last["result"]),
        (&json!("RUN_FINISHED"), &json!("you are in Oslo"))
    );
    // The client has not received the end and repeats its input.
    let again = agui(&world, &json!(messages)).await;
    assert_eq!(again.last(), Some(last));

    let runs = answer(world.get("/v1/runs?workflow=guide")).await.body;
    assert_eq!(
        runs["runs"].as_array().map(Vec::len),
        Some(1),
        "one run for all inputs: {runs}"
    );
    let run = runs["runs"][0]["runId"].as_str().expect("a run");
    let report = answer(world.get(&format!("/v1/runs/{run}"))).await.body;
    let messages = report["conversation"]["messages"].as_array().expect("messages").clone();
    let result = |id: &str| {
        messages
            .iter()
            .find(|message| message["toolCallId"] == id)
            .map(|message| message["content"].clone())
    };
    assert_eq!(result("g1"), Some(json!("Oslo")));
    assert_eq!(result("g3"), Some(json!("no permission")), "{messages:?}");
}

#[tokio::test]
async fn a_repeated_input_with_results_and_a_message_starts_no_second_run() {
    let world = world().await;
    let user = |id: &str, text: &str| json!({"id": id, "role": "user", "content": text, "parts": [{"type": "text", "text": text}]});
    let result = json!({"id": "a1", "role": "tool", "toolCallId": "g1", "content": "Oslo"});
    agui(&world, &json!([user("m", "where am I?")])).await;
    let input = json!([user("m", "where am I?"), {"id": "a", "role": "assistant", "toolCalls": []}, result, user("n", "quickly")]);
    let page = |messages: &Value| {
        world.post(
            "/v1/chat/guide",
            &json!({"id": "c9", "messages": messages, "tools": tools()}),
        )
    };
    let first = Events::open(page(&json!([question()]))).await.all().await;
    let mut messages = request(&first[0].json["messageId"], &["g1"]);
    messages.as_array_mut().expect("a list").push(user("n", "quickly"));
    for _ in 0..2 {
        assert_eq!(called(&agui(&world, &input).await, "TOOL_CALL_START"), ["g3", "g4"]);
        let events = Events::open(page(&messages)).await.all().await;
        let events: Vec<Value> = events.into_iter().map(|event| event.json).collect();
        assert_eq!(called(&events, "tool-input-available"), ["g3", "g4"], "{events:#?}");
    }
    let runs = answer(world.get("/v1/runs")).await.body;
    assert_eq!(runs["runs"].as_array().expect("runs").len(), 2, "{runs}");
}

#[tokio::test]
async fn a_page_that_steers_sends_results_of_its_tools_and_messages_while_a_call_is_open() {
    let world = world().await;
    let steering = |messages: &Value| {
        let body = json!({"id": "c9", "steering": true, "messages": messages, "tools": tools()});
        world.post("/v1/chat/guide", &body)
    };
    let first = Events::open(steering(&json!([question()]))).await.all().await;
    let mut messages = request(&first[0].json["messageId"], &["g1"]);
    let events = Events::open(steering(&messages)).await.all().await;
    let events: Vec<Value> = events.into_iter().map(|event| event.json).collect();
    assert_eq!(called(&events, "tool-input-available"), ["g3", "g4"], "{events:#?}");
    let text = json!({"id": "n", "role": "user", "parts": [{"type": "text", "text": "quickly"}]});
    messages.as_array_mut().expect("a list").push(text);
    let steered = Events::open(steering(&messages)).await.all().await;
    assert_eq!(steered.len(), 3, "its stream is empty");
    let runs = answer(world.get("/v1/runs")).await.body;
    let id = runs["runs"][0]["runId"].as_str().expect("an id");
    let run = answer(world.get(&format!("/v1/runs/{id}"))).await.body;
    assert_eq!(run["waitingMessages"][0]["text"], "quickly", "{run}");
}

#[tokio::test]
async fn a_message_without_text_does_not_keep_results_from_the_run() {
    let world = world().await;
    let user = json!({"id": "m", "role": "user", "content": "where am I?"});
    let image =
        json!({"id": "n", "role": "user", "content": [{"type": "binary", "mimeType": "image/png", "data": "AA=="}]});
    agui(&world, &json!([user])).await;
    let result = json!({"id": "a1", "role": "tool", "toolCallId": "g1", "content": "Oslo"});
    let next = agui(
        &world,
        &json!([user, {"id": "a", "role": "assistant", "toolCalls": []}, result, image]),
    )
    .await;
    assert_eq!(called(&next, "TOOL_CALL_START"), ["g3", "g4"], "{next:#?}");
}

#[tokio::test]
async fn results_of_calls_that_are_not_open_are_refused() {
    let world = world().await;
    let user = json!({"id": "m", "role": "user", "content": "where am I?"});
    let call = json!({"id": "g1", "type": "function", "function": {"name": "location", "arguments": "{}"}});
    let reply = json!({"id": "a", "role": "assistant", "toolCalls": [call]});
    let result = json!({"id": "x1", "role": "tool", "toolCallId": "g1", "content": "Oslo"});
    let refused = agui(&world, &json!([user, reply, result])).await;
    assert_eq!(
        (types(&refused), &refused[0]["code"]),
        (vec!["RUN_ERROR"], &json!("INTERACTION_CLOSED"))
    );
    let after = json!({"id": "n", "role": "user", "content": "hello?"});
    let started = agui(&world, &json!([user, reply, result, after])).await;
    assert_eq!(
        started.last().expect("an end")["type"],
        "RUN_FINISHED",
        "a new message starts a run"
    );
}

async fn chat(world: &World, messages: &Value) -> Vec<Value> {
    let body = json!({"id": "c7", "trigger": "submit-message", "messages": messages, "tools": tools()});
    let events = Events::open(world.post("/v1/chat/guide", &body)).await;
    let chunks = events.all().await.into_iter().map(|event| event.json);
    // Without the end of the stream, `[DONE]`.
    chunks.filter(Value::is_object).collect()
}

#[tokio::test]
async fn a_page_executes_its_tools_and_its_next_requests_continue_the_run() {
    let world = world().await;
    let user = json!({"id": "m", "role": "user", "parts": [{"type": "text", "text": "where am I?"}]});
    let first = chat(&world, &json!([user])).await;
    let input = first
        .iter()
        .find(|chunk| chunk["toolCallId"] == "g1")
        .expect("the call");
    assert_eq!(
        input,
        &json!({"type": "tool-input-available", "toolCallId": "g1", "toolName": "location", "input": {"precise": true}})
    );
    assert!(
        first
            .iter()
            .all(|chunk| chunk["toolCallId"] != "g1" || chunk["type"] == "tool-input-available")
    );
    assert_eq!(types(&first[first.len() - 2..]), ["finish-step", "finish"]);
    let id = first[0]["messageId"].clone();
    let more = json!([user, {"id": "n", "role": "user", "parts": [{"type": "text", "text": "hello?"}]}]);
    let reply = |parts: Value| json!({"id": id, "role": "assistant", "parts": parts});
    let pending = json!({"type": "tool-location", "toolCallId": "g1", "state": "input-available", "input": {}});
    // A new message, a repeated request, and a page that has lost the reply: a new run would wait for the result forever.
    for messages in [
        json!([user, reply(json!([pending])), more[1]]),
        json!([user, reply(json!([pending]))]),
        json!([user]),
        more.clone(),
    ] {
        let request = world.post("/v1/chat/guide", &json!({"id": "c7", "messages": messages}));
        assert_eq!(refusal(request).await, (409, "INTERRUPTS_OPEN".into()), "{messages}");
    }

    let settled = |id: &str, name: &str, output: &str| json!({"type": format!("tool-{name}"), "toolCallId": id, "state": "output-available", "input": {}, "output": output});
    let located = settled("g1", "location", "Oslo");
    let second = chat(&world, &json!([user, reply(json!([located]))])).await;
    assert_eq!(
        second[0],
        json!({"type": "start", "messageId": id, "messageMetadata": {"runId": id}})
    );
    assert_eq!(called(&second, "tool-input-available"), ["g3", "g4"]);
    let answered = json!([
        located,
        settled("g3", "location", "Oslo"),
        settled("g4", "confirm", "yes")
    ]);
    let third = chat(&world, &json!([user, reply(answered)])).await;
    assert_eq!(types(&third[third.len() - 2..]), ["finish-step", "finish"]);
    let text: String = third.iter().filter_map(|chunk| chunk["delta"].as_str()).collect();
    assert_eq!(text, "you are in Oslo");
}

/// The first message of a page.
fn question() -> Value {
    json!({"id": "m", "role": "user", "parts": [{"type": "text", "text": "where am I?"}]})
}

/// Returns the messages of a page that has results of these calls of a reply.
fn request(reply: &Value, calls: &[&str]) -> Value {
    let settled = |id: &&str| json!({"type": "dynamic-tool", "toolName": "t", "toolCallId": id, "state": "output-available", "output": "Oslo"});
    let parts: Vec<Value> = calls.iter().map(settled).collect();
    json!([question(), {"id": reply, "role": "assistant", "parts": parts}])
}

#[tokio::test]
async fn a_repeated_request_of_a_page_continues_a_run_that_another_process_executes() {
    let store = SharedStore::new();
    let world = async |store: SharedStore| {
        let builder = Engine::builder().store(store).workflows(WORKFLOWS);
        World::of(builder, Options::default()).await
    };
    let (owner, other) = (world(store.clone()).await, world(store.of_process(2)).await);
    let reply = chat(&owner, &json!([question()])).await[0]["messageId"].clone();
    let messages = request(&reply, &["g1"]);
    for world in [&owner, &other] {
        let continued = chat(world, &messages).await;
        assert_eq!(
            called(&continued, "tool-input-available"),
            ["g3", "g4"],
            "{continued:?}"
        );
        assert_eq!(types(&continued[continued.len() - 2..]), ["finish-step", "finish"]);
    }
}

#[tokio::test]
async fn a_repeated_request_of_a_page_starts_no_second_run_after_a_restart() {
    let store = MemoryStore::new();
    let world = async || {
        let builder = Engine::builder().store(store.clone()).workflows(WORKFLOWS);
        World::of(builder, Options::default()).await
    };
    let first = world().await;
    let reply = chat(&first, &json!([question()])).await[0]["messageId"].clone();
    chat(&first, &request(&reply, &["g1"])).await;
    let last = request(&reply, &["g1", "g3", "g4"]);
    let ended = chat(&first, &last).await;
    assert_eq!(ended.last(), Some(&json!({"type": "finish"})), "{ended:?}");
    first.service.shut_down(std::time::Duration::ZERO).await;

    let second = world().await;
    let again = chat(&second, &last).await;
    assert_eq!(again.last(), Some(&json!({"type": "finish"})), "{again:?}");
    let text: String = again.iter().filter_map(|chunk| chunk["delta"].as_str()).collect();
    assert!(text.ends_with("you are in Oslo"), "{text}");
    for (reply, calls) in [(&reply, "other"), (&json!("none"), "g1")] {
        let body = json!({"id": "c7", "messages": request(reply, &[calls])});
        let refused = refusal(second.post("/v1/chat/guide", &body)).await;
        assert_eq!(refused, (409, "INTERACTION_CLOSED".into()), "{body}");
    }
    let runs = answer(second.get("/v1/runs?workflow=guide")).await.body;
    assert_eq!(runs["runs"].as_array().map(Vec::len), Some(1), "{runs}");
}

#[tokio::test]
async fn a_repeated_input_of_an_agui_client_starts_no_second_run_after_a_restart() {
    let store = MemoryStore::new();
    let world = async || {
        let builder = Engine::builder().store(store.clone()).workflows(WORKFLOWS);
        World::of(builder, Options::default()).await
    };
    let user = json!({"id": "m", "role": "user", "content": "where am I?"});
    let call = |id: &str| json!({"id": id, "type": "function", "function": {"name": "location", "arguments": "{}"}});
    let reply = |calls: &[&str]| {
        let calls: Vec<Value> = calls.iter().map(|id| call(id)).collect();
        json!({"id": "a", "role": "assistant", "toolCalls": calls})
    };
    let result = |id: &str| json!({"id": id, "role": "tool", "toolCallId": id, "content": "Oslo"});
    let first = world().await;
    agui(&first, &json!([user])).await;
    agui(&first, &json!([user, reply(&["g1"]), result("g1")])).await;
    let last = json!([
        user,
        reply(&["g1"]),
        result("g1"),
        reply(&["g3", "g4"]),
        result("g3"),
        result("g4")
    ]);
    let ended = agui(&first, &last).await;
    assert_eq!(ended.last().expect("an end")["result"], "you are in Oslo", "{ended:?}");
    first.service.shut_down(std::time::Duration::ZERO).await;

    let second = world().await;
    let again = agui(&second, &last).await;
    assert_eq!(again.last(), ended.last(), "{again:?}");
    let other = agui(&second, &json!([user, reply(&["other"]), result("other")])).await;
    assert_eq!(other[0]["code"], "INTERACTION_CLOSED", "{other:?}");
    let runs = answer(second.get("/v1/runs?workflow=guide")).await.body;
    assert_eq!(runs["runs"].as_array().map(Vec::len), Some(1), "{runs}");
}

#[tokio::test]
async fn the_openapi_document_accepts_every_form_of_tools_and_payloads() {
    let world = world().await;
    let document = answer(world.get("/openapi.json")).await.body;
    for (name, body) in [
        ("Chat", json!({"messages": [], "tools": tools()})),
        (
            "Chat",
            json!({"messages": [], "tools": {"location": {"parameters": {"type": "object"}}}}),
        ),
        (
            "Resume",
            json!({"interruptId": "x@1", "status": "resolved", "payload": "blue"}),
        ),
        (
            "Resume",
            json!({"interruptId": "x@1", "status": "resolved", "payload": {"approved": true}}),
        ),
    ] {
        let schema = json!({"$ref": format!("#/components/schemas/{name}"), "components": document["components"]});
        let validator = jsonschema::validator_for(&schema).expect("a schema");
        assert!(validator.is_valid(&body), "{name}: {body}");
    }
}

#[tokio::test]
async fn a_client_of_the_rest_api_offers_tools_and_answers_their_calls() {
    let world = world().await;
    let start = |tools: Value| json!({"workflow": "guide", "input": {"message": "hi"}, "clientTools": tools});
    for (tools, part) in [
        (
            json!([{"name": "clock", "parameters": {"type": "object"}}]),
            "tool of the node `ask`",
        ),
        (json!([{"name": "two words"}]), "a name has"),
        (json!([{"name": "recall"}]), "built-in"),
        (json!([{"name": "x", "parameters": {"type": "string"}}]), "of an object"),
    ] {
        let refused = answer(world.post("/v1/runs", &start(tools))).await;
        assert_eq!(refused.status, 422);
        assert!(
            refused.body["detail"].as_str().is_some_and(|text| text.contains(part)),
            "{}",
            refused.body
        );
    }
    let run = answer(world.post("/v1/runs", &start(tools()))).await.body["runId"].clone();
    let run = run.as_str().expect("a run");
    let open = async || {
        loop {
            let open = answer(world.get(&format!("/v1/runs/{run}/interactions"))).await.body;
            match open["interactions"].as_array().filter(|open| !open.is_empty()) {
                Some(open) => break open.clone(),
                None => tokio::task::yield_now().await,
            }
        }
    };
    let asked = open().await;
    let url = format!("/v1/interactions/{}", asked[0]["id"].as_str().expect("an id"));
    for wrong in [
        json!("Oslo"),
        json!({}),
        json!({"output": 1, "error": "x"}),
        json!({"error": 7}),
    ] {
        let refused = answer(world.post(&url, &json!({"answer": wrong}))).await.body;
        assert_eq!(refused["code"], "INVALID_ANSWER", "{refused}");
    }
    answer(world.post(&url, &json!({"answer": {"output": {"city": "Oslo"}}}))).await;
    let both = loop {
        let both = open().await;
        if both.len() == 2 {
            break both;
        }
    };
    for asked in both {
        let url = format!("/v1/interactions/{}", asked["id"].as_str().expect("an id"));
        answer(world.post(&url, &json!({"answer": {"error": "denied"}}))).await;
    }
    let mut events = Events::open(world.get(&format!(
        "/v1/runs/{run}/events?types=TOOL_CALL_COMPLETED,TOOL_CALL_FAILED"
    )))
    .await;
    let mut ended = Vec::new();
    while let Some(event) = events.next().await {
        ended.push((
            event.json["toolCallId"].clone(),
            event.json["client"].clone(),
            event.json["result"].clone(),
        ));
    }
    assert!(
        ended.contains(&(json!("g1"), json!(true), json!("{\"city\":\"Oslo\"}"))),
        "{ended:?}"
    );
    assert!(
        ended.contains(&(json!("g4"), json!(true), json!("denied"))),
        "{ended:?}"
    );
}

#[cfg(unix)]
#[tokio::test]
async fn a_call_of_a_front_end_survives_a_kill_of_the_service() {
    use crate::command::{Served, folder};
    let folder = folder("client-tools");
    std::fs::write(
        folder.join("guide.json"),
        WORKFLOWS.replace(r#", "tools": ["clock"]"#, ""),
    )
    .expect("a file");
    let serve = || Served::start(&folder, &["guide.json", "--store", "runs.db", "--grace", "0"]);
    let input = async |served: &Served, messages: Value| -> Vec<Value> {
        let client = reqwest::Client::builder().no_proxy().build().expect("a client");
        let request = client
            .post(format!("{}/v1/agui/guide", served.url.trim()))
            .header("content-type", "application/json");
        let events = Events::open(request.body(agui_input(&messages).to_string())).await;
        events.all().await.into_iter().map(|event| event.json).collect()
    };
    let user = json!({"id": "m", "role": "user", "content": "where am I?"});
    let result = |id: &str| json!({"id": id, "role": "tool", "toolCallId": id, "content": "Oslo"});
    let reply = json!({"id": "a", "role": "assistant", "toolCalls": []});
    let mut first = serve();
    let events = input(&first, json!([user])).await;
    assert_eq!(
        events.last().expect("an end")["outcome"],
        json!({"type": "success"}),
        "{events:?}"
    );
    first.kill();
    let mut second = serve();
    let events = input(&second, json!([user, reply, result("g1")])).await;
    assert_eq!(called(&events, "TOOL_CALL_START"), ["g3", "g4"], "{events:?}");
    second.kill();
    let third = serve();
    let events = input(
        &third,
        json!([user, reply, result("g1"), reply, result("g3"), result("g4")]),
    )
    .await;
    assert_eq!(
        events.last().expect("an end")["result"],
        "you are in Oslo",
        "{events:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_ag_ui_client_library_executes_a_tool_and_continues() {
    let world = world().await;
    let Some(heard) = client(vec![
        "agui-tools".into(),
        world.url("/v1/agui/guide"),
        tools().to_string(),
    ])
    .await
    else {
        return;
    };
    assert_eq!(
        (&heard["failure"], &heard["result"]),
        (&Value::Null, &json!("you are in Oslo")),
        "{heard}"
    );
    assert_eq!(heard["executed"], json!(["location", "location", "confirm"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_chat_of_the_ai_sdk_executes_a_tool_and_continues() {
    let world = world().await;
    let Some(heard) = client(vec![
        "chat-tools".into(),
        world.url("/v1/chat/guide"),
        tools().to_string(),
    ])
    .await
    else {
        return;
    };
    assert_eq!(heard["failure"], Value::Null, "{heard}");
    assert_eq!(heard["executed"], json!(["location", "location", "confirm"]));
    let messages = heard["messages"].as_array().expect("messages");
    assert_eq!(messages.len(), 2, "one reply: {heard}");
    let parts = messages[1]["parts"].as_array().expect("parts");
    let texts: Vec<&str> = parts.iter().filter_map(|part| part["text"].as_str()).collect();
    assert_eq!(texts, ["let me look", "you are in Oslo"], "{heard}");
}
