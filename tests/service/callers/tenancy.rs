//! Tenants do not notice each other, in any protocol.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use pirn::Engine;
use pirn::store::{MemoryStore, SqliteStore, StoreError};
use pirn_service::Options;
use reqwest::{Client, Method, RequestBuilder};
use serde_json::{Value, json};

use crate::chance::Chance;
use crate::chats::client_tools;
use crate::world::{Answer, Events, World, answer, later, tenants};

const TENANTS: [&str; 2] = ["acme", "zeta"];

/// Number of requests of the random test, unless the environment variable `PIRN_TENANCY_REQUESTS` states another one.
const REQUESTS: usize = 10_000;

/// Requests that are sent at once.
const CONCURRENT: usize = 24;

async fn world_of(engine: pirn::EngineBuilder) -> World {
    let options = Options {
        access: tenants(),
        ..Options::default()
    };
    World::of(engine.workflows(client_tools::WORKFLOWS), options).await
}

/// Ids and texts of one tenant, which the other must not see.
#[derive(Default)]
struct Property {
    /// Ids of runs; requests of the other tenant contain some of them.
    runs: Vec<String>,
    questions: Vec<String>,
    /// Texts in inputs, sessions, questions and messages.
    canaries: Vec<String>,
    mcp_session: String,
}

fn by(tenant: &str, request: RequestBuilder) -> RequestBuilder {
    request.header("authorization", format!("Bearer {tenant}-token"))
}

/// Starts runs of every kind for a tenant.
async fn settle(world: &World, tenant: &str) -> Property {
    let canary = format!("canary-of-{tenant}");
    let mut own = Property {
        canaries: vec![canary.clone()],
        ..Property::default()
    };
    let post = |path: &str, body: Value| by(tenant, world.post(path, &body));
    for (number, workflow) in ["echo", "asks", "paid", "hurried", "gated", "echo", "two-people"]
        .iter()
        .enumerate()
    {
        let body = json!({"workflow": workflow, "runId": format!("order-{number}"), "session": format!("desk-{number}"),
            "input": {"n": number, "text": canary}, "metadata": {"user": canary}});
        let key = format!("key-{number}");
        let started = answer(post("/v1/runs", body).header("idempotency-key", key)).await;
        assert_eq!(started.status, 201, "{}", started.body);
        own.runs.push(started.body["runId"].as_str().expect("an id").to_owned());
        assert_eq!(started.body["session"], format!("desk-{number}"), "{}", started.body);
    }
    let chat = post(
        "/v1/chat/chat",
        json!({"id": "chat-1", "messages": [{"role": "user", "content": canary}]}),
    );
    assert!(answer(chat).await.body.to_string().contains("noon"));
    let agui = json!({"threadId": "thread-1", "runId": "r", "messages": [{"id": "m", "role": "user", "content": canary}],
        "state": {"secret": canary}});
    assert!(
        answer(post("/v1/agui/asks", agui))
            .await
            .body
            .to_string()
            .contains("interrupt")
    );
    let tools = json!([{"name": "location", "description": canary, "parameters": {"type": "object"}}]);
    let messages = json!([{"role": "user", "content": canary}]);
    let chat = post(
        "/v1/chat/guide",
        json!({"id": "chat-2", "messages": messages, "tools": tools}),
    );
    assert!(answer(chat).await.body.to_string().contains("tool-input-available"));
    for _ in 0..200 {
        let open = answer(by(tenant, world.client.get(world.url("/v1/interactions"))))
            .await
            .body;
        let ids = open["interactions"].as_array().expect("questions");
        own.questions = ids
            .iter()
            .filter_map(|open| open["id"].as_str().map(str::to_owned))
            .collect();
        // Two of `asks` (one for each protocol), one of `hurried`, two of `two-people`, and the call of the page's tool.
        if own.questions.len() == 6 {
            break;
        }
    }
    assert_eq!(own.questions.len(), 6, "{:?}", own.questions);
    let list = answer(by(tenant, world.client.get(world.url("/v1/runs")))).await.body;
    let runs = list["runs"].as_array().expect("runs");
    assert_eq!(runs.len(), 10, "{list}");
    own.runs = runs
        .iter()
        .filter_map(|run| run["runId"].as_str().map(str::to_owned))
        .collect();
    let initialize = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18",
        "capabilities": {"elicitation": {}}, "clientInfo": {"name": "x", "version": "1"}}});
    let initialized = post("/mcp", initialize).header("accept", "application/json, text/event-stream");
    let initialized = initialized.send().await.expect("an answer");
    let session = initialized.headers()["mcp-session-id"].to_str();
    session.expect("an id").clone_into(&mut own.mcp_session);
    own
}

/// A random request of a tenant with ids of both tenants.
struct Asked {
    tenant: usize,
    /// The path in the document.
    route: String,
    request: reqwest::Request,
    /// Everything that the request contains, which its answer may repeat.
    text: String,
}

/// Makes random requests.
struct Requests {
    random: Chance,
    client: Client,
    address: String,
    /// Method and path of each call of the document.
    calls: Vec<(Method, String)>,
    properties: Arc<[Property; 2]>,
}

impl Requests {
    fn below(&mut self, end: usize) -> usize {
        self.random.below(end)
    }

    fn one_of<'a, T: ?Sized>(&mut self, all: &[&'a T]) -> &'a T {
        let place = self.below(all.len());
        all[place]
    }

    fn tenant(&mut self) -> &'static str {
        let place = self.below(2);
        TENANTS[place]
    }

    /// An id of a run: of either tenant, in full or as its owner has named it, or of none.
    fn run(&mut self) -> String {
        let of = self.below(2);
        let place = self.below(self.properties[of].runs.len());
        let full = self.properties[of].runs[place].clone();
        match self.below(10) {
            0 => format!("order-{}", self.below(9)),
            1 => full.split_once('~').map_or(full.clone(), |(_, own)| own.to_owned()),
            2 => format!("{}~{full}", TENANTS[1 - of]),
            3 => "nothing".to_owned(),
            4 => format!("{}%7E{}", TENANTS[of], full.split_once('~').map_or("", |(_, own)| own)),
            _ => full,
        }
    }

    fn question(&mut self) -> String {
        let of = self.below(2);
        let place = self.below(self.properties[of].questions.len());
        self.properties[of].questions[place].clone()
    }

    fn session(&mut self) -> String {
        let own = ["desk-0", "desk-3", "chat-1", "chat-2", "nothing"];
        let own = self.one_of(&own);
        match self.below(3) {
            0 => format!("{}~{own}", self.tenant()),
            _ => own.to_owned(),
        }
    }

    fn path(&mut self, path: &str) -> String {
        let mut made = path.to_owned();
        for name in ["id", "other", "workflow", "chat", "effect"] {
            let hole = format!("{{{name}}}");
            if !made.contains(&hole) {
                continue;
            }
            let value = match name {
                "workflow" => self.one_of(&["echo", "asks", "chat", "guide", "nothing"]).to_owned(),
                "chat" => self.session(),
                "effect" => format!("{}.0.{}", self.run(), self.below(3)),
                _ if path.starts_with("/v1/sessions") => self.session(),
                _ if path.starts_with("/v1/interactions") => self.question(),
                _ if path.starts_with("/v1/workflows") => self.one_of(&["echo", "asks"]).to_owned(),
                _ => self.run(),
            };
            made = made.replace(&hole, &value);
        }
        let tenant = self.tenant();
        let query = match self.below(14) {
            0 => format!("session={}", self.session()),
            1 => format!("text=canary-of-{tenant}"),
            2 => format!("text={tenant}"),
            3 => format!("after={}~{}", u64::MAX >> 1, self.run()),
            4 => format!("after={}", self.session()),
            5 => format!("status={}", self.one_of(&["RUNNING", "COMPLETED", "WAITING"])),
            6 => "limit=1".to_owned(),
            7 => "at=1".to_owned(),
            8 => "after=0".to_owned(),
            9 => "threadId=thread-1&runId=r".to_owned(),
            10 => "startedAfter=1".to_owned(),
            _ => String::new(),
        };
        if query.is_empty() {
            made
        } else {
            format!("{made}?{query}")
        }
    }

    /// Messages of a front end that end with a user's message, or with the result of a tool of the page in a run.
    fn messages(&mut self, run: &str) -> Value {
        let user = json!({"id": "m", "role": "user", "content": "x"});
        if self.below(2) == 0 {
            return json!([user]);
        }
        let part = json!({"type": "tool-location", "toolCallId": "g1", "state": "output-available", "output": "Oslo"});
        let call = json!({"id": "g1", "type": "function", "function": {"name": "location", "arguments": "{}"}});
        let reply = json!({"id": run, "role": "assistant", "parts": [part], "toolCalls": [call]});
        match self.below(2) {
            0 => json!([user, reply]),
            _ => json!([user, reply, {"id": "r", "role": "tool", "toolCallId": "g1", "content": "Oslo"}]),
        }
    }

    fn body(&mut self, path: &str) -> Value {
        let (run, question, session) = (self.run(), self.question(), self.session());
        let workflow = self.one_of(&["echo", "asks", "gated"]);
        let resume =
            json!([{"interruptId": format!("{question}@{}", self.below(9)), "status": "resolved", "payload": "red"}]);
        let tools = json!([{"name": "location", "parameters": {"type": "object"}}]);
        match path {
            "/v1/runs" => match self.below(3) {
                0 => json!({"workflow": workflow, "runId": run, "input": {}}),
                1 => json!({"workflow": "echo", "session": session, "input": {}}),
                _ => json!({"workflow": "echo", "input": {}, "metadata": {"tenant": self.tenant()}}),
            },
            "/v1/interactions/{id}" => json!({"answer": "red"}),
            "/v1/agui/{workflow}" => json!({"threadId": "thread-1", "runId": "r", "resume": resume,
                "messages": self.messages(&run), "tools": tools,
                "forwardedProps": {"steering": self.below(2) == 0}}),
            "/v1/chat/{workflow}" => json!({"id": session, "messages": self.messages(&run), "tools": tools,
                "steering": self.below(2) == 0}),
            "/v1/runs/{id}/emit" => json!({"name": "paid"}),
            "/v1/runs/{id}/messages" => json!({"message": "x"}),
            "/v1/runs/{id}/pin" => json!({"section": "todo", "value": "x"}),
            "/v1/runs/{id}/fork" => match self.below(2) {
                0 => json!({"step": 0, "runId": run}),
                _ => json!({"step": 0, "workflows": [{"id": "asks"}]}),
            },
            "/mcp" => {
                let arguments = json!({"name": "asks", "arguments": {}, "requestState": format!("{run}@1"),
                    "inputResponses": {question: {"action": "accept", "content": {"answer": "red"}}}});
                let call = self.one_of(&["tools/call", "tools/list", "ping", "initialize"]);
                json!({"jsonrpc": "2.0", "id": 7, "method": call, "params": if call == "tools/call" { arguments } else { json!({}) }})
            }
            _ => json!({}),
        }
    }

    fn next(&mut self) -> Asked {
        let place = self.below(self.calls.len());
        let (method, path) = self.calls[place].clone();
        let tenant = self.below(2);
        let path_and_query = self.path(&path);
        let url = format!("{}{path_and_query}", self.address);
        let mut text = url.clone();
        let mut request = self.client.request(method.clone(), url);
        if method == Method::POST {
            let body = self.body(&path).to_string();
            text.push_str(&body);
            request = request.header("content-type", "application/json").body(body);
        }
        if self.below(4) == 0 {
            request = request.header("idempotency-key", format!("key-{}", self.below(7)));
        }
        if self.below(6) == 0 {
            request = request.header("last-event-id", self.below(9).to_string());
        }
        if path == "/mcp" {
            request = request.header("accept", "application/json, text/event-stream");
            let of = self.below(2);
            request = request.header("mcp-session-id", self.properties[of].mcp_session.clone());
        }
        let request = by(TENANTS[tenant], request).build().expect("a request");
        Asked {
            tenant,
            route: path,
            request,
            text: text.replace("%7E", "~"),
        }
    }
}

/// Reads an answer, and of a stream what arrives without a pause.
async fn read(mut response: reqwest::Response) -> String {
    let mut bytes = Vec::new();
    while let Ok(Ok(Some(chunk))) = tokio::time::timeout(Duration::from_millis(40), response.chunk()).await {
        bytes.extend_from_slice(&chunk);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The state of a tenant's runs and sessions, without those that random requests of the tenant itself change.
async fn state(world: &World, tenant: &str) -> Value {
    let get = |path: String| by(tenant, world.client.get(world.url(&path)));
    let mut all = json!({});
    for run in answer(get("/v1/runs?limit=1000".to_owned())).await.body["runs"]
        .as_array()
        .expect("runs")
    {
        let id = run["runId"].as_str().expect("an id");
        let report = answer(get(format!("/v1/runs/{id}"))).await.body;
        all[id] = json!([report["status"], report["output"]]);
    }
    for session in answer(get("/v1/sessions".to_owned())).await.body["sessions"]
        .as_array()
        .expect("sessions")
    {
        let id = session["id"].as_str().expect("an id");
        all[format!("session {id}")] = answer(get(format!("/v1/sessions/{id}"))).await.body;
    }
    all["questions"] = answer(get("/v1/interactions".to_owned())).await.body;
    all
}

#[tokio::test]
async fn random_requests_of_two_tenants_never_show_anything_of_the_other_one() {
    for engine in [Engine::builder().store(MemoryStore::new()), Engine::builder()] {
        let world = world_of(engine).await;
        let properties = Arc::new([settle(&world, "acme").await, settle(&world, "zeta").await]);
        let document = answer(world.client.get(world.url("/openapi.json")).bearer_auth("operator"))
            .await
            .body;
        let mut calls: Vec<(Method, String)> = document["paths"]
            .as_object()
            .expect("paths")
            .iter()
            .flat_map(|(path, methods)| {
                let methods = methods.as_object().expect("methods").keys();
                methods.map(|method| (method.to_uppercase().parse().expect("a method"), path.clone()))
            })
            .collect();
        assert!(calls.len() > 30, "{calls:?}");
        calls.extend([
            (Method::POST, "/mcp".to_owned()),
            (Method::GET, "/mcp".to_owned()),
            (Method::GET, "/nothing".to_owned()),
        ]);
        let mut requests = Requests {
            random: Chance(7),
            client: Client::builder().no_proxy().build().expect("a client"),
            address: world.url(""),
            calls,
            properties: Arc::clone(&properties),
        };
        let client = requests.client.clone();
        let (mut sent, mut shown) = (0, BTreeSet::new());
        let total = std::env::var("PIRN_TENANCY_REQUESTS")
            .ok()
            .and_then(|number| number.parse().ok());
        while sent < total.unwrap_or(REQUESTS) / 2 {
            let batch: Vec<Asked> = (0..CONCURRENT).map(|_| requests.next()).collect();
            sent += batch.len();
            let answers = batch.into_iter().map(|asked| {
                let client = client.clone();
                async move {
                    let line = format!("{} {}", asked.request.method(), asked.request.url());
                    let response = client.execute(asked.request).await.expect("an answer");
                    let status = response.status().as_u16();
                    let headers = format!("{:?}", response.headers());
                    (
                        asked.tenant,
                        asked.route,
                        asked.text,
                        line,
                        status,
                        headers + &read(response).await,
                    )
                }
            });
            for (tenant, route, asked, line, status, text) in futures::future::join_all(answers).await {
                assert_ne!(status, 500, "{line}: {text}");
                let other = &properties[1 - tenant];
                for secret in other.canaries.iter().chain(&other.runs).chain(&other.questions) {
                    let repeats = asked.contains(secret.as_str());
                    assert!(
                        repeats || !text.contains(secret.as_str()),
                        "{} saw {secret} by {line}: {text}",
                        TENANTS[tenant]
                    );
                }
                let is_own = properties[tenant]
                    .canaries
                    .iter()
                    .any(|own| text.contains(own.as_str()) && !asked.contains(own.as_str()));
                shown.extend(is_own.then_some((tenant, route)));
            }
        }
        for tenant in 0..TENANTS.len() {
            let routes = shown.iter().filter(|(of, _)| *of == tenant).count();
            assert!(routes > 0, "each tenant sees its own runs: {shown:?}");
        }
    }
}

/// Returns a body with the requested id, or the run of the requested question, replaced.
fn without(body: &Value, id: &str) -> String {
    let text = body.to_string().replace(id, "ID");
    match id.rsplitn(3, '.').nth(2) {
        Some(run) => text.replace(run, "RUN"),
        None => text,
    }
}

#[tokio::test]
async fn a_run_of_another_tenant_is_answered_like_one_that_does_not_exist() {
    // Without a store, no run can be forked.
    for (engine, refused) in [
        (Engine::builder().store(MemoryStore::new()), 403_u16),
        (Engine::builder(), 409),
    ] {
        let world = world_of(engine).await;
        let acme = settle(&world, "acme").await;
        let before = state(&world, "acme").await;
        let document = answer(world.client.get(world.url("/openapi.json")).bearer_auth("operator"))
            .await
            .body;
        let bodies = [
            ("emit", json!({"name": "paid"})),
            ("messages", json!({"message": "x"})),
            ("fork", json!({"step": 0})),
            ("pin", json!({"section": "todo", "value": 1})),
            ("interactions", json!({"answer": "red"})),
        ];
        let mut compared = 0;
        for (path, methods) in document["paths"].as_object().expect("paths") {
            let (known, unknown) = match path {
                _ if path.starts_with("/v1/runs/{id}") => (acme.runs[5].clone(), "acme~order-99".to_owned()),
                _ if path.starts_with("/v1/interactions/{id}") => {
                    (acme.questions[0].clone(), "acme~order-99.0.0".to_owned())
                }
                _ if path.starts_with("/v1/sessions/{id}") => ("acme~desk-0".to_owned(), "acme~desk-99".to_owned()),
                _ => continue,
            };
            for method in methods.as_object().expect("methods").keys() {
                let body = bodies
                    .iter()
                    .find(|(end, _)| path.contains(end))
                    .map_or(json!({}), |(_, body)| body.clone());
                let ask = async |id: &str| {
                    let url = path.replace("{id}", id).replace("{other}", id).replace("{effect}", "x");
                    let request = match method.as_str() {
                        "get" => world.client.get(world.url(&url)),
                        _ => world.post(&url, &body),
                    };
                    let answer = answer(by("zeta", request)).await;
                    (answer.status, without(&answer.body, id))
                };
                let (known, unknown) = (ask(&known).await, ask(&unknown).await);
                assert_eq!(known, unknown, "{method} {path}");
                assert!(matches!(known.0.as_u16(), 404 | 409), "{method} {path}: {known:?}");
                compared += 1;
            }
        }
        assert!(compared >= 18, "{compared}");
        let guide = acme
            .questions
            .iter()
            .find(|question| !question.contains("order-") && !question.contains("agui-"));
        let guide = guide
            .and_then(|question| question.rsplitn(3, '.').nth(2))
            .expect("a run");
        let fork = async |id: &str| {
            let edited = json!({"step": 0, "workflows": [{"id": "guide"}]});
            let answer = answer(by("zeta", world.post(&format!("/v1/runs/{id}/fork"), &edited))).await;
            (answer.status, without(&answer.body, id))
        };
        assert_eq!(fork(guide).await, fork("acme~nothing").await);
        assert_eq!(fork(guide).await.0, refused, "a tenant defines no workflows");
        assert_eq!(state(&world, "acme").await, before);
        // The other tenant can use equal names: its run ids, sessions and idempotency keys are separate.
        settle(&world, "zeta").await;
        assert_eq!(state(&world, "acme").await, before);
        // The operator sees both.
        let all = answer(
            world
                .client
                .get(world.url("/v1/runs?limit=1000"))
                .bearer_auth("operator"),
        )
        .await
        .body;
        assert_eq!(all["runs"].as_array().map(Vec::len), Some(20));
        let named = world
            .post("/v1/runs", &json!({"workflow": "echo", "runId": "acme~forged"}))
            .bearer_auth("operator");
        assert_eq!(answer(named).await.status, 422, "only a tenant chooses ids of its runs");
        // The result of a call of another tenant's page continues no run: the request starts one.
        let part = json!({"type": "tool-location", "toolCallId": "g1", "state": "output-available", "output": "Oslo"});
        let reply = json!({"id": guide, "role": "assistant", "parts": [part]});
        let user = json!({"role": "user", "content": "x"});
        for (chat, messages) in [("chat-3", json!([user, reply])), ("chat-4", json!([user, reply, user]))] {
            let body = json!({"id": chat, "messages": messages});
            let answer = answer(by("zeta", world.post("/v1/chat/guide", &body))).await;
            assert!(!answer.body.to_string().contains(guide), "{}", answer.body);
            assert_eq!(state(&world, "acme").await, before);
        }
        // Metrics sum up all tenants.
        for path in ["/metrics", "/v1/metrics/recent"] {
            assert_eq!(answer(by("acme", world.client.get(world.url(path)))).await.status, 403);
            assert_eq!(
                answer(world.client.get(world.url(path)).bearer_auth("operator"))
                    .await
                    .status,
                200
            );
        }
    }
}

#[tokio::test]
async fn a_report_has_the_name_that_its_caller_uses_for_the_session() {
    let world = world_of(Engine::builder().store(MemoryStore::new())).await;
    let body = json!({"workflow": "echo", "input": {}, "runId": "r", "session": "desk"});
    let waited = answer(by("acme", world.post("/v1/runs?wait=10", &body))).await.body;
    assert_eq!(
        (&waited["status"], &waited["session"]),
        (&json!("COMPLETED"), &json!("desk"))
    );
    for (token, session) in [("acme-token", "desk"), ("operator", "acme~desk")] {
        for path in ["/v1/runs/acme~r", "/v1/runs/acme~r?at=0"] {
            let report = answer(world.client.get(world.url(path)).bearer_auth(token)).await.body;
            assert_eq!(report["session"], session, "{path}: {report}");
        }
    }
}

#[tokio::test]
async fn a_front_end_finds_its_run_among_many_younger_runs_of_another_tenant() {
    let store = MemoryStore::new();
    let first = world_of(Engine::builder().store(store.clone())).await;
    let input = json!({"threadId": "t1", "runId": "r1", "messages": [{"role": "user", "content": "go"}]});
    let whole = Events::open(by("acme", first.post("/v1/agui/echo", &input))).await;
    let whole = whole.all().await;
    later().await;
    // As many as the search reads.
    let body = json!({"workflow": "echo", "input": {}});
    let others = (0..1_000).map(|_| answer(by("zeta", first.post("/v1/runs", &body))));
    let others: Vec<Answer> = futures::stream::iter(others)
        .buffer_unordered(CONCURRENT)
        .collect()
        .await;
    assert!(others.iter().all(|started| started.status == 201), "{others:?}");
    first.service.shut_down(Duration::ZERO).await;

    let second = world_of(Engine::builder().store(store)).await;
    let read = whole.iter().find_map(|sent| sent.position.as_deref()).expect("an id");
    let again = second.client.get(second.url("/v1/agui/echo?threadId=t1&runId=r1"));
    let rest = Events::open(by("acme", again.header("last-event-id", read))).await;
    assert_eq!(rest.all().await.last(), whole.last());
}

#[tokio::test]
async fn an_mcp_session_belongs_to_the_tenant_that_opened_it() {
    let world = world_of(Engine::builder()).await;
    let acme = settle(&world, "acme").await;
    let list = || {
        let request = world.post("/mcp", &json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list"}));
        request
            .header("accept", "application/json, text/event-stream")
            .header("mcp-session-id", &acme.mcp_session)
    };
    assert_eq!(answer(by("zeta", list())).await.status, 404);
    assert_eq!(answer(by("acme", list())).await.status, 200);
    let end = world
        .client
        .delete(world.url("/mcp"))
        .header("mcp-session-id", &acme.mcp_session);
    assert_eq!(answer(by("zeta", end)).await.status, 404);
    assert_eq!(answer(by("acme", list())).await.status, 200);
}

#[tokio::test]
async fn runs_keep_their_tenant_after_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let open = async || {
        loop {
            match SqliteStore::open(folder.path().join("runs.db")) {
                Ok(store) => return Engine::builder().store(store),
                // The connections of the first service end after its shutdown.
                Err(StoreError::Held { .. }) => tokio::task::yield_now().await,
                Err(error) => panic!("{error}"),
            }
        }
    };
    let before = {
        let world = world_of(open().await).await;
        for tenant in TENANTS {
            // An open MCP session would hold the store.
            let session = settle(&world, tenant).await.mcp_session;
            let end = world.client.delete(world.url("/mcp")).header("mcp-session-id", session);
            assert!(answer(by(tenant, end)).await.status.is_success());
        }
        world.service.shut_down(Duration::ZERO).await;
        world
    };
    drop(before);
    let world = world_of(open().await).await;
    for tenant in TENANTS {
        let list = answer(by(tenant, world.client.get(world.url("/v1/runs?limit=1000"))))
            .await
            .body;
        let runs = list["runs"].as_array().expect("runs");
        assert_eq!(runs.len(), 10, "{list}");
        assert!(
            runs.iter()
                .all(|run| run["runId"].as_str().is_some_and(|id| id.starts_with(tenant)))
        );
        let mut after = None;
        let mut read = Vec::new();
        loop {
            let path = after.map_or_else(
                || "/v1/runs?limit=2".to_owned(),
                |after| format!("/v1/runs?limit=2&after={after}"),
            );
            let page = answer(by(tenant, world.client.get(world.url(&path)))).await.body;
            read.extend(page["runs"].as_array().expect("runs").clone());
            match page["next"].as_str() {
                Some(next) => after = Some(next.to_owned()),
                None => break,
            }
        }
        assert_eq!(&read, runs, "pages have each run once");
        let open = answer(by(tenant, world.client.get(world.url("/v1/interactions"))))
            .await
            .body;
        assert_eq!(open["interactions"].as_array().map(Vec::len), Some(6), "{open}");
        // The end of a stored run has the complete id, as that of a run in memory has.
        let events = Events::open(by(tenant, world.client.get(world.url("/v1/runs/order-0/events")))).await;
        let end = events.all().await.pop().expect("an end");
        assert_eq!(end.json["runId"], format!("{tenant}~order-0"));
    }
}
