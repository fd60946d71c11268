//! MCP servers over HTTP, tested against a server on the loopback interface that answers one request per connection.

use std::net::TcpListener;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::fixtures::{Seen, answer, call, serve};
use crate::{McpServers, ToolRegistry, tools_of};

/// Key in the query of the server's URL.
const KEY: &str = "SUPERSECRETKEY123";

/// Answers of a server: to the calls of its tool, in this order, and to token requests.
#[derive(Clone, Default)]
struct Peer {
    calls: Arc<Mutex<Vec<Answer>>>,
    token: Option<Answer>,
    started: Arc<AtomicUsize>,
}

type Answer = fn(&Seen) -> String;

impl Peer {
    /// Starts to listen. Returns the server's address.
    fn listen(&self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = format!("http://{}", listener.local_addr().expect("an address"));
        let peer = self.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                serve(&stream.expect("a connection"), |seen| peer.answer(seen));
            }
        });
        address
    }

    fn answer(&self, seen: &Seen) -> String {
        if let Some(token) = self.token.filter(|_| seen.line.starts_with("POST /token")) {
            return token(seen);
        }
        if !seen.line.starts_with("POST") {
            return answer("405 Method Not Allowed", "");
        }
        let asked: Value = serde_json::from_str(&seen.body).expect("JSON");
        let result = match asked["method"].as_str() {
            Some("initialize") => {
                self.started.fetch_add(1, Ordering::Relaxed);
                json!({"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}})
            }
            Some("tools/list") => json!({"tools": [{"name": "t", "inputSchema": {"type": "object"}}]}),
            Some("tools/call") => {
                let mut calls = self.calls.lock().expect("no panic");
                if !calls.is_empty() {
                    return calls.remove(0)(seen);
                }
                json!({"content": [{"type": "text", "text": "done"}]})
            }
            _other => return answer("202 Accepted", ""),
        };
        let body = json!({"jsonrpc": "2.0", "id": asked["id"], "result": result}).to_string();
        typed("200 OK", "application/json\r\nmcp-session-id: 1", &body)
    }
}

fn typed(status: &str, kind: &str, body: &str) -> String {
    answer(&format!("{status}\r\ncontent-type: {kind}"), body)
}

/// Answers a call with the request's `authorization` header.
fn echo(seen: &Seen) -> String {
    let sent = seen.headers.iter().find(|header| header.starts_with("authorization"));
    says(seen, sent.map_or("", String::as_str))
}

/// Answers a call with a text.
fn says(seen: &Seen, text: &str) -> String {
    let asked: Value = serde_json::from_str(&seen.body).expect("JSON");
    let result = json!({"content": [{"type": "text", "text": text}]});
    let body = json!({"jsonrpc": "2.0", "id": asked["id"], "result": result}).to_string();
    typed("200 OK", "application/json", &body)
}

/// Starts a server of the config. `Err` contains the fault.
fn started(mut server: Value) -> Result<ToolRegistry, String> {
    server["id"] = json!("s");
    server["prefix"] = json!("");
    let config = tools_of(json!({ "mcpServers": [server] }), Path::new("")).expect("the test's config is right");
    let servers = McpServers::start_blocking(config.mcp_servers);
    let mut tools = ToolRegistry::new();
    tools.add_servers(servers.map_err(|faults| faults[0].message.clone())?);
    Ok(tools)
}

#[test]
fn a_failed_call_reports_the_reason_without_secrets_and_does_not_restart_the_server() {
    let rows: [(Answer, &str); 10] = [
        (|_| String::new(), "connection closed before message completed"),
        (|_| answer("500 x", ""), "HTTP 500"),
        (|_| answer("429 x", ""), "HTTP 429"),
        (|_| answer("401 x", ""), "it requires a key (401)"),
        (
            |_| {
                answer(
                    "403 x\r\nwww-authenticate: Bearer error=\"insufficient_scope\", scope=\"a b\"",
                    "",
                )
            },
            "HTTP 403 Forbidden: it requires the scope `a b`",
        ),
        (
            |seen| answer("418 x", &seen.line),
            "HTTP 418 I'm a teapot: POST /mcp?api_key=*** HTTP/1.1",
        ),
        (
            |_| answer("307 x\r\nlocation: /other?api_key=hush", ""),
            "/other, and redirects are not followed",
        ),
        (
            |_| typed("200 OK", "text/html", "<p>"),
            "its answer is text/html instead of JSON or an event stream",
        ),
        (
            |_| typed("200 OK", "application/json", "{}"),
            "its answer is not a message of the protocol",
        ),
        (
            |_| typed("200 OK", "text/event-stream", ": x\n\n"),
            "the connection was closed before the answer was complete",
        ),
    ];
    let peer = Peer::default();
    *peer.calls.lock().expect("no panic") = rows.iter().map(|(answer, _)| *answer).collect();
    let url = format!("{}/mcp?api_key={KEY}", peer.listen());
    let tools = started(json!({ "url": url })).expect("it starts");
    for (_, part) in rows {
        let error = call(&tools, json!({})).expect_err(part);
        let why = error.strip_prefix("the request to the MCP server `s` failed: ");
        assert!(why.is_some_and(|why| why.contains(part)), "{part}: {error}");
        for hidden in [KEY, "hush", "rmcp"] {
            assert!(!error.contains(hidden), "{error}");
        }
    }
    assert_eq!(call(&tools, json!({})), Ok("done".to_owned()));
    assert_eq!(peer.started.load(Ordering::Relaxed), 1);
}

#[test]
fn a_failed_start_names_its_cause() {
    let refused = started(json!({"url": format!("http://127.0.0.1:9/mcp?api_key={KEY}")})).expect_err("nobody listens");
    assert!(
        refused.starts_with("http://127.0.0.1:9/mcp: Connection refused"),
        "{refused}"
    );
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = format!("http://{}", listener.local_addr().expect("an address"));
    std::thread::spawn(move || {
        let moved = |_: &Seen| answer("308 x\r\nlocation: /v2?api_key=hush", "");
        serve(&listener.accept().expect("a connection").0, moved)
    });
    let moved = started(json!({"url": format!("{address}/mcp")})).expect_err("it has moved");
    let expected = format!("{address}/mcp: it redirects to {address}/v2, and redirects are not followed");
    assert_eq!(moved, expected);
}

#[test]
fn access_tokens_and_url_passwords_echoed_by_a_server_are_masked() {
    let peer = Peer {
        calls: Arc::new(Mutex::new(vec![echo])),
        token: Some(|_| answer("200 OK", r#"{"access_token": "TOKENTOKENTOKEN12345"}"#)),
        ..Peer::default()
    };
    let url = peer.listen();
    let oauth = json!({"tokenUrl": format!("{url}/token"), "clientId": "c", "clientSecretEnv": "CARGO_PKG_LICENSE"});
    let tools = started(json!({"url": format!("{url}/mcp"), "oauth": oauth})).expect("it starts");
    assert_eq!(call(&tools, json!({})), Ok("authorization: Bearer ***".to_owned()));
    peer.calls.lock().expect("no panic").push(echo);
    let with_password = url.replace("http://", "http://user:p%40ssword@");
    let tools = started(json!({"url": format!("{with_password}/mcp")})).expect("it starts");
    assert_eq!(call(&tools, json!({})), Ok("authorization: Basic ***".to_owned()));
    peer.calls
        .lock()
        .expect("no panic")
        .push(|seen| says(seen, "refused: p@ssword of KEY12345"));
    let with_key = url.replace("http://", "http://KEY12345:p%40ssword@");
    let tools = started(json!({"url": format!("{with_key}/mcp")})).expect("it starts");
    assert_eq!(call(&tools, json!({})), Ok("refused: *** of ***".to_owned()));
}

#[test]
fn a_refused_token_request_shows_the_secret_in_no_encoding() {
    let echoed: Answer = |seen| answer("401 x", &format!("{} {:?}", seen.body, seen.headers));
    for client_auth in ["basic", "post"] {
        let peer = Peer {
            token: Some(echoed),
            ..Peer::default()
        };
        let url = peer.listen();
        // The secret is `MIT OR Apache-2.0`.
        let oauth = json!({"tokenUrl": format!("{url}/token?key=hush"), "clientId": "c", "clientAuth": client_auth,
            "clientSecretEnv": "CARGO_PKG_LICENSE", "resource": ""});
        let error = started(json!({"url": format!("{url}/mcp"), "oauth": oauth})).expect_err("no token");
        assert!(
            error.starts_with(&format!("{url}/mcp: no token from {url}/token (401 Unauthorized): ")),
            "{error}"
        );
        assert!(error.contains("***"), "{error}");
        // The last is the start of `c:MIT+OR+Apache-2.0` in base64.
        for hidden in ["MIT OR", "MIT+OR", "Apache", "hush", "YzpNSVQrT1IrQXBhY2hl"] {
            assert!(!error.contains(hidden), "{client_auth}: {error}");
        }
    }
}
