//! Tokens, hosts and origins, over the wire.

use pirn_service::{Access, Options};
use reqwest::{Method, StatusCode};
use serde_json::json;

use crate::world::{World, answer, refusal};

fn with_token() -> Options {
    Options {
        access: Access {
            tokens: vec!["secret-1".to_owned(), "secret-2".to_owned()],
            origins: vec!["https://app.example.com".to_owned()],
            ..Access::default()
        },
        ..Options::default()
    }
}

#[tokio::test]
async fn without_a_token_only_the_liveness_probe_is_answered() {
    let world = World::with(with_token()).await;
    for path in [
        "/v1/runs",
        "/v1/runs/x",
        "/v1/runs/x/events",
        "/v1/workflows",
        "/metrics",
        "/openapi.json",
        "/nothing",
    ] {
        let bare = world.client.get(world.url(path));
        assert_eq!(refusal(bare).await, (401, "UNAUTHORIZED".into()), "{path}");
        let wrong = world
            .client
            .get(world.url(path))
            .header("authorization", "Bearer secret-3");
        let refused = answer(wrong).await;
        assert_eq!(refused.status, StatusCode::UNAUTHORIZED);
        assert_eq!(refused.headers["www-authenticate"], "Bearer");
    }
    for path in ["/healthz", "/readyz"] {
        assert_eq!(answer(world.client.get(world.url(path))).await.status, StatusCode::OK);
    }
    assert_eq!(answer(world.get("/v1/runs")).await.status, StatusCode::OK);
    world.service.set_tokens(vec!["secret-4".to_owned()]);
    assert_eq!(refusal(world.get("/v1/runs")).await, (401, "UNAUTHORIZED".into()));
}

#[tokio::test]
async fn a_page_that_rebinds_its_host_name_is_refused() {
    let world = World::new().await;
    let rebound = world.get("/v1/runs").header("host", "evil.example:80");
    assert_eq!(refusal(rebound).await, (421, "WRONG_HOST".into()));
    let body = json!({"workflow": "echo"});
    let rebound = world
        .post("/v1/runs", &body)
        .header("host", "evil.example")
        .header("origin", "http://evil.example");
    assert_eq!(refusal(rebound).await, (421, "WRONG_HOST".into()));
    let page = world.post("/v1/runs", &body).header("origin", "http://evil.example");
    assert_eq!(refusal(page).await, (403, "WRONG_ORIGIN".into()));
    let runs = answer(world.get("/v1/runs")).await.body;
    assert_eq!(runs, json!({"runs": []}));
}

#[tokio::test]
async fn a_page_of_an_allowed_origin_may_send_requests_and_read_responses() {
    let world = World::with(with_token()).await;
    let asks = |origin: &'static str| {
        let asks = world
            .client
            .request(Method::OPTIONS, world.url("/v1/runs"))
            .header("origin", origin);
        asks.header("access-control-request-method", "POST")
            .header("access-control-request-headers", "authorization")
    };
    let allowed = answer(asks("https://app.example.com")).await;
    assert_eq!(
        allowed.headers["access-control-allow-origin"],
        "https://app.example.com"
    );
    assert_eq!(allowed.headers["access-control-allow-headers"], "authorization");
    let other = answer(asks("https://evil.example")).await;
    assert!(other.headers.get("access-control-allow-origin").is_none());
    let read = answer(world.get("/v1/runs").header("origin", "https://app.example.com")).await;
    assert_eq!(read.status, StatusCode::OK);
    assert_eq!(read.headers["access-control-allow-origin"], "https://app.example.com");
    let readable = read.headers["access-control-expose-headers"].to_str().expect("a list");
    assert_eq!(readable, "location,retry-after,mcp-session-id");
}
