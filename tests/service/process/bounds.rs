//! The memory of `pirn serve` under clients that send as much and read as little as they can: every case has a limit of address
//! space, and `/healthz` must answer throughout.
//!
//! `PIRN_BOUNDS=long` uses the sizes of docs/service.md and mixes the cases for `PIRN_BOUNDS_MINUTES` (30); its time limits need a
//! release build: `PIRN_BOUNDS=long cargo test --release -p pirn-cli --test service bounds -- --test-threads 1`.

use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures::future::join_all;
use reqwest::{Client, StatusCode};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::command::{Served, folder};

/// Address space of the service.
const MEMORY: u64 = 2 << 30;

const WORKFLOWS: &str = r#"{"workflows": [
    {"id": "echo", "edges": [{"from": "s", "to": "e"}],
     "nodes": [{"id": "s", "type": "START"}, {"id": "e", "type": "END", "config": {"output": "input"}}]},
    {"id": "texts", "config": {"maxSteps": 1000000}, "variables": [{"name": "text", "value": ""}, {"name": "n", "value": 0}],
     "nodes": [{"id": "s", "type": "START"},
               {"id": "text", "type": "VARIABLE", "config": {"variableName": "text", "expression": "input.text"}},
               {"id": "count", "type": "VARIABLE", "config": {"variableName": "n", "expression": "n + 1"}},
               {"id": "again", "type": "ROUTE",
                "config": {"routes": [{"condition": "n < input.n", "targetNodeId": "text"}], "defaultTargetNodeId": "e"}},
               {"id": "e", "type": "END", "config": {"output": "n"}}],
     "edges": [{"from": "s", "to": "text"}, {"from": "text", "to": "count"}, {"from": "count", "to": "again"}]}]}"#;

fn is_long() -> bool {
    std::env::var("PIRN_BOUNDS").is_ok_and(|size| size == "long")
}

/// The size of a case: that of the documentation, or a smaller one for daily use.
fn size(long: usize, short: usize) -> usize {
    if is_long() { long } else { short }
}

/// Requests `/healthz` on a new connection; returns the time until the whole answer has arrived.
fn probe(address: &str) -> Duration {
    let began = Instant::now();
    let mut stream = std::net::TcpStream::connect(address).expect("the service is alive");
    let request = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(request).expect("the request is sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    began.elapsed()
}

/// A service with limited memory, and the longest time that `/healthz` took.
struct Bounded {
    served: Served,
    client: Client,
    stop: Arc<AtomicBool>,
    /// A thread without a runtime, so that the other clients of the test delay no probe.
    health: std::thread::JoinHandle<Duration>,
}

impl Bounded {
    fn start(folder: &Path, arguments: &[&str]) -> Self {
        std::fs::write(folder.join("w.json"), WORKFLOWS).expect("a file");
        let arguments: Vec<&str> = ["w.json"].iter().chain(arguments).copied().collect();
        let served = Served::within(MEMORY, folder, &arguments);
        let client = Client::builder()
            .no_proxy()
            .pool_max_idle_per_host(0)
            .build()
            .expect("a client");
        let stop = Arc::new(AtomicBool::new(false));
        let address = served.url.strip_prefix("http://").expect("an address").to_owned();
        let is_over = Arc::clone(&stop);
        let health = std::thread::spawn(move || {
            let mut longest = Duration::ZERO;
            while !is_over.load(Ordering::Relaxed) {
                longest = longest.max(probe(&address));
                std::thread::sleep(Duration::from_millis(20));
            }
            longest
        });
        Self {
            served,
            client,
            stop,
            health,
        }
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.served.url)
    }

    async fn post(&self, path: &str, body: String) -> (StatusCode, Value) {
        let request = self
            .client
            .post(self.url(path))
            .header("content-type", "application/json");
        let answer = request.body(body).send().await.expect("an answer");
        let status = answer.status();
        let text = answer.text().await.expect("a body");
        (status, serde_json::from_str(&text).unwrap_or_default())
    }

    /// A connection that has sent `text`.
    async fn raw(&self, text: &str) -> TcpStream {
        let address = self.served.url.strip_prefix("http://").expect("an address");
        let mut stream = TcpStream::connect(address).await.expect("a connection");
        stream.write_all(text.as_bytes()).await.expect("it is sent");
        stream
    }

    /// Readers of a run's events that never read.
    async fn stuck(&self, run_id: &str, readers: usize) -> Vec<TcpStream> {
        let request = format!("GET /v1/runs/{run_id}/events HTTP/1.1\r\nHost: localhost\r\n\r\n");
        join_all((0..readers).map(|_| self.raw(&request))).await
    }

    /// Reads all of a run's events; returns the number of bytes.
    async fn read_all(&self, run_id: &str) -> usize {
        let mut answer = self
            .client
            .get(self.url(&format!("/v1/runs/{run_id}/events")))
            .send()
            .await
            .expect("an answer");
        assert_eq!(answer.status(), StatusCode::OK);
        let (mut bytes, mut last) = (0, Vec::new());
        while let Some(chunk) = answer.chunk().await.expect("the stream does not break") {
            bytes += chunk.len();
            last = [&last[..], &chunk[..]].concat();
            last.drain(..last.len().saturating_sub(200));
        }
        assert!(
            String::from_utf8_lossy(&last).contains("event: end"),
            "the stream was cut"
        );
        bytes
    }

    /// Memory that the service has now, in bytes.
    fn resident(&self) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.served.id())).expect("it runs");
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .expect("a line");
        let kilobytes: usize = line.trim().trim_end_matches(" kB").parse().expect("a number");
        kilobytes << 10
    }

    /// Largest address space of the service so far.
    fn peak(&self) -> String {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.served.id())).unwrap_or_default();
        let lines = status
            .lines()
            .filter(|line| line.starts_with("VmPeak") || line.starts_with("VmHWM"));
        lines.collect::<Vec<_>>().join(", ")
    }

    /// Checks that the service is alive and answered throughout.
    async fn survived(self) {
        let (status, _) = self
            .post("/v1/runs?wait=60", json!({"workflow": "echo", "input": 1}).to_string())
            .await;
        assert_eq!(status, StatusCode::CREATED);
        self.stop.store(true, Ordering::Relaxed);
        let peak = self.peak();
        let longest = self.health.join().expect("it answered");
        println!("{peak}, /healthz at most {longest:?}");
        let at_most = if is_long() { 100 } else { 5_000 };
        assert!(longest < Duration::from_millis(at_most), "/healthz took {longest:?}");
    }

    async fn many_runs(&self, runs: usize) {
        let record =
            |n: usize| json!({"id": n, "name": format!("record {n}"), "note": "x".repeat(40), "tags": ["a", "b"]});
        let input: Vec<Value> = (0..780).map(record).collect();
        let body = json!({"workflow": "echo", "input": input}).to_string();
        assert!((70_000..90_000).contains(&body.len()), "{}", body.len());
        self.repeat(&body, 20).await;
        let before = self.resident();
        self.repeat(&body, runs).await;
        let grown = self.resident().saturating_sub(before);
        let per_run = grown / runs;
        assert!(per_run < 4 * body.len(), "{per_run} bytes a run of {}", body.len());
    }

    async fn repeat(&self, body: &str, times: usize) {
        for _ in 0..times {
            let (status, report) = self.post("/v1/runs?wait=60", body.to_owned()).await;
            assert_eq!((status, &report["status"]), (StatusCode::CREATED, &json!("COMPLETED")));
        }
    }

    async fn large_bodies(&self, requests: usize) {
        let list = format!("[{}[1]]", "[1],".repeat((4 << 20) / 4 - 20));
        let body = format!("{{\"workflow\": \"echo\", \"input\": {list}}}");
        assert!(body.len() < 4 << 20);
        let answers = join_all((0..requests).map(|_| self.post("/v1/runs", body.clone()))).await;
        for (status, answer) in answers {
            let is_known = matches!(status.as_u16(), 201 | 413 | 429);
            assert!(is_known, "{status}: {answer}");
            assert!(status == StatusCode::CREATED || answer["detail"].is_string());
        }
    }

    async fn half_sent_bodies(&self, clients: usize) {
        let head = "POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 4194000\r\n\r\n";
        let half = "1".repeat(2 << 20);
        let send = async |_| {
            let mut stream = self.raw(head).await;
            // The service closes a refused connection before everything is sent.
            drop(stream.write_all(half.as_bytes()).await);
            stream
        };
        let all = join_all((0..clients).map(send)).await;
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert!(self.resident() < 1 << 30, "{} bytes", self.resident());
        drop(all);
    }

    /// Starts a run with events that contain a text of `bytes` bytes each, and waits for its end.
    async fn texts(&self, run_id: &str, bytes: usize, steps: usize) {
        let input = json!({"text": "lorem ipsum ".repeat(bytes / 12), "n": steps});
        let body = json!({"workflow": "texts", "runId": run_id, "input": input}).to_string();
        let (status, answer) = self.post("/v1/runs?wait=600", body).await;
        assert_eq!(
            (status, &answer["status"]),
            (StatusCode::CREATED, &json!("COMPLETED")),
            "{}",
            answer["error"]
        );
    }

    async fn stuck_readers(&self, run_id: &str, readers: usize) {
        self.texts(run_id, 2_000_000, 12).await;
        let stuck = self.stuck(run_id, readers).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(self.read_all(run_id).await > 1_000_000, "a reader that reads is served");
        drop(stuck);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ended_runs_use_at_most_four_times_their_input() {
    let service = Bounded::start(&folder("bounds-runs"), &[]);
    service.many_runs(size(300, 150)).await;
    service.survived().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_large_bodies_are_admitted_within_the_budget_or_refused() {
    let service = Bounded::start(&folder("bounds-bodies"), &[]);
    service.large_bodies(size(22, 11)).await;
    service.survived().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn incomplete_bodies_use_no_more_than_the_budget() {
    let service = Bounded::start(&folder("bounds-half"), &[]);
    service.half_sent_bodies(size(500, 200)).await;
    service.survived().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_never_read_share_one_buffer_budget() {
    let service = Bounded::start(&folder("bounds-readers"), &[]);
    service.stuck_readers("r", size(269, 120)).await;
    service.survived().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_never_read_stored_events_share_one_buffer_budget() {
    let folder = folder("bounds-stored-readers");
    let service = Bounded::start(&folder, &["--store", "runs.db"]);
    service.stuck_readers("r", size(269, 120)).await;
    service.survived().await;
    let service = Bounded::start(&folder, &["--store", "runs.db"]);
    let stuck = service.stuck("r", size(269, 120)).await;
    assert!(service.read_all("r").await > 20_000_000);
    drop(stuck);
    service.survived().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn large_events_that_arrive_faster_than_they_are_recorded_are_dropped() {
    let service = Bounded::start(&folder("bounds-recorder"), &[]);
    service.texts("fast", 2_000_000, 400).await;
    service.survived().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn events_of_a_stored_run_are_streamed_and_not_collected_in_memory() {
    let folder = folder("bounds-stored");
    let (bytes, steps) = (size(2_000_000, 500_000), size(400, 100));
    let service = Bounded::start(&folder, &["--store", "runs.db"]);
    service.texts("long", bytes, steps).await;
    service.survived().await;
    let service = Bounded::start(&folder, &["--store", "runs.db"]);
    let read = join_all((0..4).map(|_| service.read_all("long"))).await;
    for read in read {
        assert!(read > bytes * steps, "{read} bytes");
    }
    service.survived().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_requests_for_a_long_stored_run_delay_no_other_request() {
    let folder = folder("bounds-replays");
    let service = Bounded::start(&folder, &["--store", "runs.db"]);
    service.texts("long", 12, size(10_000, 1_000)).await;
    service.survived().await;
    let service = Bounded::start(&folder, &["--store", "runs.db"]);
    join_all((0..20).map(|_| service.read_all("long"))).await;
    service.survived().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_service_survives_a_random_mixture_of_all_load_cases() {
    let minutes = std::env::var("PIRN_BOUNDS_MINUTES")
        .ok()
        .and_then(|minutes| minutes.parse().ok());
    let long = Duration::from_secs(60 * minutes.unwrap_or(30));
    let until = Instant::now() + if is_long() { long } else { Duration::from_secs(5) };
    let service = Bounded::start(&folder("bounds-mixture"), &["--store", "runs.db"]);
    service.texts("stored", 500_000, 20).await;
    let mut seed = 7_u64;
    let mut round = 0;
    while Instant::now() < until {
        round += 1;
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let pick = (seed >> 33) as usize;
        let run_id = format!("mix-{round}");
        let readers = async { drop(service.stuck("stored", 20 + pick % 60).await) };
        match pick % 5 {
            0 => drop(tokio::join!(service.large_bodies(4), readers)),
            1 => drop(tokio::join!(service.half_sent_bodies(60), service.read_all("stored"))),
            2 => drop(tokio::join!(service.stuck_readers(&run_id, 40), readers)),
            3 => drop(tokio::join!(
                service.read_all("stored"),
                service.read_all("stored"),
                service.large_bodies(2)
            )),
            _ => drop(tokio::join!(service.read_all("stored"), readers)),
        }
    }
    service.survived().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_never_reads_is_disconnected() {
    let world = crate::world::World::limited(pirn_service::Limits {
        write_time: Duration::from_millis(300),
        ..pirn_service::Limits::default()
    })
    .await;
    let input = json!({"text": "x".repeat(3_000_000)});
    let id = world.start("echo", input).await;
    world.ended(&id).await;
    let mut stuck = TcpStream::connect(world.address).await.expect("a connection");
    let request = format!("GET /v1/runs/{id}/events HTTP/1.1\r\nHost: localhost\r\n\r\n");
    stuck.write_all(request.repeat(4).as_bytes()).await.expect("it is sent");
    tokio::time::sleep(Duration::from_secs(2)).await;
    let mut read = Vec::new();
    // Reset or closed: the connection ends before everything was sent.
    drop(stuck.read_to_end(&mut read).await);
    assert!(
        !String::from_utf8_lossy(&read).contains("event: end"),
        "{} bytes came",
        read.len()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_of_a_stored_run_gets_every_event_while_others_never_read() {
    let limits = pirn_service::Limits {
        body_bytes: 16 << 20,
        stream_bytes: 15 << 20,
        ..pirn_service::Limits::default()
    };
    let options = pirn_service::Options {
        limits,
        ..pirn_service::Options::default()
    };
    let engine = pirn::Engine::builder().store(pirn::store::MemoryStore::new());
    let world = crate::world::World::of(engine, options).await;
    // Larger than the buffers of a connection, so a client that does not read holds the event back.
    let id = world.start("paid", json!({"text": "x".repeat(10 << 20)})).await;
    world.until(&id, "NODE_STARTED").await;
    crate::world::answer(world.post(&format!("/v1/runs/{id}/park"), &json!({}))).await;
    crate::world::Events::open(world.get(&format!("/v1/runs/{id}/events?types=CUSTOM")))
        .await
        .all()
        .await;
    let request = format!("GET /v1/runs/{id}/events HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let mut stuck = Vec::new();
    for _ in 0..3 {
        let mut reader = TcpStream::connect(world.address).await.expect("a connection");
        reader.write_all(request.as_bytes()).await.expect("it is sent");
        // Reads the start of an event, then nothing more.
        reader.read_exact(&mut vec![0; 1 << 16]).await.expect("an event");
        stuck.push(reader);
    }
    let events = crate::world::Events::open(world.get(&format!("/v1/runs/{id}/events")))
        .await
        .all()
        .await;
    assert!(events.iter().all(|event| event.name.as_deref() != Some("missed")));
    let bytes: usize = events.iter().map(|event| event.json.to_string().len()).sum();
    assert!(bytes > 10 << 20, "{bytes} bytes");
    assert_eq!(events.last().and_then(|event| event.name.as_deref()), Some("end"));
    drop(stuck);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_receives_the_number_of_events_missed_for_the_memory_limit() {
    let world = crate::world::World::limited(pirn_service::Limits {
        stream_bytes: 50_000,
        ..pirn_service::Limits::default()
    })
    .await;
    let id = world.start("echo", json!({"text": "x".repeat(100_000)})).await;
    world.ended(&id).await;
    let events = crate::world::Events::open(world.get(&format!("/v1/runs/{id}/events")))
        .await
        .all()
        .await;
    let missed = events.iter().filter(|event| event.name.as_deref() == Some("missed"));
    let missed: u64 = missed.filter_map(|event| event.json["count"].as_u64()).sum();
    let sent = events.iter().filter(|event| event.name.is_none()).count() as u64;
    let list = crate::world::answer(world.get("/v1/runs")).await;
    let raised = list.body["runs"][0]["lastSequence"].as_u64();
    assert!(missed > 0 && sent > 0);
    assert_eq!(Some(missed + sent), raised);
    assert_eq!(events.last().and_then(|event| event.name.as_deref()), Some("end"));
    let refused = crate::world::refusal(world.get(&format!("/v1/runs/{id}"))).await;
    assert_eq!(refused, (429, "TOO_MANY_BYTES".to_owned()));
}
