//! Questions of a run that an MCP client started, answered by that client.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use pirn::Engine;
use rmcp::handler::client::ClientHandler;
use rmcp::model::{
    CallToolRequestParams, ClientCapabilities, ClientConfig, ElicitRequestParams, ElicitResult, ElicitationAction,
    ElicitationCapability, ErrorData, FormElicitationCapability, Implementation, ProtocolVersion,
};
use rmcp::service::{ClientLifecycleMode, RequestContext, RoleClient, serve_client_with_lifecycle};
use rmcp::transport::StreamableHttpClientTransport;
use serde_json::{Value, json};

use crate::command::folder;
use crate::world::{World, refusal};

/// A person's reply to a form.
type Act = (ElicitationAction, Value);

/// A client that answers forms in turn and records them.
#[derive(Clone)]
struct Person {
    acts: Arc<Mutex<VecDeque<Act>>>,
    shown: Arc<Mutex<Vec<Value>>>,
    can_be_asked: bool,
}

impl ClientHandler for Person {
    fn get_info(&self) -> ClientConfig {
        let mut able = ClientCapabilities::default();
        if self.can_be_asked {
            able.elicitation = Some(ElicitationCapability::new().with_form(FormElicitationCapability::new()));
        }
        ClientConfig::new(able, Implementation::new("person", "1"))
    }

    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        self.shown.lock().expect("no panic").push(json!(request));
        let act = self.acts.lock().expect("no panic").pop_front();
        let (action, content) = act.expect("an answer for each form");
        Ok(ElicitResult::new(action).with_content(content))
    }
}

fn accept(content: Value) -> Act {
    (ElicitationAction::Accept, content)
}

/// Calls a workflow; returns the text of the result, whether it is an error, and the forms shown.
async fn call(
    world: &World,
    mode: &ClientLifecycleMode,
    workflow: &'static str,
    acts: Vec<Act>,
) -> (String, bool, Vec<Value>) {
    let person = Person {
        acts: Arc::new(Mutex::new(acts.into())),
        shown: Arc::default(),
        can_be_asked: true,
    };
    let transport = StreamableHttpClientTransport::from_uri(world.url("/mcp"));
    let client = serve_client_with_lifecycle(person.clone(), transport, mode.clone())
        .await
        .expect("a client");
    let result = client
        .call_tool(CallToolRequestParams::new(workflow))
        .await
        .expect("a result");
    client.cancel().await.expect("it ends");
    let text = json!(result.content)[0]["text"].as_str().unwrap_or_default().to_owned();
    let shown = person.shown.lock().expect("no panic").clone();
    (text, result.is_error == Some(true), shown)
}

fn modes() -> [ClientLifecycleMode; 2] {
    let discover = ClientLifecycleMode::Discover {
        preferred_versions: vec![ProtocolVersion::V_2026_07_28],
    };
    [ClientLifecycleMode::Initialize, discover]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_is_a_form_of_the_calling_client_until_a_valid_answer() {
    let world = World::new().await;
    for mode in modes() {
        let acts = vec![accept(json!({"answer": "green"})), accept(json!({"answer": "blue"}))];
        let (text, has_failed, shown) = call(&world, &mode, "asks", acts).await;
        assert_eq!((&*text, has_failed), ("[\"blue\",null]", false), "{mode:?}");
        assert_eq!(shown.len(), 2, "{shown:?}");
        let fields = &shown[0]["requestedSchema"]["properties"];
        assert_eq!(fields["answer"]["enum"], json!(["red", "blue"]), "{shown:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_questions_are_each_answered() {
    let world = World::new().await;
    for mode in modes() {
        let acts = vec![accept(json!({"answer": "yes"})), accept(json!({"answer": "no"}))];
        let (text, has_failed, shown) = call(&world, &mode, "two-people", acts).await;
        assert_eq!((&*text, has_failed), ("both", false), "{mode:?}");
        let mut messages: Vec<&str> = shown.iter().filter_map(|form| form["message"].as_str()).collect();
        messages.sort_unstable();
        assert_eq!(messages, ["Ada?", "Bob?"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn consent_to_a_tool_is_given_refused_or_the_run_is_cancelled_by_the_client() {
    let world = World::new().await;
    for mode in modes() {
        for act in [
            accept(json!({"decision": "allow"})),
            accept(json!({"decision": "refuse", "reason": "no"})),
            (ElicitationAction::Decline, Value::Null),
        ] {
            let (text, has_failed, shown) = call(&world, &mode, "careful", vec![act]).await;
            assert_eq!((&*text, has_failed), ("done", false), "{mode:?}");
            assert!(
                shown[0]["message"]
                    .as_str()
                    .is_some_and(|text| text.contains("pay {\"amount\":7}")),
                "{shown:?}"
            );
        }
        let gives_up = vec![(ElicitationAction::Cancel, Value::Null)];
        let (text, has_failed, _) = call(&world, &mode, "asks", gives_up).await;
        assert!(has_failed && text.contains("cancelled the question"), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn questions_of_a_client_without_elicitation_are_answered_by_others() {
    let world = World::of(Engine::builder(), pirn_service::Options::default()).await;
    for mode in modes() {
        let person = Person {
            acts: Arc::default(),
            shown: Arc::default(),
            can_be_asked: false,
        };
        let transport = StreamableHttpClientTransport::from_uri(world.url("/mcp"));
        let client = serve_client_with_lifecycle(person, transport, mode)
            .await
            .expect("a client");
        let answers = async {
            loop {
                let runs = crate::world::answer(world.get("/v1/runs?status=running")).await.body;
                let Some(id) = runs["runs"][0]["runId"].as_str() else {
                    continue;
                };
                let open = crate::world::answer(world.get(&format!("/v1/runs/{id}/interactions")))
                    .await
                    .body;
                let Some(question) = open["interactions"][0]["id"].as_str() else {
                    continue;
                };
                let path = format!("/v1/interactions/{question}");
                let taken = crate::world::answer(world.post(&path, &json!({"answer": "red", "by": "bob"}))).await;
                assert_eq!(taken.status.as_u16(), 200);
                return;
            }
        };
        let called = client.call_tool(CallToolRequestParams::new("asks"));
        let (result, ()) = tokio::join!(called, answers);
        assert_eq!(json!(result.expect("a result").content)[0]["text"], "[\"red\",\"bob\"]");
        client.cancel().await.expect("it ends");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_with_a_duplicate_key_is_refused() {
    let world = World::new().await;
    let body = r#"{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "a", "name": "b"}}"#;
    let request = world
        .post("/mcp", &json!(null))
        .header("accept", "application/json, text/event-stream")
        .body(body);
    let (status, text) = refusal(request).await;
    assert_eq!((status, text.as_str()), (422, "INVALID_VALUE"));
}

#[test]
fn a_question_that_only_a_client_without_elicitation_could_answer_ends_the_call() {
    let folder = folder("mcp-alone");
    let asks = json!({"id": "asks", "edges": [{"from": "s", "to": "q"}, {"from": "q", "to": "e"}],
        "nodes": [{"id": "s", "type": "START"}, {"id": "q", "type": "USER_INTERACTION", "config": {"question": "Go on?"}},
            {"id": "e", "type": "END"}]});
    std::fs::write(folder.join("asks.json"), asks.to_string()).expect("a file");
    let mut server = Command::new(env!("CARGO_BIN_EXE_pirn"))
        .args(["mcp", "asks.json"])
        .current_dir(&folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut input = server.stdin.take().expect("piped");
    for message in [
        json!({"id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": {"name": "alone", "version": "1"}}}),
        json!({"method": "notifications/initialized"}),
        json!({"id": 2, "method": "tools/call", "params": {"name": "asks", "arguments": {}}}),
    ] {
        let mut message = message;
        message["jsonrpc"] = json!("2.0");
        writeln!(input, "{message}").expect("listens");
    }
    let output = BufReader::new(server.stdout.take().expect("piped")).lines();
    let replies = output.map(|line| serde_json::from_str::<Value>(&line.expect("text")).expect("JSON"));
    let result = replies.into_iter().find(|reply| reply["id"] == 2).expect("a result");
    let text = result["result"]["content"][0]["text"].as_str().expect("a text");
    assert_eq!(result["result"]["isError"], true, "{text}");
    assert!(
        text.contains("node q asks a person") && text.contains("elicitation"),
        "{text}"
    );
    drop(input);
    assert!(server.wait().expect("ends").success());
}
