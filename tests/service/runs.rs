//! Starting, listing, reporting and controlling runs.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use pirn::Engine;
use pirn::store::MemoryStore;
use pirn_service::{Limits, Options};
use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::gated_store::GatedStore;
use crate::world::{Events, World, answer, refusal};

#[tokio::test]
async fn the_report_of_a_started_run_equals_the_output_of_pirn_run() {
    let world = World::new().await;
    let started = answer(world.post("/v1/runs", &json!({"workflow": "echo", "input": {"n": 7}}))).await;
    assert_eq!(started.status, StatusCode::CREATED);
    let id = started.body["runId"].as_str().expect("an id");
    assert_eq!(started.headers["location"], format!("/v1/runs/{id}"));
    assert_eq!(started.body["workflowId"], "echo");
    let report = world.ended(id).await;
    assert_eq!(report["status"], "COMPLETED");
    assert_eq!(report["output"], json!({"n": 7}));
    for field in [
        "runId",
        "threadId",
        "workflowId",
        "variables",
        "conversation",
        "tokens",
        "nodes",
        "threads",
        "elapsedMs",
    ] {
        assert!(report.get(field).is_some(), "{field}");
    }
}

#[tokio::test]
async fn a_request_with_wait_gets_the_report_or_the_partial_report_at_its_time_limit() {
    let world = World::new().await;
    let report = answer(world.post("/v1/runs?wait=60", &json!({"workflow": "echo", "input": {}}))).await;
    assert_eq!(
        (report.status, &report.body["status"]),
        (StatusCode::CREATED, &json!("COMPLETED"))
    );
    let early = answer(world.post("/v1/runs?wait=0.05", &json!({"workflow": "gated"}))).await;
    assert_eq!(
        (early.status, &early.body["status"]),
        (StatusCode::CREATED, &json!("RUNNING"))
    );
    assert_eq!(
        early.body["nodes"][0],
        json!({"nodeId": "start", "status": "COMPLETED", "attempts": 1})
    );
    assert_eq!(
        early.body["nodes"][1],
        json!({"nodeId": "gate", "status": "RUNNING", "attempts": 1})
    );
    assert_eq!(early.body["threads"][0]["status"], "RUNNING");
    world.gate.add_permits(1);
    assert_eq!(
        world.ended(early.body["runId"].as_str().expect("an id")).await["status"],
        "COMPLETED"
    );
    assert_eq!(
        refusal(world.post("/v1/runs?wait=-1", &json!({"workflow": "echo"}))).await,
        (400, "INVALID_REQUEST".into())
    );
    assert_eq!(
        refusal(world.post("/v1/runs?wiat=1", &json!({"workflow": "echo"}))).await,
        (400, "INVALID_REQUEST".into())
    );
}

#[tokio::test]
async fn the_caller_sets_the_metadata_of_a_run() {
    let world = World::new().await;
    let whose = json!({"tenant": "acme", "user": {"id": 7}});
    for (asked, told) in [(json!({"metadata": whose}), whose), (json!({}), json!({}))] {
        let mut body = asked;
        body["workflow"] = json!("whose");
        let report = answer(world.post("/v1/runs?wait=60", &body)).await;
        assert_eq!(report.body["output"], told);
    }
    let wrong = json!({"workflow": "whose", "metadata": "acme"});
    let wrong = answer(world.post("/v1/runs", &wrong)).await;
    assert_eq!(
        (wrong.status.as_u16(), &wrong.body["code"], &wrong.body["pointer"]),
        (422, &json!("INVALID_VALUE"), &json!("/metadata"))
    );
    let document = answer(world.get("/openapi.json")).await.body;
    let schema = &document["components"]["schemas"]["StartRun"]["properties"]["metadata"];
    assert_eq!(schema["type"], "object", "{schema}");
}

#[tokio::test]
async fn requests_with_one_idempotency_key_start_one_run() {
    let world = World::limited(Limits {
        idempotency_keys: 2,
        ..Limits::default()
    })
    .await;
    let body = json!({"workflow": "echo", "input": {"n": 1}});
    let with = |key: &'static str, body: &Value| world.post("/v1/runs", body).header("idempotency-key", key);
    let ids = futures::future::join_all((0..20).map(|_| answer(with("k", &body)))).await;
    // A request that arrives while the first one is in progress is refused and may be retried.
    let ids: BTreeSet<&str> = ids.iter().filter_map(|answer| answer.body["runId"].as_str()).collect();
    assert_eq!(ids.len(), 1);
    assert_eq!(
        refusal(with("k", &json!({"workflow": "echo"}))).await,
        (422, "IDEMPOTENCY_KEY_REUSED".into())
    );
    assert_eq!(refusal(with("", &body)).await, (400, "INVALID_REQUEST".into()));
    let listed = answer(world.get("/v1/runs")).await;
    assert_eq!(listed.body["runs"].as_array().map(Vec::len), Some(1));
    // A request that started no run does not use up its key.
    assert_eq!(refusal(with("free", &json!({"workflow": "nope"}))).await.0, 404);
    assert_eq!(answer(with("free", &body)).await.status, StatusCode::CREATED);
    // The oldest key is forgotten first.
    answer(with("third", &body)).await;
    let again = answer(with("k", &body)).await;
    assert!(!ids.contains(again.body["runId"].as_str().expect("an id")));
}

/// Starts a run in a world with commits gated by permits, and waits until the run is listed. Returns the client, still waiting.
async fn started_at_a_gate(world: &World, path: &str, key: Option<&str>, body: &Value) -> tokio::task::JoinHandle<()> {
    let mut request = world.post(path, body);
    if let Some(key) = key {
        request = request.header("idempotency-key", key);
    }
    let client = tokio::spawn(async move {
        // The request is never answered.
        drop(request.send().await);
    });
    while answer(world.get("/v1/runs")).await.body["runs"] == json!([]) {
        tokio::task::yield_now().await;
    }
    client
}

#[tokio::test]
async fn an_idempotency_key_starts_one_run_if_the_client_disconnects_during_the_first_commit() {
    let (store, gate) = GatedStore::new();
    let world = World::of(Engine::builder().store(store), Options::default()).await;
    let body = json!({"workflow": "echo", "input": {"n": 1}});
    let client = started_at_a_gate(&world, "/v1/runs", Some("k"), &body).await;
    client.abort();
    drop(client.await);
    let again = || answer(world.post("/v1/runs", &body).header("idempotency-key", "k"));
    // The service notices the disconnected client during these requests.
    for _ in 0..50 {
        let again = tokio::time::timeout(std::time::Duration::from_mins(1), again());
        let again = again.await.expect("an answer, as no second run is started");
        assert_eq!(again.body["code"], "IDEMPOTENCY_KEY_IN_USE");
    }
    gate.add_permits(1_000);
    let started = loop {
        let again = again().await;
        if again.body["code"] != "IDEMPOTENCY_KEY_IN_USE" {
            break again;
        }
    };
    assert_eq!(started.status, StatusCode::CREATED, "{}", started.body);
    let runs = answer(world.get("/v1/runs")).await.body["runs"].clone();
    assert_eq!(runs.as_array().map(Vec::len), Some(1), "{runs}");
    assert_eq!(runs[0]["runId"], started.body["runId"]);
}

#[tokio::test]
async fn a_client_that_disconnects_during_the_first_commit_cancels_its_run_if_requested() {
    let (store, gate) = GatedStore::new();
    let world = World::of(Engine::builder().store(store), Options::default()).await;
    let body = json!({"workflow": "gated", "input": {}, "cancelOnDisconnect": true});
    let client = started_at_a_gate(&world, "/v1/runs?wait=600", None, &body).await;
    client.abort();
    drop(client.await);
    gate.add_permits(1_000);
    let id = answer(world.get("/v1/runs")).await.body["runs"][0]["runId"].clone();
    let report = world.ended(id.as_str().expect("an id")).await;
    assert_eq!(report["status"], "CANCELLED");
}

#[tokio::test]
async fn keep_on_failure_needs_a_session() {
    let world = World::new().await;
    let body = json!({"workflow": "echo", "input": {}, "keepOnFailure": true});
    let refused = answer(world.post("/v1/runs", &body)).await;
    assert_eq!(
        (refused.status.as_u16(), &refused.body["pointer"]),
        (422, &json!("/keepOnFailure"))
    );
}

#[tokio::test]
async fn an_id_that_is_not_utf8_is_refused_with_problem_details() {
    let world = World::of(Engine::builder().store(MemoryStore::new()), Options::default()).await;
    for path in [
        "/v1/runs/%ff",
        "/v1/runs/%ff/events",
        "/v1/workflows/%ff",
        "/v1/sessions/%ff",
        "/v1/chat/%ff/c/stream",
    ] {
        assert_eq!(
            refusal(world.get(path)).await,
            (400, "INVALID_REQUEST".into()),
            "{path}"
        );
    }
    for path in ["/v1/runs/%ff/cancel", "/v1/interactions/%ff"] {
        let answer = world.post(path, &json!({"answer": 1}));
        assert_eq!(refusal(answer).await, (400, "INVALID_REQUEST".into()), "{path}");
    }
    let long = "x".repeat(600);
    for id in ["%00", "a%00b", &long] {
        assert_eq!(
            refusal(world.get(&format!("/v1/runs/{id}"))).await,
            (404, "UNKNOWN_RUN".into())
        );
        let session = world.get(&format!("/v1/sessions/{id}"));
        assert_eq!(refusal(session).await, (404, "UNKNOWN_SESSION".into()));
    }
}

#[tokio::test]
async fn a_run_id_can_be_chosen_once() {
    let world = World::new().await;
    let body = json!({"workflow": "echo", "input": {}, "runId": "order-17.a_b"});
    assert_eq!(
        answer(world.post("/v1/runs", &body)).await.body["runId"],
        "order-17.a_b"
    );
    assert_eq!(
        refusal(world.post("/v1/runs", &body)).await,
        (409, "RUN_ID_TAKEN".into())
    );
    let events = Events::open(world.get("/v1/runs/order-17.a_b/events"))
        .await
        .all()
        .await;
    assert_eq!(events[0].json["runId"], "order-17.a_b");
    for wrong in ["", "a/b", "a b", "ä", ".", "..", &"x".repeat(129)] {
        let refused = answer(world.post("/v1/runs", &json!({"workflow": "echo", "input": {}, "runId": wrong}))).await;
        assert_eq!(
            (refused.status.as_u16(), &refused.body["pointer"]),
            (422, &json!("/runId"))
        );
    }
}

#[tokio::test]
async fn an_invalid_body_is_refused_with_location_and_reason() {
    let world = World::new().await;
    let digits = "1".repeat(30);
    let (big, small) = (
        format!(r#"{{"workflow": "echo", "input": {{"n": [{digits}]}}}}"#),
        "-9223372036854775809",
    );
    let small = format!(r#"{{"workflow": "echo", "input": {small}}}"#);
    let deep = format!(r#"{{"workflow": "echo", "input": {}}}"#, "[".repeat(100_000));
    let cases: &[(&str, &[u8], &str, Value, &str)] = &[
        (
            "/v1/runs",
            b"[]",
            "INVALID_VALUE",
            json!(""),
            "the body must be an object, got a list",
        ),
        (
            "/v1/runs",
            br#"["echo", {}]"#,
            "INVALID_VALUE",
            json!(""),
            "the body must be an object, got a list",
        ),
        (
            "/v1/runs",
            b"7",
            "INVALID_VALUE",
            json!(""),
            "the body must be an object, got a number",
        ),
        (
            "/v1/runs",
            b"null",
            "INVALID_VALUE",
            json!(""),
            "the body must be an object, got null",
        ),
        ("/v1/runs", b"{}", "MISSING_FIELD", json!(""), "`workflow` is missing"),
        (
            "/v1/runs",
            br#"{"workflow": {}}"#,
            "INVALID_VALUE",
            json!("/workflow"),
            "/workflow must be text, got an object",
        ),
        (
            "/v1/runs",
            br#"{"workflow": null}"#,
            "INVALID_VALUE",
            json!("/workflow"),
            "/workflow must be text, got null",
        ),
        (
            "/v1/runs",
            br#"{"workflow": true}"#,
            "INVALID_VALUE",
            json!("/workflow"),
            "must be text, got true",
        ),
        (
            "/v1/runs",
            br#"{"workflow": "echo", "inptu": 1}"#,
            "UNKNOWN_FIELD",
            json!("/inptu"),
            "did you mean `input`?",
        ),
        (
            "/v1/runs",
            br#"{"workflow": "echo", "conversation": {}}"#,
            "INVALID_VALUE",
            json!("/conversation"),
            "/conversation must be a list, got an object",
        ),
        (
            "/v1/runs",
            br#"{"workflow": "echo", "conversation": [[]]}"#,
            "INVALID_VALUE",
            json!("/conversation/0"),
            "/conversation/0 must be an object, got a list",
        ),
        (
            "/v1/runs",
            br#"{"workflow": "echo", "input": 1, "input": 2}"#,
            "INVALID_VALUE",
            json!("/input"),
            "the key `input` is given twice",
        ),
        (
            "/v1/runs",
            br#"{"workflow": "echo", "input": {"a/b": [{"x": 1, "x": 1}]}}"#,
            "INVALID_VALUE",
            json!("/input/a~1b/0/x"),
            "the key `x` is given twice",
        ),
        (
            "/v1/runs",
            big.as_bytes(),
            "INVALID_VALUE",
            json!("/input/n/0"),
            "write a larger one as text",
        ),
        (
            "/v1/runs",
            small.as_bytes(),
            "INVALID_VALUE",
            json!("/input"),
            "at least -2^63",
        ),
        (
            "/v1/runs",
            br#"{"workflow": "echo", "input": 1e400}"#,
            "INVALID_JSON",
            Value::Null,
            "number out of range",
        ),
        (
            "/v1/runs",
            b"{\"workflow\": \"\xff\"}",
            "INVALID_JSON",
            Value::Null,
            "not UTF-8: the byte 0xff",
        ),
        (
            "/v1/runs",
            br#"{"workflow": "\ud800x"}"#,
            "INVALID_JSON",
            Value::Null,
            "half of a surrogate pair",
        ),
        (
            "/v1/runs",
            br#"{"workflow": "\ud800"}"#,
            "INVALID_JSON",
            Value::Null,
            "half of a surrogate pair",
        ),
        (
            "/v1/runs",
            b"{\"workflow\": \"a\0b\"}",
            "INVALID_JSON",
            Value::Null,
            "control character in text",
        ),
        (
            "/v1/runs",
            b"{\"workflow\": \"echo\"}\0",
            "INVALID_JSON",
            Value::Null,
            "found the byte 0x00",
        ),
        (
            "/v1/runs",
            deep.as_bytes(),
            "INVALID_JSON",
            Value::Null,
            "nested more than 128 levels deep",
        ),
        (
            "/v1/runs/r/cancel",
            b"[]",
            "INVALID_VALUE",
            json!(""),
            "the body must be an object, got a list",
        ),
        (
            "/v1/runs/r/pause",
            b"[]",
            "INVALID_VALUE",
            json!(""),
            "the body must be an object, got a list",
        ),
        (
            "/v1/runs/r/pause",
            br#"{"a": 1}"#,
            "UNKNOWN_FIELD",
            json!("/a"),
            "this object has no fields",
        ),
        (
            "/v1/runs/r/emit",
            br#"["paid"]"#,
            "INVALID_VALUE",
            json!(""),
            "the body must be an object, got a list",
        ),
        (
            "/v1/runs/r/emit",
            br#"{"name": "paid", "data": []}"#,
            "INVALID_VALUE",
            json!("/data"),
            "/data must be an object, got a list",
        ),
        (
            "/v1/runs/r/fork",
            br#"{"step": -1}"#,
            "INVALID_VALUE",
            json!("/step"),
            "/step must be a whole number that is not negative, got -1",
        ),
        (
            "/v1/runs/r/fork",
            br#"{"step": 1.5}"#,
            "INVALID_VALUE",
            json!("/step"),
            "that is not negative, got 1.5",
        ),
        (
            "/v1/runs/r/pin",
            br#"{"section": "x", "value": 1}"#,
            "INVALID_VALUE",
            json!("/section"),
            "must be one of role",
        ),
        (
            "/v1/interactions/i",
            b"[1]",
            "INVALID_VALUE",
            json!(""),
            "the body must be an object, got a list",
        ),
        (
            "/v1/chat/echo",
            br#"{"messages": {}}"#,
            "INVALID_VALUE",
            json!("/messages"),
            "/messages must be a list, got an object",
        ),
    ];
    for (path, body, code, pointer, words) in cases {
        let request = world
            .client
            .post(world.url(path))
            .header("content-type", "application/json");
        let refused = answer(request.body(body.to_vec())).await;
        let told = format!(
            "{path} {}: {}",
            String::from_utf8_lossy(&body[..body.len().min(80)]),
            refused.body
        );
        assert_eq!(
            (&refused.body["code"], &refused.body["pointer"]),
            (&json!(code), pointer),
            "{told}"
        );
        let detail = refused.body["detail"].as_str().expect("a sentence");
        assert!(detail.contains(words), "{told}");
        assert!(
            refused.body["line"].is_u64() && refused.body["column"].is_u64(),
            "{told}"
        );
        for word in detail.split(|letter: char| !letter.is_alphanumeric()) {
            let of_rust = [
                "struct", "enum", "tuple", "unit", "map", "sequence", "variant", "u64", "usize", "StartRun",
            ];
            assert!(!of_rust.contains(&word), "{told}");
        }
    }
    let taken =
        r#"{"workflow": "echo", "input": {"n": 18446744073709551615, "text": "a\u0000b \ud83d\ude00", "f": 5.0}}"#;
    let request = world
        .client
        .post(world.url("/v1/runs"))
        .header("content-type", "application/json");
    let started = answer(request.body(taken)).await;
    let report = world.ended(started.body["runId"].as_str().expect("an id")).await;
    assert_eq!(
        report["output"],
        json!({"n": u64::MAX, "text": "a\0b \u{1f600}", "f": 5.0})
    );
}

#[tokio::test]
async fn an_invalid_request_is_refused_with_the_location_of_the_error() {
    let world = World::new().await;
    let raw = |body: &str| {
        let request = world
            .client
            .post(world.url("/v1/runs"))
            .header("content-type", "application/json");
        request.body(body.to_owned())
    };
    let place = |body: &Value| (body["code"].clone(), body["pointer"].clone(), body["line"].clone());
    let malformed = answer(raw("{\n  \"workflow\": \"echo\",\n  oops\n}")).await;
    assert_eq!(malformed.status, StatusCode::BAD_REQUEST);
    assert_eq!(
        (
            &malformed.body["code"],
            &malformed.body["line"],
            &malformed.body["column"]
        ),
        (&json!("INVALID_JSON"), &json!(3), &json!(3))
    );
    assert_eq!(
        answer(raw("{\"workflow\": \"echo\"} x")).await.body["code"],
        "INVALID_JSON"
    );
    let unknown = answer(raw("{\n\"workflow\": \"echo\",\n\"inptu\": 1}")).await;
    assert_eq!(unknown.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(
        place(&unknown.body),
        (json!("UNKNOWN_FIELD"), json!("/inptu"), json!(3))
    );
    let missing = answer(raw("")).await;
    assert_eq!(
        (&missing.body["code"], missing.status.as_u16()),
        (&json!("MISSING_FIELD"), 422)
    );
    let wrong = answer(raw(
        r#"{"workflow": "echo", "conversation": [{"role": "user", "content": "x"}, {"role": "bot", "content": ""}]}"#,
    ))
    .await;
    assert_eq!(wrong.body["pointer"], "/conversation/1/role");
    let input = answer(world.post("/v1/runs", &json!({"workflow": "echo", "input": {"n": "seven"}}))).await;
    assert_eq!(
        (input.status.as_u16(), &input.body["code"], &input.body["pointer"]),
        (422, &json!("INVALID_INPUT"), &json!("/input/n"))
    );
    // The detail quotes the input.
    let long = json!({"workflow": "echo", "input": {"n": "7".repeat(100_000)}});
    let input = answer(world.post("/v1/runs", &long)).await;
    assert_eq!(input.body["code"], "INVALID_INPUT");
    let detail = input.body["detail"].as_str().expect("a text");
    assert!(detail.len() <= 400, "{}", detail.len());
    let workflow = answer(world.post("/v1/runs", &json!({"workflow": "ecko"}))).await;
    assert_eq!(
        (workflow.status.as_u16(), &workflow.body["pointer"]),
        (404, &json!("/workflow"))
    );
    assert!(
        workflow.body["detail"]
            .as_str()
            .expect("a sentence")
            .contains("did you mean echo?")
    );
    let untyped = world.client.post(world.url("/v1/runs")).body(r#"{"workflow": "echo"}"#);
    assert_eq!(refusal(untyped).await, (415, "UNSUPPORTED_MEDIA_TYPE".into()));
    assert_eq!(refusal(world.get("/v1/nothing")).await, (404, "NOT_FOUND".into()));
    assert_eq!(
        refusal(world.client.delete(world.url("/v1/runs"))).await,
        (405, "METHOD_NOT_ALLOWED".into())
    );
    assert_eq!(refusal(world.get("/v1/runs/none")).await, (404, "UNKNOWN_RUN".into()));
    for query in [
        "after=x",
        "limit=0",
        "limit=1001",
        "limit=many",
        "status=done",
        "statuss=RUNNING",
    ] {
        let refused = refusal(world.get(&format!("/v1/runs?{query}"))).await;
        assert_eq!(refused, (400, "INVALID_REQUEST".into()), "{query}");
    }
}

#[tokio::test]
async fn a_paginated_list_has_every_run_once_newest_first() {
    let world = World::new().await;
    let mut started = Vec::new();
    for n in 0..7 {
        started.push(world.start("echo", json!({"n": n})).await);
    }
    let held = world.start("gated", Value::Null).await;
    for id in &started {
        world.ended(id).await;
    }
    let (mut listed, mut after) = (Vec::new(), String::new());
    loop {
        let page = answer(world.get(&format!("/v1/runs?workflow=echo&limit=3{after}")))
            .await
            .body;
        let runs = page["runs"].as_array().expect("runs");
        assert!(runs.len() <= 3);
        listed.extend(runs.clone());
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    let ids: BTreeSet<&str> = listed.iter().filter_map(|run| run["runId"].as_str()).collect();
    assert_eq!(ids, started.iter().map(String::as_str).collect());
    assert_eq!(listed.len(), started.len());
    assert!(listed.is_sorted_by(|a, b| a["startedAt"].as_u64() >= b["startedAt"].as_u64()));
    let running = answer(world.get("/v1/runs?status=running")).await.body;
    assert_eq!(
        (running["runs"].as_array().map(Vec::len), &running["runs"][0]["runId"]),
        (Some(1), &json!(held))
    );
}

#[tokio::test]
async fn the_earliest_ended_runs_are_evicted_first_and_live_runs_never() {
    let world = World::limited(Limits {
        ended_runs: 2,
        ..Limits::default()
    })
    .await;
    let live = world.start("gated", Value::Null).await;
    let mut ended = Vec::new();
    for n in 0..4 {
        let id = world.start("echo", json!({"n": n})).await;
        world.ended(&id).await;
        ended.push(id);
    }
    let listed = answer(world.get("/v1/runs")).await.body;
    let ids: BTreeSet<&str> = listed["runs"]
        .as_array()
        .expect("runs")
        .iter()
        .filter_map(|run| run["runId"].as_str())
        .collect();
    assert_eq!(ids, BTreeSet::from([live.as_str(), &ended[2], &ended[3]]));
    assert_eq!(
        refusal(world.get(&format!("/v1/runs/{}", ended[0]))).await,
        (404, "UNKNOWN_RUN".into())
    );
}

#[tokio::test]
async fn a_run_is_paused_resumed_and_cancelled() {
    let world = World::new().await;
    let id = world.start("steps", json!({"n": 3})).await;
    let tell = |what: &str, body: Value| world.post(&format!("/v1/runs/{id}/{what}"), &body);
    assert_eq!(answer(tell("pause", json!({}))).await.body, json!({"ok": true}));
    world.gate.add_permits(1);
    world.until(&id, "THREAD_PAUSED").await;
    assert_eq!(
        answer(world.get(&format!("/v1/runs/{id}"))).await.body["status"],
        "PAUSED"
    );
    answer(tell("resume", json!({}))).await;
    world.until(&id, "THREAD_RESUMED").await;
    assert_eq!(
        answer(tell("cancel", json!({"reason": "enough"}))).await.status,
        StatusCode::OK
    );
    let report = world.ended(&id).await;
    assert_eq!(report["status"], "CANCELLED");
    assert!(
        report["error"]["message"]
            .as_str()
            .expect("a sentence")
            .contains("enough")
    );
    for what in ["pause", "resume", "cancel"] {
        assert_eq!(refusal(tell(what, json!({}))).await, (409, "RUN_ENDED".into()));
    }
}

#[tokio::test]
async fn an_emitted_event_ends_the_wait_for_it() {
    let world = World::new().await;
    let id = world.start("paid", Value::Null).await;
    world.until(&id, "NODE_STARTED").await;
    let mut events = Events::open(world.get(&format!("/v1/runs/{id}/events?types=NODE_STARTED"))).await;
    while events.next().await.expect("the node").json["nodeId"] != "wait" {}
    let emitted = answer(world.post(
        &format!("/v1/runs/{id}/emit"),
        &json!({"name": "paid", "data": {"amount": 3}}),
    ))
    .await;
    assert_eq!(emitted.status, StatusCode::OK);
    let report = world.ended(&id).await;
    assert_eq!(
        (&report["status"], &report["output"]["data"]["amount"]),
        (&json!("COMPLETED"), &json!(3))
    );
    let late = world.post(&format!("/v1/runs/{id}/emit"), &json!({"name": "paid"}));
    assert_eq!(refusal(late).await, (409, "RUN_ENDED".into()));
}

#[tokio::test]
async fn a_section_is_pinned_and_an_unknown_section_is_refused() {
    let world = World::new().await;
    let id = world.start("gated", Value::Null).await;
    let pin = |section: &str| {
        world.post(
            &format!("/v1/runs/{id}/pin"),
            &json!({"section": section, "value": "Be brief."}),
        )
    };
    assert_eq!(answer(pin("role")).await.body, json!({"ok": true}));
    assert_eq!(refusal(pin("roll")).await, (422, "INVALID_VALUE".into()));
    world.gate.add_permits(1);
    assert_eq!(world.ended(&id).await["status"], "COMPLETED");
}

#[tokio::test]
async fn a_full_engine_refuses_with_503_and_retry_after() {
    let world = World::of(pirn::Engine::builder().max_runs(1), pirn_service::Options::default()).await;
    let id = world.start("gated", Value::Null).await;
    world.until(&id, "NODE_STARTED").await;
    let refused = answer(world.post("/v1/runs", &json!({"workflow": "echo", "input": {}}))).await;
    assert_eq!(
        (refused.status.as_u16(), &refused.body["code"]),
        (503, &json!("OVERLOADED"))
    );
    assert_eq!(refused.headers["retry-after"], "1");
    world.gate.add_permits(1);
    assert_eq!(world.ended(&id).await["status"], "COMPLETED");
}

#[tokio::test]
async fn a_start_that_the_store_refused_may_be_repeated_with_its_id() {
    let (store, gate) = GatedStore::new();
    gate.add_permits(1_000);
    let is_full = store.is_full();
    is_full.store(true, Ordering::SeqCst);
    let world = World::of(Engine::builder().store(store), Options::default()).await;
    let body = json!({"workflow": "echo", "input": {}, "runId": "mine"});
    assert_eq!(
        refusal(world.post("/v1/runs", &body)).await,
        (500, "STORE_FAILED".into())
    );
    assert_eq!(answer(world.get("/v1/runs")).await.body["runs"], json!([]));
    is_full.store(false, Ordering::SeqCst);
    let started = answer(world.post("/v1/runs", &body)).await;
    assert_eq!(
        (started.status.as_u16(), &started.body["runId"]),
        (201, &json!("mine")),
        "{}",
        started.body
    );
    assert_eq!(world.ended("mine").await["status"], "COMPLETED");
}
