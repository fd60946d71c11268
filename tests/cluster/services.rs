//! Services that share a server with workers and with each other.

use std::collections::BTreeSet;

use reqwest::{Client, RequestBuilder};
use serde_json::{Value, json};

use crate::cluster::{Cluster, Worker};
use crate::commands::{append, asks, chain};

/// A service process and a client of it.
struct Service {
    process: Worker,
    address: String,
    client: Client,
}

impl Service {
    /// Serves main.json in a process with this log name.
    fn start(cluster: &Cluster, name: &str, more: &[&str]) -> Self {
        Self::start_at(cluster, "127.0.0.1:0", name, more)
    }

    /// Serves main.json at an address that is advertised to the other services.
    fn start_advertised(cluster: &Cluster, name: &str) -> Self {
        let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = free.local_addr().expect("an address").to_string();
        drop(free);
        Self::start_at(cluster, &address, name, &["--advertise", &format!("http://{address}")])
    }

    fn start_at(cluster: &Cluster, listen: &str, name: &str, more: &[&str]) -> Self {
        let arguments = ["serve", "main.json", "--listen", listen, "--profiles", "pirn.toml"];
        let process = Worker(cluster.spawn(&[&arguments, more].concat(), &format!("{name}.log")));
        let address = || {
            let log = cluster.log(name);
            let (_, rest) = log.split_once("listening on ")?;
            rest.split_whitespace().next().map(str::to_owned)
        };
        cluster.wait("the service listens", || address().is_some());
        Self {
            process,
            address: address().expect("it listens"),
            client: Client::new(),
        }
    }

    fn post(&self, path: &str, body: &Value) -> RequestBuilder {
        self.client.post(format!("{}{path}", self.address)).json(body)
    }

    async fn get(&self, path: &str) -> Value {
        let answer = self.client.get(format!("{}{path}", self.address)).send().await;
        answer.expect("answers").json().await.expect("is JSON")
    }
}

async fn answered(request: RequestBuilder) -> (u16, Value) {
    let answer = request.send().await.expect("answers");
    (answer.status().as_u16(), answer.json().await.expect("is JSON"))
}

/// Sends a request, and repeats it while another request with its idempotency key is in progress.
async fn handled(request: impl Fn() -> RequestBuilder) -> (u16, Value) {
    loop {
        match answered(request()).await {
            (409, refused) if refused["code"] == "IDEMPOTENCY_KEY_IN_USE" => {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
            answer => return answer,
        }
    }
}

fn runtime() -> tokio::runtime::Runtime {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    runtime.expect("a runtime")
}

pub(crate) fn a_service_that_owns_no_run_starts_shows_and_controls_runs_of_workers(cluster: &Cluster) {
    let main: Value = serde_json::from_str(&asks()).expect("JSON");
    let mut event = chain(&[json!({"id": "wait", "type": "WAIT", "config": {"event": "go"}})]);
    event = event.replace("\"main\"", "\"waits\"");
    let event: Value = serde_json::from_str(&event).expect("JSON");
    cluster.write("main.json", &json!({"workflows": [main, event]}).to_string());
    let service = Service::start(cluster, "service", &["--detach"]);
    let runtime = runtime();
    let start = |workflow: &str, id: &str| {
        let body = json!({"workflow": workflow, "runId": id});
        let (status, begun) = runtime.block_on(answered(service.post("/v1/runs", &body)));
        assert_eq!((status, &begun["runId"]), (201, &json!(id)), "{begun}");
    };
    let tell = |path: &str, body: Value| runtime.block_on(answered(service.post(path, &body)));
    let question = |id: &str| {
        let open = runtime.block_on(service.get(&format!("/v1/runs/{id}/interactions")));
        open["interactions"][0]["id"].as_str().map(str::to_owned)
    };
    // The run has no owner yet. Inputs to it are accepted nevertheless.
    start("waits", "left");
    assert_eq!(cluster.status("left"), "UNFINISHED");
    assert_eq!(tell("/v1/runs/left/emit", json!({"name": "go"})).0, 200);
    start("main", "unwanted");
    assert_eq!(tell("/v1/runs/unwanted/cancel", json!({})).0, 200);
    assert_eq!(cluster.status("unwanted"), "CANCELLED");
    assert_eq!(cluster.status("left"), "UNFINISHED");
    let _worker = cluster.worker("worker");
    let carried = |id: &str| cluster.log("worker").contains(&format!("run_id=\"{id}\""));
    cluster.wait("it has been told before", || cluster.status("left") == "COMPLETED");
    start("main", "asks");
    cluster.wait("a worker carries it", || carried("asks"));
    cluster.wait("it asks", || question("asks").is_some());
    let asked = question("asks").expect("it asks");
    let path = format!("/v1/interactions/{asked}");
    assert_eq!(
        tell(&path, json!({"answer": "yes", "by": "ada"})),
        (200, json!({"ok": true}))
    );
    let (status, refused) = tell(&path, json!({"answer": "no"}));
    assert_eq!(status, 409, "{refused}");
    cluster.wait("it goes on", || cluster.status("asks") == "COMPLETED");
    assert_eq!(question("asks"), None);
    start("waits", "event");
    cluster.wait("a worker carries it", || carried("event"));
    assert_eq!(tell("/v1/runs/event/emit", json!({"name": "go"})).0, 200);
    cluster.wait("it goes on", || cluster.status("event") == "COMPLETED");
    start("main", "cancelled");
    cluster.wait("a worker carries it", || carried("cancelled"));
    assert_eq!(tell("/v1/runs/cancelled/cancel", json!({"reason": "enough"})).0, 200);
    cluster.wait("it ends", || cluster.status("cancelled") == "CANCELLED");
    let (status, refused) = tell("/v1/runs/cancelled/cancel", json!({}));
    assert_eq!((status, &refused["code"]), (409, &json!("RUN_ENDED")), "{refused}");
    let (status, refused) = tell("/v1/runs/none/emit", json!({"name": "go"}));
    assert_eq!((status, &refused["code"]), (404, &json!("UNKNOWN_RUN")), "{refused}");
    // A client that waits receives the answer when the worker has ended the run.
    let body = json!({"workflow": "waits", "runId": "waited"});
    let waiting = async { answered(service.post("/v1/runs?wait=30", &body)).await };
    let told = async {
        while cluster.status("waited") != "WAITING" {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        answered(service.post("/v1/runs/waited/emit", &json!({"name": "go"}))).await
    };
    let ((status, report), _) = runtime.block_on(async { tokio::join!(waiting, told) });
    assert_eq!((status, &report["status"]), (201, &json!("COMPLETED")), "{report}");
}

pub(crate) fn an_idempotency_key_starts_one_run_across_all_services(cluster: &Cluster) {
    cluster.write("main.json", &chain(&[]));
    let services = [
        Service::start(cluster, "one", &[]),
        Service::start(cluster, "other", &[]),
    ];
    let keyed = |service: &Service, key: &str, input: &Value| {
        let body = json!({"workflow": "main", "input": input});
        service.post("/v1/runs?wait=10", &body).header("Idempotency-Key", key)
    };
    let runtime = runtime();
    let mut runs = BTreeSet::new();
    for round in 0..12 {
        let key = format!("key {round}");
        let input = json!(round);
        // Both services receive the request at once, and each receives it once more.
        let (one, other) = runtime.block_on(async {
            tokio::join!(
                handled(|| keyed(&services[0], &key, &input)),
                handled(|| keyed(&services[1], &key, &input))
            )
        });
        assert_eq!((one.0, other.0), (201, 201), "{one:?} {other:?}");
        assert_eq!(one.1["runId"], other.1["runId"]);
        runs.insert(one.1["runId"].to_string());
        for service in &services {
            let (status, again) = runtime.block_on(answered(keyed(service, &key, &input)));
            assert_eq!((status, &again["runId"]), (201, &one.1["runId"]), "{again}");
            let (status, refused) = runtime.block_on(answered(keyed(service, &key, &json!("another"))));
            assert_eq!(
                (status, &refused["code"]),
                (422, &json!("IDEMPOTENCY_KEY_REUSED")),
                "{refused}"
            );
        }
    }
    assert_eq!(runs.len(), 12);
    assert_eq!(cluster.statuses().len(), 12, "no run was started beside those");
}

/// A stream of a run's events.
struct EventStream {
    response: reqwest::Response,
    text: String,
}

impl EventStream {
    async fn open(service: &Service, id: &str, after: Option<&Value>) -> Self {
        let mut request = service.client.get(format!("{}/v1/runs/{id}/events", service.address));
        if let Some(event) = after {
            request = request.header("Last-Event-ID", event["sequence"].to_string());
        }
        let response = request.send().await.expect("answers");
        assert_eq!(response.status().as_u16(), 200);
        let text = String::new();
        Self { response, text }
    }

    /// Returns the next event; `None` at the end of the stream.
    async fn next(&mut self) -> Option<Value> {
        self.try_next().await.expect("the stream does not break")
    }

    async fn try_next(&mut self) -> reqwest::Result<Option<Value>> {
        loop {
            if let Some((block, rest)) = self.text.split_once("\n\n") {
                let data = block.lines().find_map(|line| line.strip_prefix("data: "));
                let event = data.map(|data| serde_json::from_str(data).expect("is JSON"));
                self.text = rest.to_string();
                match event {
                    Some(event) => return Ok(Some(event)),
                    // A comment.
                    None => continue,
                }
            }
            let Some(chunk) = self.response.chunk().await? else {
                return Ok(None);
            };
            self.text.push_str(std::str::from_utf8(&chunk).expect("UTF-8"));
        }
    }

    /// Reads until this node starts.
    async fn until_node(&mut self, node: &str, read: &mut Vec<Value>) {
        loop {
            let event = self.next().await.expect("the run goes on");
            let is_found = event["type"] == "NODE_STARTED" && event["nodeId"] == node;
            read.push(event);
            if is_found {
                return;
            }
        }
    }

    /// Reads the rest. The last item has the status of the run.
    async fn rest(&mut self, read: &mut Vec<Value>) {
        while let Some(event) = self.next().await {
            read.push(event);
        }
    }
}

pub(crate) fn services_stream_a_run_of_a_worker_live_also_when_the_worker_is_killed(cluster: &Cluster) {
    let wait = |event: &str| json!({"id": event, "type": "WAIT", "config": {"event": event}});
    let nodes = [wait("one"), append("a", 0.0), wait("two"), append("b", 0.0)];
    cluster.write("main.json", &chain(&nodes));
    let services = [
        Service::start(cluster, "first", &["--detach"]),
        Service::start(cluster, "second", &["--detach"]),
    ];
    let runtime = runtime();
    let body = json!({"workflow": "main", "runId": "run-1"});
    let (status, begun) = runtime.block_on(answered(services[0].post("/v1/runs", &body)));
    assert_eq!(status, 201, "{begun}");
    let emit = |name: &str| {
        let told = answered(services[0].post("/v1/runs/run-1/emit", &json!({"name": name})));
        assert_eq!(runtime.block_on(told).0, 200);
    };
    let worker = cluster.worker("worker");
    let (mut whole, mut parts) = (Vec::new(), Vec::new());
    let mut stream = runtime.block_on(EventStream::open(&services[0], "run-1", None));
    let mut part = runtime.block_on(EventStream::open(&services[1], "run-1", None));
    // The run waits in this node: its events arrive before its next step.
    runtime.block_on(stream.until_node("one", &mut whole));
    runtime.block_on(part.until_node("one", &mut parts));
    emit("one");
    runtime.block_on(stream.until_node("two", &mut whole));
    // The other client reconnects.
    part = runtime.block_on(EventStream::open(&services[1], "run-1", parts.last()));
    runtime.block_on(part.until_node("two", &mut parts));
    worker.kill();
    emit("two");
    let _worker = cluster.worker("other-worker");
    runtime.block_on(stream.rest(&mut whole));
    runtime.block_on(part.rest(&mut parts));
    assert_eq!(parts, whole);
    let end = whole.pop().expect("an end");
    assert_eq!(end["status"], "COMPLETED", "{end}");
    let stored = cluster.json(&["runs", "events", "run-1"]);
    assert_eq!(stored["events"], json!(whole));
}

pub(crate) fn a_run_is_read_and_answered_at_another_service_until_and_after_its_owner_is_killed(cluster: &Cluster) {
    let say = |id: &str| json!({"id": id, "type": "LLM", "config": {"prompt": "count", "profileId": "short"}});
    let ask = |id: &str| json!({"id": id, "type": "USER_INTERACTION", "config": {"question": "Go on?"}});
    let main: Value =
        serde_json::from_str(&chain(&[say("one"), ask("first"), say("two"), ask("second")])).expect("JSON");
    let profile = json!({"id": "short", "provider": "scripted", "responses": [
        {"content": "one two three"}, {"content": "four five six"}]});
    cluster.write(
        "main.json",
        &json!({"workflows": [main], "profiles": [profile]}).to_string(),
    );
    let owner = Service::start_advertised(cluster, "owner");
    let other = Service::start_advertised(cluster, "other");
    let runtime = runtime();
    let input = json!({"threadId": "t1", "runId": "r1", "messages": [{"id": "m", "role": "user", "content": "go"}]});
    let (id, interrupt) = runtime.block_on(async {
        let (stream, interrupt) = agui(&owner, &input).await;
        let said = stream
            .iter()
            .filter(|event| event["type"] == "TEXT_MESSAGE_CONTENT")
            .count();
        assert_eq!(said, 3, "{stream:?}");
        let runs = owner.get("/v1/runs").await;
        (runs["runs"][0]["runId"].as_str().expect("an id").to_owned(), interrupt)
    });
    let until_asked = async |stream: &mut EventStream, read: &mut Vec<Value>| {
        loop {
            let event = stream.next().await.expect("the run goes on");
            let is_asked = event["type"] == "INTERACTION_REQUESTED";
            read.push(event);
            if is_asked {
                return;
            }
        }
    };
    let tokens = |read: &[Value]| read.iter().filter(|event| event["type"] == "LLM_TOKEN").count();
    runtime.block_on(async {
        let (mut here, mut there) = (Vec::new(), Vec::new());
        let mut at_owner = EventStream::open(&owner, &id, None).await;
        let mut at_other = EventStream::open(&other, &id, None).await;
        until_asked(&mut at_owner, &mut here).await;
        until_asked(&mut at_other, &mut there).await;
        assert_eq!((&there, tokens(&there)), (&here, 3));
        // Answered at the other service: the stream of the answer continues the run at its owner.
        let answer = json!([{"interruptId": interrupt, "status": "resolved", "payload": "yes"}]);
        let input = json!({"threadId": "t1", "runId": "r2", "messages": [], "resume": answer});
        let (stream, interrupt) = agui(&other, &input).await;
        let said = stream
            .iter()
            .filter(|event| event["type"] == "TEXT_MESSAGE_CONTENT")
            .count();
        assert_eq!((said, interrupt.is_null()), (3, false), "{stream:?}");
        until_asked(&mut at_owner, &mut here).await;
        until_asked(&mut at_other, &mut there).await;
        assert_eq!((&there, tokens(&there)), (&here, 6));
        owner.process.kill();
        at_other.try_next().await.expect_err("the stream breaks off");
        // At first from the journal, then at the service itself, which takes the run over.
        let mut back = EventStream::open(&other, &id, there.last()).await;
        let question = there.last().expect("an event")["interactionId"].clone();
        let path = format!("/v1/interactions/{}", question.as_str().expect("an id"));
        assert_eq!(answered(other.post(&path, &json!({"answer": "yes"}))).await.0, 200);
        let mut rest = Vec::new();
        back.rest(&mut rest).await;
        assert_eq!(rest.last().expect("an end")["status"], "COMPLETED", "{rest:?}");
    });
    assert_eq!(cluster.status(&id), "COMPLETED");
}

/// Sends an AG-UI input. Returns the events of its stream, and the id of the interrupt at its end.
async fn agui(service: &Service, input: &Value) -> (Vec<Value>, Value) {
    let response = service.post("/v1/agui/main", input).send().await.expect("answers");
    let mut stream = EventStream {
        response,
        text: String::new(),
    };
    let mut read = Vec::new();
    stream.rest(&mut read).await;
    let interrupt = read.last().map(|end| end["outcome"]["interrupts"][0]["id"].clone());
    (read, interrupt.unwrap_or_default())
}
