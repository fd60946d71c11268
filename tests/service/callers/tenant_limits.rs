//! Limits of each tenant.

use std::sync::Arc;

use pirn::Engine;
use pirn::store::{MemoryStore, Store};
use pirn_service::{Options, TenantLimits};
use reqwest::RequestBuilder;
use serde_json::{Value, json};

use crate::world::{Answer, Events, World, answer, later, tenants};

async fn world_of(engine: pirn::EngineBuilder, tenant_limits: TenantLimits) -> World {
    let options = Options {
        access: tenants(),
        tenant_limits,
        ..Options::default()
    };
    World::of(engine, options).await
}

fn start(world: &World, tenant: &str, workflow: &str) -> RequestBuilder {
    let body = json!({"workflow": workflow, "input": {"message": "x"}});
    world.post("/v1/runs", &body).bearer_auth(format!("{tenant}-token"))
}

fn is_refused(answer: &Answer, limit: &str) -> bool {
    let seconds = answer
        .headers
        .get("retry-after")
        .and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    answer.status == 429
        && answer.body["code"] == "TENANT_LIMIT"
        && answer.body["detail"]
            .as_str()
            .is_some_and(|detail| detail.contains(limit))
        && seconds.is_some_and(|seconds| seconds > 0)
}

async fn metrics(world: &World) -> String {
    let metrics = answer(world.client.get(world.url("/metrics")).bearer_auth("operator")).await;
    metrics.body.as_str().expect("a text").to_owned()
}

#[tokio::test]
async fn a_tenant_has_at_most_its_number_of_concurrent_runs() {
    let limits = TenantLimits {
        concurrent_runs: Some(3),
        ..TenantLimits::default()
    };
    let world = world_of(Engine::builder(), limits).await;
    let starts = (0..10).map(|_| answer(start(&world, "acme", "gated")));
    let answers = futures::future::join_all(starts).await;
    let started: Vec<_> = answers.iter().filter(|answer| answer.status == 201).collect();
    assert_eq!(started.len(), 3, "{answers:?}");
    assert_eq!(
        answers
            .iter()
            .filter(|answer| is_refused(answer, "concurrentRuns"))
            .count(),
        7,
        "{answers:?}"
    );
    assert_eq!(
        answer(start(&world, "zeta", "gated")).await.status,
        201,
        "another tenant is not affected"
    );
    for (path, body) in [
        (
            "/v1/chat/gated",
            json!({"messages": [{"role": "user", "content": "x"}]}),
        ),
        (
            "/v1/agui/gated",
            json!({"threadId": "t", "runId": "r", "messages": [{"role": "user", "content": "x"}]}),
        ),
    ] {
        let refused = answer(world.post(path, &body).bearer_auth("acme-token")).await;
        assert!(is_refused(&refused, "concurrentRuns"), "{path}: {}", refused.body);
    }
    assert!(
        metrics(&world)
            .await
            .contains("pirn_tenant_refusals_total{tenant=\"acme\",limit=\"concurrentRuns\"} 9")
    );
    // An ended run makes room for another one.
    world.gate.add_permits(4);
    loop {
        let again = answer(start(&world, "acme", "echo")).await;
        if again.status == 201 {
            break;
        }
        assert!(is_refused(&again, "concurrentRuns"), "{}", again.body);
    }
}

#[tokio::test]
async fn a_tenant_starts_at_most_its_number_of_runs_a_minute() {
    let limits = TenantLimits {
        runs_per_minute: Some(5),
        ..TenantLimits::default()
    };
    let world = world_of(Engine::builder(), limits).await;
    for _ in 0..5 {
        assert_eq!(answer(start(&world, "acme", "echo")).await.status, 201);
    }
    assert!(is_refused(
        &answer(start(&world, "acme", "echo")).await,
        "runsPerMinute"
    ));
    assert_eq!(answer(start(&world, "zeta", "echo")).await.status, 201);
    let invalid = start(&world, "zeta", "nothing");
    assert_eq!(answer(invalid).await.status, 404, "a start that fails is not counted");
}

#[tokio::test]
async fn refused_starts_and_forks_are_not_counted_with_and_without_a_store() {
    for has_store in [false, true] {
        let limits = TenantLimits {
            runs_per_minute: Some(3),
            ..TenantLimits::default()
        };
        let builder = if has_store {
            Engine::builder().store(MemoryStore::new())
        } else {
            Engine::builder()
        };
        let world = world_of(builder, limits).await;
        let post = async |path: &str, body: Value| {
            let asked = world.post(path, &body).bearer_auth("acme-token");
            answer(asked).await.status.as_u16()
        };
        let start = || post("/v1/runs", json!({"workflow": "echo", "input": {}, "runId": "one"}));
        assert_eq!(start().await, 201);
        for _ in 0..5 {
            assert_eq!(start().await, 409, "the id is taken");
            let fork = post("/v1/runs/one/fork", json!({"step": 99})).await;
            assert_eq!(
                fork,
                if has_store { 422 } else { 409 },
                "there is no such step, or no store"
            );
        }
        for expected in [201, 201, 429] {
            assert_eq!(
                post("/v1/runs", json!({"workflow": "echo", "input": {}})).await,
                expected
            );
        }
    }
}

#[tokio::test]
async fn tokens_of_a_day_and_stored_bytes_survive_a_restart() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let engine = || Engine::builder().shared_store(Arc::clone(&store));
    let tokens = || TenantLimits {
        tokens_per_day: Some(1),
        ..TenantLimits::default()
    };
    let world = world_of(engine(), tokens()).await;
    assert_eq!(answer(start(&world, "acme", "chat")).await.status, 201);
    loop {
        let again = answer(start(&world, "acme", "echo")).await;
        if is_refused(&again, "tokensPerDay") {
            break;
        }
        assert_eq!(again.status, 201, "{}", again.body);
    }
    // The tokens are stored when the refusal is possible, or a moment later.
    while futures::executor::block_on(store.meta("tokens of tenant acme"))
        .expect("reads")
        .is_none()
    {
        tokio::task::yield_now().await;
    }
    drop(world);
    let world = world_of(engine(), tokens()).await;
    assert!(is_refused(&answer(start(&world, "acme", "echo")).await, "tokensPerDay"));
    assert_eq!(answer(start(&world, "zeta", "echo")).await.status, 201);
    drop(world);
    let bytes = TenantLimits {
        stored_bytes: Some(1),
        ..TenantLimits::default()
    };
    let world = world_of(engine(), bytes).await;
    assert!(is_refused(&answer(start(&world, "acme", "echo")).await, "storedBytes"));
}

/// Lets a run that talks once reach its end; returns its report.
async fn talked(world: &World) -> Value {
    world.gate.add_permits(1);
    let body = json!({"workflow": "talks-then-waits", "input": {"message": "x"}, "runId": "base"});
    let report = answer(world.post("/v1/runs?wait=10", &body).bearer_auth("acme-token")).await;
    assert_eq!(report.body["status"], "COMPLETED", "{}", report.body);
    report.body
}

#[tokio::test]
async fn tokens_that_a_fork_shares_with_its_base_are_spent_once() {
    let unlimited = world_of(Engine::builder(), TenantLimits::default()).await;
    let tokens = talked(&unlimited).await["tokens"]["spent"]["total"].as_u64();
    let limits = TenantLimits {
        tokens_per_day: tokens.map(|tokens| tokens + 1),
        ..TenantLimits::default()
    };
    let world = world_of(Engine::builder().store(MemoryStore::new()), limits).await;
    talked(&world).await;
    let get = |path: &str| world.client.get(world.url(path)).bearer_auth("acme-token");
    let steps = answer(get("/v1/runs/base/steps")).await.body;
    let mut steps = steps["steps"].as_array().expect("steps").iter();
    let model = steps.find(|step| step["kind"] == "model").expect("a model call");
    later().await;
    let ask = json!({"step": model["step"], "runId": "fork"});
    let forked = answer(world.post("/v1/runs/base/fork", &ask).bearer_auth("acme-token")).await;
    assert_eq!(forked.status, 201, "{}", forked.body);
    world.gate.add_permits(1);
    let events = Events::open(get("/v1/runs/fork/events")).await.all().await;
    assert_eq!(events.last().expect("an end").json["status"], "COMPLETED");
    let next = answer(start(&world, "acme", "echo")).await;
    assert_eq!(next.status, 201, "{}", next.body);
}
