//! Malicious or broken clients: each is refused, and no other client is affected.

use std::time::Duration;

use pirn_service::Limits;
use reqwest::StatusCode;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::world::{World, answer, refusal};

/// Sends bytes, and reads until the service closes the connection or has answered `Connection: close`.
async fn send(world: &World, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(world.address).await.expect("a connection");
    // The service may close the connection before everything is sent.
    let _ = stream.write_all(bytes).await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

async fn is_served(world: &World) {
    let report = answer(world.post("/v1/runs?wait=60", &json!({"workflow": "echo", "input": {"n": 1}}))).await;
    assert_eq!(report.body["status"], "COMPLETED");
}

fn short() -> Limits {
    Limits {
        header_time: Duration::from_millis(300),
        body_time: Duration::from_millis(300),
        body_bytes: 1_000,
        ..Limits::default()
    }
}

#[tokio::test]
async fn a_client_that_sends_headers_slowly_is_disconnected_and_others_are_served() {
    let world = World::limited(short()).await;
    let slow: Vec<TcpStream> = futures::future::join_all((0..100).map(|n| async move {
        let mut stream = TcpStream::connect(world.address).await.expect("a connection");
        // Every second client sends nothing.
        let start: &[u8] = if n % 2 == 0 {
            b"GET /healthz HTTP/1.1\r\nHost: loc"
        } else {
            b""
        };
        stream.write_all(start).await.expect("it is sent");
        stream
    }))
    .await;
    is_served(&world).await;
    for mut stream in slow {
        let mut rest = Vec::new();
        // Reset or closed: the connection has ended.
        let _ = stream.read_to_end(&mut rest).await;
        assert!(!String::from_utf8_lossy(&rest).contains("200 OK"));
    }
    is_served(&world).await;
}

#[tokio::test]
async fn an_incomplete_body_is_refused_with_408() {
    let world = World::limited(short()).await;
    let head = "POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n";
    let stuck = send(
        &world,
        format!("{head}Content-Length: 30\r\n\r\n{{\"workflow\"").as_bytes(),
    )
    .await;
    assert!(stuck.starts_with("HTTP/1.1 408 "), "{stuck}");
    assert!(stuck.contains("BODY_TIMEOUT"));
    is_served(&world).await;
}

#[tokio::test]
async fn a_too_large_body_is_refused_with_413_with_and_without_content_length() {
    let world = World::limited(short()).await;
    let large = json!({"workflow": "echo", "input": {"text": "x".repeat(2_000)}});
    assert_eq!(
        refusal(world.post("/v1/runs", &large)).await,
        (413, "BODY_TOO_LARGE".into())
    );
    let head = "POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n";
    let chunk = format!("800\r\n{}\r\n", "x".repeat(0x800));
    let chunked = send(
        &world,
        format!("{head}Transfer-Encoding: chunked\r\n\r\n{chunk}").as_bytes(),
    )
    .await;
    assert!(chunked.starts_with("HTTP/1.1 413 "), "{chunked}");
    is_served(&world).await;
}

#[tokio::test]
async fn too_many_and_too_long_headers_are_refused_with_431() {
    let world = World::new().await;
    let many = (0..500).map(|n| format!("X-{n}: y\r\n")).collect::<Vec<_>>().concat();
    let many = send(
        &world,
        format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\n{many}\r\n").as_bytes(),
    )
    .await;
    assert!(many.starts_with("HTTP/1.1 431 "), "{many}");
    let long = format!(
        "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n",
        "y".repeat(200_000)
    );
    let long = send(&world, long.as_bytes()).await;
    assert!(long.is_empty() || long.starts_with("HTTP/1.1 431 "), "{long}");
    is_served(&world).await;
}

#[tokio::test]
async fn headers_up_to_the_limit_are_accepted_and_one_byte_more_is_refused() {
    let world = World::new().await;
    let request = |bytes: usize| {
        let start = "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX: ";
        // The filler's line ends before the empty line that ends the headers.
        let filler = "y".repeat(bytes - start.len() - "\r\n".len());
        format!("{start}{filler}\r\n\r\n")
    };
    let limit = Limits::default().header_bytes;
    let accepted = send(&world, request(limit).as_bytes()).await;
    assert!(accepted.starts_with("HTTP/1.1 200 "), "{accepted}");
    for more in [limit + 1, limit + 4_000, limit + 8_000] {
        let refused = send(&world, request(more).as_bytes()).await;
        assert!(refused.starts_with("HTTP/1.1 431 "), "{more}: {refused}");
    }
    let refused = send(&world, request(limit + 1).as_bytes()).await;
    assert!(refused.contains("application/problem+json") && refused.contains("HEADERS_TOO_LARGE"));
}

#[tokio::test]
async fn invalid_http_is_refused_with_400() {
    let world = World::new().await;
    for nonsense in [
        &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc"[..],
        b"nonsense\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost localhost\r\n\r\n",
    ] {
        let answer = send(&world, nonsense).await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400 "), "{answer}");
    }
    let smuggled = "POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n";
    assert!(send(&world, smuggled.as_bytes()).await.starts_with("HTTP/1.1 400 "));
    is_served(&world).await;
}

#[tokio::test]
async fn json_with_unbounded_nesting_is_refused() {
    let world = World::new().await;
    let deep = format!("{{\"workflow\": \"echo\", \"input\": {}", "[".repeat(1_000_000));
    let request = world
        .client
        .post(world.url("/v1/runs"))
        .header("content-type", "application/json")
        .body(deep);
    assert_eq!(refusal(request).await, (400, "INVALID_JSON".into()));
    is_served(&world).await;
}

#[tokio::test]
async fn an_unread_stream_delays_neither_the_run_nor_other_readers() {
    let world = World::new().await;
    let id = world.start("steps", json!({"n": 300})).await;
    let mut stuck = TcpStream::connect(world.address).await.expect("a connection");
    let request = format!("GET /v1/runs/{id}/events HTTP/1.1\r\nHost: localhost\r\n\r\n");
    stuck.write_all(request.as_bytes()).await.expect("it is sent");
    world.gate.add_permits(300);
    let report = world.ended(&id).await;
    assert_eq!(
        (&report["status"], &report["output"]),
        (&json!("COMPLETED"), &json!(300)),
        "{}",
        report["error"]
    );
    drop(stuck);
    is_served(&world).await;
}

#[tokio::test]
async fn connections_beyond_the_limit_wait_for_a_free_slot() {
    let world = World::limited(Limits {
        connections: 2,
        header_time: Duration::from_millis(200),
        ..Limits::default()
    })
    .await;
    // Idle connections are closed after the header timeout.
    let idle = futures::future::join_all((0..6).map(|_| TcpStream::connect(world.address))).await;
    let answered = answer(world.get("/healthz")).await;
    assert_eq!(answered.status, StatusCode::OK);
    drop(idle);
}
