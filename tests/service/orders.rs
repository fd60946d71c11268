//! Explorations of orders over HTTP.

use std::collections::BTreeMap;
use std::time::Duration;

use pirn::explore::{Exploration, explore};
use pirn::{Engine, EngineBuilder};
use pirn_service::{Access, Grant, Limits, Options};
use serde_json::{Value, json};

use crate::world::{World, answer, refusal, tenants};

/// A race of three branches, a join of three branches, and a workflow with a provider's model.
const WORKFLOWS: &str = r#"{"workflows": [
    {"id": "race",
     "nodes": [{"id": "start", "type": "START"},
               {"id": "fork", "type": "FORK", "config": {"forkPathIds": ["a", "b", "c"], "childNodeIds": ["na", "nb", "nc"], "forkStrategy": "parallel"}},
               {"id": "na", "type": "LLM", "config": {"prompt": "go", "profileId": "one"}},
               {"id": "nb", "type": "LLM", "config": {"prompt": "go", "profileId": "one"}},
               {"id": "nc", "type": "LLM", "config": {"prompt": "go", "profileId": "two"}},
               {"id": "join", "type": "JOIN", "config": {"forkPathIds": ["a", "b", "c"], "joinStrategy": "ANY_COMPLETED"}},
               {"id": "first", "type": "VARIABLE", "config": {"variableName": "first", "expression": "output.completed[0]"}},
               {"id": "end", "type": "END"}],
     "edges": [{"from": "start", "to": "fork"}, {"from": "fork", "to": "na"}, {"from": "fork", "to": "nb"}, {"from": "fork", "to": "nc"},
               {"from": "na", "to": "join"}, {"from": "nb", "to": "join"}, {"from": "nc", "to": "join"},
               {"from": "join", "to": "first"}, {"from": "first", "to": "end"}]},
    {"id": "all",
     "nodes": [{"id": "start", "type": "START"},
               {"id": "fork", "type": "FORK", "config": {"forkPathIds": ["a", "b", "c"], "childNodeIds": ["na", "nb", "nc"], "forkStrategy": "parallel"}},
               {"id": "na", "type": "WAIT", "config": {"seconds": 1}}, {"id": "nb", "type": "WAIT", "config": {"seconds": 1}},
               {"id": "nc", "type": "WAIT", "config": {"seconds": 1}},
               {"id": "join", "type": "JOIN", "config": {"forkPathIds": ["a", "b", "c"], "joinStrategy": "ALL_COMPLETED"}},
               {"id": "end", "type": "END"}],
     "edges": [{"from": "start", "to": "fork"}, {"from": "fork", "to": "na"}, {"from": "fork", "to": "nb"}, {"from": "fork", "to": "nc"},
               {"from": "na", "to": "join"}, {"from": "nb", "to": "join"}, {"from": "nc", "to": "join"}, {"from": "join", "to": "end"}]},
    {"id": "far",
     "nodes": [{"id": "start", "type": "START"},
               {"id": "route", "type": "ROUTE", "config": {"routes": [{"condition": "input.call", "targetNodeId": "ask"}], "defaultTargetNodeId": "end"}},
               {"id": "ask", "type": "LLM", "config": {"prompt": "go", "profileId": "far"}}, {"id": "end", "type": "END"}],
     "edges": [{"from": "start", "to": "route"}, {"from": "ask", "to": "end"}]}],
  "profiles": [
    {"id": "one", "provider": "scripted", "responses": [{"content": "one"}]},
    {"id": "two", "provider": "scripted", "responses": [{"content": "two"}]},
    {"id": "far", "provider": "openai", "model": "small", "endpoint": "http://127.0.0.1:9/v1"}]}"#;

fn builder() -> EngineBuilder {
    Engine::builder().file("orders", WORKFLOWS)
}

async fn world() -> World {
    World::of(builder(), Options::default()).await
}

async fn limited(limits: Limits) -> World {
    let options = Options {
        limits,
        ..Options::default()
    };
    World::of(builder(), options).await
}

fn by_library(workflow: &str) -> Exploration {
    explore(builder()).workflow(workflow).run().expect("an exploration")
}

/// Returns the leaves of a tree.
fn ends(tree: &Value) -> Vec<&Value> {
    let nodes = tree["nodes"].as_array().expect("nodes");
    nodes
        .iter()
        .map(|node| &node["end"])
        .filter(|end| end.is_object())
        .collect()
}

#[tokio::test]
async fn a_race_has_the_orders_and_outcomes_that_the_library_finds() {
    let world = world().await;
    for workflow in ["race", "all"] {
        let path = format!("/v1/workflows/{workflow}/orders");
        let tree = answer(world.post(&path, &json!({}))).await.body;
        let expected = by_library(workflow);
        assert_eq!(tree["outcomes"], json!(expected.outcomes));
        assert_eq!(
            (&tree["schedules"], &tree["complete"]),
            (&json!(expected.schedules), &json!(true))
        );
        assert!(tree.get("stopped").is_none(), "{tree}");
        assert_eq!(ends(&tree).len() as u64, expected.schedules);
    }
    let tree = answer(world.post("/v1/workflows/race/orders", &json!({}))).await.body;
    let mut groups: BTreeMap<u64, usize> = BTreeMap::new();
    for end in ends(&tree) {
        *groups.entry(end["outcome"].as_u64().expect("an outcome")).or_default() += 1;
    }
    assert_eq!(groups, BTreeMap::from([(0, 1), (1, 1), (2, 1)]), "{tree}");
    let first = &tree["nodes"][1];
    assert_eq!(first["parent"], 0);
    assert_eq!(
        (&first["node"], &first["kind"], &first["options"]),
        (&json!("na"), &json!("model"), &json!(3))
    );
}

#[tokio::test]
async fn all_orders_of_a_join_of_three_have_one_outcome() {
    let world = world().await;
    let tree = answer(world.post("/v1/workflows/all/orders", &json!({"allOrders": true})))
        .await
        .body;
    assert_eq!(tree["outcomes"].as_array().map(Vec::len), Some(1));
    assert_eq!(ends(&tree).len(), 6);
    assert!(ends(&tree).iter().all(|end| end["outcome"] == 0), "{tree}");
    let merged = answer(world.post("/v1/workflows/all/orders", &json!({}))).await.body;
    assert_eq!(merged["outcomes"], tree["outcomes"]);
}

#[tokio::test]
async fn every_order_is_shown_as_a_run_that_no_list_contains() {
    let world = world().await;
    for workflow in ["race", "all"] {
        let path = format!("/v1/workflows/{workflow}/orders");
        let tree = answer(world.post(&path, &json!({}))).await.body;
        for end in ends(&tree) {
            let order = end["replay"].as_str().expect("choices");
            let run = answer(world.post(&format!("{path}/{order}"), &json!({}))).await.body;
            if let Some(outcome) = end["outcome"].as_u64() {
                assert_eq!(run["outcome"]["output"], tree["outcomes"][outcome as usize]["output"]);
            }
            assert_eq!(run["report"]["status"], "COMPLETED", "{run}");
            assert_eq!(run["definition"]["workflows"][0]["id"], workflow);
            assert!(run["drawings"]["drawings"][workflow]["nodes"].is_array());
            let threads = run["threads"].as_array().expect("threads");
            assert_eq!(threads.len(), 4);
            assert!(
                threads[1..]
                    .iter()
                    .all(|thread| thread["parentId"] == threads[0]["threadId"])
            );
            let events = run["events"].as_array().expect("events");
            let sequences: Vec<u64> = events.iter().filter_map(|event| event["sequence"].as_u64()).collect();
            assert_eq!(sequences, (1..=events.len() as u64).collect::<Vec<u64>>());
            let steps = run["steps"].as_array().expect("steps");
            let ends: Vec<u64> = steps.iter().filter_map(|step| step["sequence"].as_u64()).collect();
            assert!(ends.is_sorted() && ends.last() == sequences.last(), "{steps:?}");
            // The time of an event is the number of choices before it.
            for (step, last) in ends.iter().enumerate() {
                assert_eq!(events[*last as usize - 1]["timestamp"], step as u64 * 1_000);
            }
        }
    }
    assert_eq!(answer(world.get("/v1/runs")).await.body["runs"], json!([]));
}

#[tokio::test]
async fn a_model_or_function_that_is_not_offline_is_refused_where_a_run_calls_it() {
    let world = world().await;
    let refused = answer(world.post("/v1/workflows/far/orders", &json!({"input": {"call": true}})))
        .await
        .body;
    assert_eq!(refused["code"], "NOT_OFFLINE", "{refused}");
    let detail = refused["detail"].as_str().expect("a detail");
    assert!(
        detail.contains("`far`") && detail.contains("`openai`") && detail.contains("scripted"),
        "{detail}"
    );
    let spared = answer(world.post("/v1/workflows/far/orders", &json!({"input": {"call": false}})))
        .await
        .body;
    assert_eq!(spared["outcomes"][0]["status"], "COMPLETED", "{spared}");
    let function = refusal(world.post("/v1/workflows/whose/orders", &json!({}))).await;
    assert_eq!(function, (409, "NOT_OFFLINE".into()));
    let awaited = refusal(world.post("/v1/workflows/gated/orders", &json!({}))).await;
    assert_eq!(awaited, (409, "NOT_OFFLINE".into()));
    let replay = refusal(world.post("/v1/workflows/far/orders/1:1", &json!({"input": {"call": true}}))).await;
    assert_eq!(replay, (409, "NOT_OFFLINE".into()));
}

#[tokio::test]
async fn requests_that_fit_no_workflow_or_order_are_refused() {
    let world = world().await;
    let post = |path: &str, body: Value| world.post(&format!("/v1/workflows/{path}"), &body);
    assert_eq!(
        refusal(post("nope/orders", json!({}))).await,
        (404, "UNKNOWN_WORKFLOW".into())
    );
    assert_eq!(
        refusal(post("race/orders/1:9", json!({}))).await,
        (404, "NO_SUCH_ORDER".into())
    );
    assert_eq!(
        refusal(post("race/orders/first", json!({}))).await,
        (400, "INVALID_REQUEST".into())
    );
    assert_eq!(
        refusal(post("race/orders", json!({"maxOrders": 0}))).await,
        (422, "INVALID_VALUE".into())
    );
    assert_eq!(
        refusal(post("race/orders", json!({"samples": 3}))).await,
        (422, "UNKNOWN_FIELD".into())
    );
    assert_eq!(
        refusal(post("echo/orders", json!({"input": {"n": "x"}}))).await,
        (422, "INVALID_INPUT".into())
    );
    world.service.drain();
    assert_eq!(refusal(post("race/orders", json!({}))).await, (503, "DRAINING".into()));
}

#[tokio::test]
async fn an_exploration_ends_at_its_limits_and_states_which() {
    let all = json!({"allOrders": true});
    let stopped = async |limits: Limits, body: &Value| {
        let world = limited(limits).await;
        let tree = answer(world.post("/v1/workflows/all/orders", body)).await.body;
        assert_eq!(tree["complete"], false, "{tree}");
        tree
    };
    let orders = Limits {
        exploration_orders: 2,
        ..Limits::default()
    };
    let tree = stopped(orders.clone(), &all).await;
    assert_eq!((&tree["stopped"], ends(&tree).len()), (&json!("SCHEDULES"), 2));
    let tree = stopped(orders, &json!({"allOrders": true, "maxOrders": 1_000})).await;
    assert_eq!(ends(&tree).len(), 2, "a request cannot raise the limit");
    let tree = stopped(Limits::default(), &json!({"allOrders": true, "maxOrders": 3})).await;
    assert_eq!((&tree["stopped"], ends(&tree).len()), (&json!("SCHEDULES"), 3));
    let time = Limits {
        exploration_time: Duration::ZERO,
        ..Limits::default()
    };
    let tree = stopped(time.clone(), &all).await;
    assert_eq!((&tree["stopped"], ends(&tree).len()), (&json!("STOPPED"), 0));
    let bytes = Limits {
        exploration_bytes: 1,
        ..Limits::default()
    };
    let tree = stopped(bytes.clone(), &all).await;
    assert_eq!((&tree["stopped"], ends(&tree).len()), (&json!("BYTES"), 1));
    for limits in [time, bytes] {
        let world = limited(limits).await;
        let replay = refusal(world.post("/v1/workflows/all/orders/1:1", &json!({}))).await;
        assert_eq!(replay, (409, "NOT_EXPLORED".into()));
    }
}

#[tokio::test]
async fn an_exploration_needs_the_role_that_starts_runs_and_the_page_in_mode_full() {
    let access = Access {
        grants: ["reader roles=read", "runner roles=run"]
            .map(|line| Grant::parse(line).expect("a token"))
            .to_vec(),
        ..Access::default()
    };
    let options = Options {
        access,
        studio: pirn_service::StudioMode::Read,
        ..Options::default()
    };
    let world = World::of(builder(), options).await;
    let by = |token: &str, path: &str| {
        world
            .post(path, &json!({}))
            .header("authorization", format!("Bearer {token}"))
    };
    for path in ["/v1/workflows/race/orders", "/v1/workflows/race/orders/1:1"] {
        assert_eq!(
            refusal(world.post(path, &json!({}))).await,
            (401, "UNAUTHORIZED".into())
        );
        assert_eq!(refusal(by("reader", path)).await, (403, "FORBIDDEN".into()));
        assert_eq!(answer(by("runner", path)).await.status, 200);
        let page = by("runner", path).header("x-pirn-studio", "1");
        assert_eq!(refusal(page).await, (403, "STUDIO_READ_ONLY".into()));
    }
}

#[tokio::test]
async fn an_exploration_of_a_tenant_leaves_nothing_to_see_for_any_tenant() {
    let options = Options {
        access: tenants(),
        ..Options::default()
    };
    let world = World::of(builder(), options).await;
    let by = |token: &str, request: reqwest::RequestBuilder| request.header("authorization", format!("Bearer {token}"));
    let body = json!({"input": "canary-of-acme"});
    for path in ["/v1/workflows/race/orders", "/v1/workflows/race/orders/1:1"] {
        assert_eq!(answer(by("acme-token", world.post(path, &body))).await.status, 200);
    }
    for token in ["operator", "acme-token", "zeta-token"] {
        for path in ["/v1/runs", "/v1/sessions", "/v1/interactions"] {
            let shown = answer(by(token, world.get(path))).await.body.to_string();
            assert!(
                !shown.contains("canary") && !shown.contains("run-"),
                "{token} {path}: {shown}"
            );
        }
    }
    let metrics = answer(by("operator", world.get("/metrics"))).await.body;
    let metrics = metrics.as_str().expect("text");
    assert!(
        !metrics.contains("pirn_model_tokens_total{"),
        "models of an exploration are not counted: {metrics}"
    );
}
