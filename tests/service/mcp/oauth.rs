//! An MCP server that requires a token of OAuth's client-credentials flow: the service itself, with a token endpoint.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pirn::tools::{McpServers, ToolRegistry, tools_of};
use pirn::{Engine, RunReport};
use pirn_service::{Access, Options};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::world::World;

/// The variable that contains the secret: cargo sets it for every test, and its value has characters that a form must escape.
const SECRET: &str = "CARGO_MANIFEST_DIR";

fn secret() -> String {
    std::env::var(SECRET).expect("cargo sets it")
}

/// A token endpoint that gives these answers in turn and records its requests.
#[derive(Clone, Default)]
struct Issuer {
    answers: Arc<Mutex<VecDeque<(u16, Value)>>>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Issuer {
    /// Starts to listen; returns the endpoint's URL.
    async fn listen(&self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}/token", listener.local_addr().expect("an address"));
        let issuer = self.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                issuer.answer(stream).await;
            }
        });
        url
    }

    async fn answer(&self, mut stream: TcpStream) {
        let mut request = String::new();
        let mut piece = [0; 4096];
        while !is_whole(&request) {
            let read = stream.read(&mut piece).await.expect("readable");
            request.push_str(std::str::from_utf8(&piece[..read]).expect("ASCII"));
        }
        self.asked.lock().expect("no panic").push(request);
        let next = self.answers.lock().expect("no panic").pop_front();
        let (status, body) = next.unwrap_or((500, json!("nothing more is said")));
        let body = body.to_string();
        let head = format!("HTTP/1.1 {status} x\r\ncontent-type: application/json\r\nconnection: close\r\n");
        let answer = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
        stream.write_all(answer.as_bytes()).await.expect("writable");
    }

    fn then(self, status: u16, body: Value) -> Self {
        self.answers.lock().expect("no panic").push_back((status, body));
        self
    }

    fn then_token(self, token: &str, expires_in: u32) -> Self {
        let body = json!({"access_token": token, "token_type": "Bearer", "expires_in": expires_in});
        self.then(200, body)
    }

    fn requests(&self) -> Vec<String> {
        self.asked.lock().expect("no panic").clone()
    }
}

fn is_whole(request: &str) -> bool {
    let Some((head, body)) = request.split_once("\r\n\r\n") else {
        return false;
    };
    let length = head.lines().find_map(|line| {
        line.to_ascii_lowercase()
            .strip_prefix("content-length:")?
            .trim()
            .parse()
            .ok()
    });
    body.len() >= length.unwrap_or(0)
}

/// A service with these tokens and the MCP server at `/mcp`.
async fn guarded(tokens: &[&str]) -> World {
    let access = Access {
        tokens: tokens.iter().map(|token| (*token).to_owned()).collect(),
        ..Access::default()
    };
    World::with(Options {
        access,
        ..Options::default()
    })
    .await
}

async fn started(world: &World, oauth: Option<Value>) -> Result<ToolRegistry, String> {
    let mut server = json!({"id": "w", "url": world.url("/mcp"), "tools": ["echo"], "timeoutMs": 20_000});
    if let Some(oauth) = oauth {
        server["oauth"] = oauth;
    }
    let config = tools_of(json!({ "mcpServers": [server] }), Path::new("")).expect("the test's config is right");
    let servers = McpServers::start(config.mcp_servers).await;
    let servers = servers.map_err(|faults| faults[0].message.clone())?;
    let mut tools = ToolRegistry::new();
    tools.add_servers(servers);
    Ok(tools)
}

fn oauth(token_url: &str) -> Value {
    json!({"tokenUrl": token_url, "clientId": "a client", "clientSecretEnv": SECRET, "scope": "run read"})
}

const CALLS: &str = r#"{"id": "calls",
    "nodes": [{"id": "s", "type": "START"}, {"id": "call", "type": "TOOL", "config": {"tool": "w_echo", "arguments": {"n": 7}}},
        {"id": "e", "type": "END"}],
    "edges": [{"from": "s", "to": "call"}, {"from": "call", "to": "e"}]}"#;

async fn called(engine: &Engine) -> Arc<RunReport> {
    engine.start("calls", json!(null)).expect("admitted").outcome().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_fetched_and_replaced_when_the_server_refuses_it() {
    let world = guarded(&["t1"]).await;
    let issuer = Issuer::default()
        .then_token("t1", 3600)
        .then_token("t2", 3600)
        .then_token("t3", 3600);
    let tools = started(&world, Some(oauth(&issuer.listen().await)))
        .await
        .expect("let in");
    let engine = Engine::builder().tools(tools).workflows(CALLS).build().expect("valid");
    for _ in 0..2 {
        let report = called(&engine).await;
        assert_eq!(report.output, json!({"n": 7}), "{:?}", report.error);
    }
    assert_eq!(issuer.requests().len(), 1, "one token is good for many requests");
    world.service.set_tokens(vec!["t2".to_owned()]);
    assert_eq!(called(&engine).await.output, json!({"n": 7}));
    assert_eq!(issuer.requests().len(), 2);
    world.service.set_tokens(vec!["nobody's".to_owned()]);
    let refused = called(&engine)
        .await
        .error
        .as_ref()
        .expect("it is not let in")
        .to_string();
    assert!(refused.contains("it refuses the token of `oauth` (401)"), "{refused}");
    assert!(!refused.contains("t3"), "{refused}");

    let asked = issuer.requests().remove(0);
    let resource = world.url("/mcp").replace(':', "%3A").replace('/', "%2F");
    assert!(
        asked.ends_with(&format!(
            "\r\n\r\ngrant_type=client_credentials&scope=run+read&resource={resource}"
        )),
        "{asked}"
    );
    let basic = asked
        .lines()
        .find_map(|line| line.strip_prefix("authorization: Basic "));
    let expected = format!("a+client:{}", secret().replace('/', "%2F"));
    assert_eq!(basic.map(from_base64), Some(expected), "{asked}");
    engine.shutdown(Duration::from_secs(5)).await;
}

fn from_base64(text: &str) -> String {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digits = text.trim_end_matches('=').bytes();
    let bits: Vec<u8> = digits
        .map(|digit| DIGITS.iter().position(|known| *known == digit).expect("a digit") as u8)
        .flat_map(|digit| (0..6).rev().map(move |bit| digit >> bit & 1))
        .collect();
    let bytes = bits
        .chunks_exact(8)
        .map(|bits| bits.iter().fold(0, |byte, bit| byte << 1 | bit));
    String::from_utf8(bytes.collect()).expect("UTF-8")
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_token_is_not_sent_and_the_secret_may_be_sent_in_the_body() {
    let world = guarded(&["t1", "t2", "t3", "t4", "t5", "t6", "t7", "t8", "t9"]).await;
    let issuer = (1..=9).fold(Issuer::default(), |issuer, n| issuer.then_token(&format!("t{n}"), 0));
    let mut oauth = oauth(&issuer.listen().await);
    oauth["clientAuth"] = json!("post");
    oauth["resource"] = json!("");
    let tools = started(&world, Some(oauth)).await.expect("let in");
    assert!(issuer.requests().len() > 1, "none is good for a second request");
    drop(tools);
    let asked = issuer.requests().remove(0);
    let secret = secret().replace('/', "%2F");
    assert!(
        asked.ends_with(&format!(
            "grant_type=client_credentials&scope=run+read&client_id=a+client&client_secret={secret}"
        )),
        "{asked}"
    );
    assert!(!asked.contains("authorization:"), "{asked}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_failure_is_reported_without_the_secret() {
    let world = guarded(&["t1"]).await;
    let unset = json!({"tokenUrl": "http://localhost:9/", "clientId": "c", "clientSecretEnv": "PIRN_NOBODY_SETS_THIS"});
    let told = started(&world, Some(unset)).await.expect_err("no secret");
    assert!(
        told.contains("the environment variable PIRN_NOBODY_SETS_THIS with the client's secret is not set"),
        "{told}"
    );
    let wrong =
        json!({"error": "invalid_client", "error_description": format!("no client with the secret {}", secret())});
    for (status, body, part) in [
        (
            401,
            wrong,
            "(401 Unauthorized): invalid_client: no client with the secret ***",
        ),
        (
            503,
            json!("come back later"),
            "(503 Service Unavailable): \"come back later\"",
        ),
        (200, json!({"token": "t1"}), "its answer has no `access_token`"),
        (
            200,
            json!({"access_token": "t1", "token_type": "mac"}),
            "it gives a token of type mac",
        ),
    ] {
        let issuer = Issuer::default().then(status, body);
        let url = issuer.listen().await;
        let told = started(&world, Some(oauth(&url))).await.expect_err("no token");
        assert!(
            told.contains(&format!("no token from {url}")) && told.contains(part),
            "{told}"
        );
        assert!(!told.contains(&secret()) && !told.contains("t1"), "{told}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_error_of_a_server_that_requires_a_key_names_the_config_fields() {
    let world = guarded(&["t1"]).await;
    let told = started(&world, None).await.expect_err("it is not let in");
    assert!(
        told.contains("it requires a key (401)") && told.contains("headersEnv") && told.contains("oauth"),
        "{told}"
    );
}
