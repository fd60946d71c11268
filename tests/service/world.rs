//! A service on a free port, and its clients.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;

use pirn::tools::{Approval, ToolOptions, ToolRegistry, tool_fn};
use pirn::{Engine, EngineBuilder};
use pirn_service::{Access, Grant, Limits, Options, Service, serve};
use reqwest::{Client, RequestBuilder, Response, StatusCode};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, oneshot};

/// Returns the access of an operator and of the tenants `acme` and `zeta`, with the tokens `operator`, `acme-token` and `zeta-token`.
pub(crate) fn tenants() -> Access {
    access([
        "operator name=operator",
        "acme-token tenant=acme",
        "zeta-token tenant=zeta",
    ])
}

/// Returns the access of these lines of a token file.
pub(crate) fn access<const N: usize>(grants: [&str; N]) -> Access {
    Access {
        grants: grants.map(|line| Grant::parse(line).expect("a token")).to_vec(),
        ..Access::default()
    }
}

/// Serves a router with default limits until the test ends.
pub(crate) fn spawn(listener: TcpListener, router: axum::Router) {
    tokio::spawn(async move { serve(listener, router, &Limits::default(), std::future::pending()).await });
}

/// Workflows of the scenarios.
const WORKFLOWS: &str = r#"{"workflows": [
    {"id": "echo", "name": "Echo", "description": "Gives its input back.",
     "inputSchema": {"type": "object", "properties": {"n": {"type": "integer"}}},
     "nodes": [{"id": "start", "type": "START"}, {"id": "end", "type": "END", "config": {"output": "input"}}],
     "edges": [{"from": "start", "to": "end"}]},
    {"id": "gated",
     "nodes": [{"id": "start", "type": "START"}, {"id": "gate", "type": "CODE", "config": {"function": "gate"}},
               {"id": "end", "type": "END"}],
     "edges": [{"from": "start", "to": "gate"}, {"from": "gate", "to": "end"}]},
    {"id": "steps",
     "nodes": [{"id": "start", "type": "START"},
               {"id": "step", "type": "CODE", "config": {"function": "gate"}},
               {"id": "count", "type": "VARIABLE", "config": {"variableName": "n", "expression": "n + 1"}},
               {"id": "again", "type": "ROUTE",
                "config": {"routes": [{"condition": "n < input.n", "targetNodeId": "step"}], "defaultTargetNodeId": "end"}},
               {"id": "end", "type": "END", "config": {"output": "n"}}],
     "variables": [{"name": "n", "value": 0}],
     "edges": [{"from": "start", "to": "step"}, {"from": "step", "to": "count"}, {"from": "count", "to": "again"}]},
    {"id": "whose",
     "nodes": [{"id": "start", "type": "START"}, {"id": "ask", "type": "CODE", "config": {"function": "whose"}},
               {"id": "end", "type": "END"}],
     "edges": [{"from": "start", "to": "ask"}, {"from": "ask", "to": "end"}]},
    {"id": "asks",
     "nodes": [{"id": "start", "type": "START"},
               {"id": "color", "type": "USER_INTERACTION", "config": {"question": "Which?", "choices": ["red", "blue"]}},
               {"id": "end", "type": "END", "config": {"output": "[output.answer, output.by]"}}],
     "edges": [{"from": "start", "to": "color"}, {"from": "color", "to": "end"}]},
    {"id": "hurried",
     "nodes": [{"id": "start", "type": "START"},
               {"id": "ask", "type": "USER_INTERACTION", "config": {"question": "Now?", "timeoutMs": 3600000}},
               {"id": "end", "type": "END"}],
     "edges": [{"from": "start", "to": "ask"}, {"from": "ask", "to": "end"}]},
    {"id": "two-people",
     "nodes": [{"id": "start", "type": "START"},
               {"id": "fork", "type": "FORK", "config": {"forkPathIds": ["a", "b"], "childNodeIds": ["ada", "bob"], "forkStrategy": "parallel"}},
               {"id": "ada", "type": "USER_INTERACTION", "config": {"question": "Ada?"}},
               {"id": "bob", "type": "USER_INTERACTION", "config": {"question": "Bob?"}},
               {"id": "join", "type": "JOIN", "config": {"forkPathIds": ["a", "b"], "joinStrategy": "ALL_COMPLETED"}},
               {"id": "end", "type": "END", "config": {"output": "'both'"}}],
     "edges": [{"from": "start", "to": "fork"}, {"from": "fork", "to": "ada"}, {"from": "fork", "to": "bob"},
               {"from": "ada", "to": "join"}, {"from": "bob", "to": "join"}, {"from": "join", "to": "end"}]},
    {"id": "careful",
     "nodes": [{"id": "start", "type": "START"},
               {"id": "ask", "type": "LLM", "config": {"prompt": "go", "tools": ["pay"], "profileId": "payer"}},
               {"id": "end", "type": "END", "config": {"output": "nodes['ask'].content"}}],
     "edges": [{"from": "start", "to": "ask"}, {"from": "ask", "to": "end"}]},
    {"id": "paid",
     "nodes": [{"id": "start", "type": "START"}, {"id": "wait", "type": "WAIT", "config": {"event": "paid"}},
               {"id": "end", "type": "END"}],
     "edges": [{"from": "start", "to": "wait"}, {"from": "wait", "to": "end"}]},
    {"id": "chat", "description": "Talks.",
     "nodes": [{"id": "start", "type": "START"},
               {"id": "ask", "type": "LLM", "config": {"prompt": "{{input.message}}", "tools": ["clock"], "profileId": "bot"}},
               {"id": "note", "type": "VARIABLE", "config": {"variableName": "mood", "expression": "'good'"}},
               {"id": "end", "type": "END", "config": {"output": "nodes['ask'].content"}}],
     "edges": [{"from": "start", "to": "ask"}, {"from": "ask", "to": "note"}, {"from": "note", "to": "end"}]},
    {"id": "talks-then-waits",
     "nodes": [{"id": "start", "type": "START"},
               {"id": "ask", "type": "LLM", "config": {"prompt": "{{input.message}}", "profileId": "short"}},
               {"id": "gate", "type": "CODE", "config": {"function": "gate"}}, {"id": "end", "type": "END"}],
     "edges": [{"from": "start", "to": "ask"}, {"from": "ask", "to": "gate"}, {"from": "gate", "to": "end"}]},
    {"id": "broken",
     "nodes": [{"id": "start", "type": "START"},
               {"id": "ask", "type": "LLM", "config": {"prompt": "x", "profileId": "out"}}, {"id": "end", "type": "END"}],
     "edges": [{"from": "start", "to": "ask"}, {"from": "ask", "to": "end"}]},
    {"id": "two-voices",
     "nodes": [{"id": "start", "type": "START"},
               {"id": "fork", "type": "FORK",
                "config": {"forkPathIds": ["a", "b"], "childNodeIds": ["one", "two"], "forkStrategy": "parallel"}},
               {"id": "one", "type": "LLM", "config": {"prompt": "{{input.message}}", "profileId": "short"}},
               {"id": "two", "type": "LLM", "config": {"prompt": "{{input.message}}", "profileId": "short"}},
               {"id": "join", "type": "JOIN", "config": {"forkPathIds": ["a", "b"], "joinStrategy": "ALL_COMPLETED"}},
               {"id": "end", "type": "END"}],
     "edges": [{"from": "start", "to": "fork"}, {"from": "fork", "to": "one"}, {"from": "fork", "to": "two"},
               {"from": "one", "to": "join"}, {"from": "two", "to": "join"}, {"from": "join", "to": "end"}]}],
  "profiles": [
    {"id": "bot", "provider": "scripted", "responses": [
        {"content": "let me see", "toolCalls": [{"id": "c1", "name": "clock", "arguments": {"zone": "UTC"}}]},
        {"content": "it is noon"}], "prices": {"input": 1, "output": 2}},
    {"id": "payer", "provider": "scripted", "responses": [
        {"toolCalls": [{"id": "p1", "name": "pay", "arguments": {"amount": 7}}]}, {"content": "done"}]},
    {"id": "short", "provider": "scripted", "responses": [{"content": "one two three"}]},
    {"id": "out", "provider": "scripted", "responses": []}]}"#;

/// A workflow that completes while a question of a detached branch is open.
pub(crate) const DETACHES: &str = r#"{"id": "detaches",
    "nodes": [{"id": "start", "type": "START"},
              {"id": "fork", "type": "FORK",
               "config": {"forkPathIds": ["a", "b"], "childNodeIds": ["late", "soon"], "forkStrategy": "parallel"}},
              {"id": "late", "type": "USER_INTERACTION", "config": {"question": "Late?"}},
              {"id": "soon", "type": "VARIABLE", "config": {"variableName": "n", "expression": "1"}},
              {"id": "join", "type": "JOIN",
               "config": {"forkPathIds": ["a", "b"], "joinStrategy": "ANY_COMPLETED", "onDecided": "detach"}},
              {"id": "end", "type": "END"}],
    "edges": [{"from": "start", "to": "fork"}, {"from": "fork", "to": "late"}, {"from": "fork", "to": "soon"},
              {"from": "late", "to": "join"}, {"from": "soon", "to": "join"}, {"from": "join", "to": "end"}]}"#;

/// Waits until the clock shows a later millisecond.
pub(crate) async fn later() {
    let began = std::time::Instant::now();
    while began.elapsed() < std::time::Duration::from_millis(2) {
        tokio::task::yield_now().await;
    }
}

/// Answers the first open question of a run.
pub(crate) async fn answered(world: &World, run: &str) {
    let open = answer(world.get(&format!("/v1/runs/{run}/interactions"))).await.body;
    let question = open["interactions"][0]["id"].as_str().expect("a question").to_owned();
    let told = answer(world.post(&format!("/v1/interactions/{question}"), &json!({"answer": "red"}))).await;
    assert_eq!(told.status.as_u16(), 200, "{}", told.body);
}

/// A service that listens until this value is dropped.
pub(crate) struct World {
    pub(crate) address: SocketAddr,
    pub(crate) service: Service,
    pub(crate) client: Client,
    /// Permits for the host function `gate`: each call waits for one.
    pub(crate) gate: Arc<Semaphore>,
    token: Option<String>,
    _stop: oneshot::Sender<()>,
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with(Options::default()).await
    }

    pub(crate) async fn limited(limits: Limits) -> Self {
        let options = Options {
            limits,
            ..Options::default()
        };
        Self::with(options).await
    }

    pub(crate) async fn with(options: Options) -> Self {
        Self::of(Engine::builder(), options).await
    }

    pub(crate) async fn of(builder: EngineBuilder, options: Options) -> Self {
        let gate = Arc::new(Semaphore::new(0));
        let waits = Arc::clone(&gate);
        let builder = builder.async_function("gate", move |input| {
            let waits = Arc::clone(&waits);
            Box::pin(async move {
                waits.acquire().await.map_err(|error| error.to_string())?.forget();
                Ok(input)
            })
        });
        let builder = builder.function("whose", |input| Ok(json!(*input.context().metadata)));
        let mut tools = ToolRegistry::new();
        let asks = ToolOptions {
            approval: Approval::Ask,
            ..ToolOptions::default()
        };
        let schema = json!({"type": "object", "properties": {"amount": {"type": "integer"}}, "required": ["amount"]});
        let pay = tool_fn("pay", "Pays.", schema, |arguments| async move {
            Ok(format!("paid {}", arguments["amount"]))
        });
        tools.register_with(pay, asks);
        let engine = builder.tools(tools).workflows(WORKFLOWS).build().expect("an engine");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (token, limits) = (options.access.tokens.first().cloned(), options.limits.clone());
        let service = Service::new(engine, options);
        let (stop, stopped) = oneshot::channel::<()>();
        let router = service.router();
        tokio::spawn(async move {
            serve(listener, router, &limits, async {
                stopped.await.unwrap_or(());
            })
            .await;
        });
        Self {
            address,
            service,
            client: Client::builder()
                .no_proxy()
                .pool_max_idle_per_host(0)
                .build()
                .expect("a client"),
            gate,
            token,
            _stop: stop,
        }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn get(&self, path: &str) -> RequestBuilder {
        self.authorized(self.client.get(self.url(path)))
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> RequestBuilder {
        let request = self
            .client
            .post(self.url(path))
            .header("content-type", "application/json");
        self.authorized(request.body(body.to_string()))
    }

    fn authorized(&self, request: RequestBuilder) -> RequestBuilder {
        match &self.token {
            Some(token) => request.header("authorization", format!("Bearer {token}")),
            None => request,
        }
    }

    /// Starts a run; returns its id.
    pub(crate) async fn start(&self, workflow: &str, input: Value) -> String {
        let answer = answer(self.post("/v1/runs", &json!({"workflow": workflow, "input": input}))).await;
        assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.body);
        answer.body["runId"].as_str().expect("an id").to_owned()
    }

    /// Waits for the end of a run; returns its report.
    pub(crate) async fn ended(&self, run_id: &str) -> Value {
        let mut events = Events::open(self.get(&format!("/v1/runs/{run_id}/events?types=CUSTOM"))).await;
        while events.next().await.is_some() {}
        answer(self.get(&format!("/v1/runs/{run_id}"))).await.body
    }

    /// Waits until a run has raised an event of this type.
    pub(crate) async fn until(&self, run_id: &str, event_type: &str) {
        let mut events = Events::open(self.get(&format!("/v1/runs/{run_id}/events?types={event_type}"))).await;
        let event = events.next().await.expect("an event");
        assert_eq!(event.json["type"], event_type);
    }
}

/// An answer with a JSON body.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: reqwest::header::HeaderMap,
    pub(crate) body: Value,
}

pub(crate) async fn answer(request: RequestBuilder) -> Answer {
    let response = request.send().await.expect("an answer");
    let (status, headers) = (response.status(), response.headers().clone());
    let text = response.text().await.expect("a body");
    let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
    Answer { status, headers, body }
}

/// Status and code of a refusal, after a check of its body.
pub(crate) async fn refusal(request: RequestBuilder) -> (u16, String) {
    let answer = answer(request).await;
    assert_eq!(
        answer.headers["content-type"], "application/problem+json",
        "{}",
        answer.body
    );
    assert_eq!(answer.body["status"], answer.status.as_u16());
    assert!(answer.body["detail"].is_string() && answer.body["title"].is_string());
    (
        answer.status.as_u16(),
        answer.body["code"].as_str().expect("a code").to_owned(),
    )
}

/// A server-sent event.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sent {
    /// The sequence in its id.
    pub(crate) id: Option<u64>,
    /// The complete id.
    pub(crate) position: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) json: Value,
}

/// A stream of server-sent events.
pub(crate) struct Events {
    response: Response,
    text: String,
    /// Number of comments so far.
    pub(crate) comments: usize,
}

impl Events {
    pub(crate) async fn open(request: RequestBuilder) -> Self {
        let response = request
            .header("accept", "text/event-stream")
            .send()
            .await
            .expect("a stream");
        assert!(
            response.status().is_success(),
            "{}",
            response.text().await.unwrap_or_default()
        );
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self::of(response)
    }

    pub(crate) fn of(response: Response) -> Self {
        Self {
            response,
            text: String::new(),
            comments: 0,
        }
    }

    /// The next event; `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<Sent> {
        loop {
            if let Some((block, rest)) = self.text.split_once("\n\n") {
                let (block, rest) = (block.to_owned(), rest.to_owned());
                self.text = rest;
                match sent(&block) {
                    Some(event) => return Some(event),
                    None => self.comments += 1,
                }
            } else if !self.read().await {
                return None;
            }
        }
    }

    /// Reads until a comment arrives.
    pub(crate) async fn comment(&mut self) {
        while !self.text.contains(":\n\n") {
            assert!(self.read().await, "the stream ended");
        }
    }

    async fn read(&mut self) -> bool {
        let chunk = self.response.chunk().await.expect("the stream does not break");
        let Some(chunk) = chunk else { return false };
        self.text.push_str(std::str::from_utf8(&chunk).expect("UTF-8"));
        true
    }

    pub(crate) async fn all(mut self) -> Vec<Sent> {
        let mut all = Vec::new();
        while let Some(event) = self.next().await {
            all.push(event);
        }
        all
    }
}

fn sent(block: &str) -> Option<Sent> {
    let field = |name: &str| {
        block
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .map(str::trim_start)
    };
    let data = field("data:")?;
    Some(Sent {
        id: field("id:").map(|id| id.split('.').next().unwrap_or(id).parse().expect("a sequence")),
        position: field("id:").map(str::to_owned),
        name: field("event:").map(str::to_owned),
        json: serde_json::from_str(data).unwrap_or(Value::String(data.to_owned())),
    })
}

/// Returns a text percent-encoded for a segment of a path.
pub(crate) fn encoded(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}
