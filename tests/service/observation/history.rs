//! History of runs: the state at a step, steps, threads, definitions, differences.

use pirn::Engine;
use pirn::store::MemoryStore;
use pirn_service::{Limits, Options};
use serde_json::{Value, json};

use crate::world::{World, answer, refusal};

async fn stored() -> World {
    World::of(Engine::builder().store(MemoryStore::new()), Options::default()).await
}

async fn get(world: &World, path: &str) -> Value {
    let answer = answer(world.get(path)).await;
    assert_eq!(answer.status.as_u16(), 200, "{path}: {}", answer.body);
    answer.body
}

/// Runs `steps` with that number of rounds to its end; returns its id.
async fn counted(world: &World, rounds: usize) -> String {
    world.gate.add_permits(rounds);
    let id = world.start("steps", json!({"n": rounds})).await;
    assert_eq!(world.ended(&id).await["output"], json!(rounds));
    id
}

#[tokio::test]
async fn steps_are_listed_in_pages_and_each_has_a_state() {
    const ROUNDS: usize = 5;
    let world = stored().await;
    let id = counted(&world, ROUNDS).await;
    let all = get(&world, &format!("/v1/runs/{id}/steps?limit=1000")).await;
    assert_eq!(all["next"], Value::Null);
    let steps = all["steps"].as_array().expect("steps");
    assert_eq!(steps[0]["kind"], "start");
    assert_eq!(steps[steps.len() - 1]["kind"], "end");
    let calls: Vec<&Value> = steps.iter().filter(|step| step["kind"] == "function").collect();
    assert_eq!(calls.len(), ROUNDS, "{all}");
    assert!(
        calls
            .iter()
            .all(|step| step["nodeId"] == "step" && step["effectId"].is_string())
    );

    let (mut read, mut after) = (Vec::new(), String::new());
    loop {
        let page = get(&world, &format!("/v1/runs/{id}/steps?limit=2{after}")).await;
        read.extend(page["steps"].as_array().expect("steps").iter().cloned());
        let Some(next) = page["next"].as_u64() else { break };
        after = format!("&after={next}");
    }
    assert_eq!(&read, steps);

    // After the n-th call the counter has counted the calls so far.
    for (before, call) in calls.iter().enumerate() {
        let at = get(&world, &format!("/v1/runs/{id}?at={}", call["step"])).await;
        assert_eq!(at["variables"]["n"], json!(before + 1), "{at}");
        assert_eq!(at["steps"], call["step"]);
    }
    let start = get(&world, &format!("/v1/runs/{id}?at=0")).await;
    assert_eq!(
        (&start["variables"]["n"], &start["status"]),
        (&json!(0), &json!("RUNNING"))
    );
    let beyond = refusal(world.get(&format!("/v1/runs/{id}?at=999"))).await;
    assert_eq!(beyond, (422, "INVALID_VALUE".into()));
    for limit in ["0", "1001"] {
        let refused = refusal(world.get(&format!("/v1/runs/{id}/steps?limit={limit}"))).await;
        assert_eq!(refused, (400, "INVALID_REQUEST".into()), "{limit}");
    }
}

#[tokio::test]
async fn threads_have_their_parents_and_times_with_and_without_a_store() {
    for (has_store, world) in [(true, stored().await), (false, World::new().await)] {
        let id = world.start("two-voices", json!({"message": "hello"})).await;
        assert_eq!(world.ended(&id).await["status"], "COMPLETED");
        let shown = get(&world, &format!("/v1/runs/{id}/threads")).await;
        let threads = shown["threads"].as_array().expect("threads");
        assert_eq!(threads.len(), 3, "{shown}");
        let main = format!("{id}.0");
        assert_eq!(
            (&threads[0]["threadId"], &threads[0]["kind"]),
            (&json!(main), &json!("main"))
        );
        assert_eq!(threads[0]["parentId"], Value::Null);
        for (thread, path) in threads[1..].iter().zip(["a", "b"]) {
            assert_eq!(thread["pathId"], path, "{shown}");
            assert_eq!(
                (&thread["parentId"], &thread["nodeId"]),
                (&json!(main), &json!("fork")),
                "{shown}"
            );
            assert_eq!(
                (&thread["kind"], &thread["status"]),
                (&json!("branch"), &json!("COMPLETED"))
            );
            assert!(thread["startedAt"].as_u64() <= thread["endedAt"].as_u64(), "{thread}");
            assert!(thread["endedAt"].as_u64() <= threads[0]["endedAt"].as_u64(), "{shown}");
        }
        assert_eq!(threads[0]["endedStep"].is_u64(), has_store, "{shown}");
        let page = get(&world, &format!("/v1/runs/{id}/threads?limit=2&after=1")).await;
        assert_eq!(page["threads"], json!(threads[1..]));
    }
}

#[tokio::test]
async fn the_definition_of_a_run_has_the_workflows_that_it_used() {
    let world = stored().await;
    let id = world.start("echo", json!({})).await;
    world.ended(&id).await;
    let shown = get(&world, &format!("/v1/runs/{id}/definition")).await;
    let workflows = shown["workflows"].as_array().expect("workflows");
    assert_eq!(workflows.len(), 1, "only those of its threads");
    assert_eq!(
        (&workflows[0]["id"], &workflows[0]["name"]),
        (&json!("echo"), &json!("Echo"))
    );
    assert!(shown.get("profiles").is_none());
}

#[tokio::test]
async fn a_run_and_its_fork_differ_from_the_forked_step_on() {
    let world = stored().await;
    let id = counted(&world, 2).await;
    world.gate.add_permits(2);
    let body = json!({"step": 1, "runId": "forked", "set": {"n": 7}});
    let forked = answer(world.post(&format!("/v1/runs/{id}/fork"), &body)).await;
    assert_eq!(forked.status.as_u16(), 201, "{}", forked.body);
    assert_eq!(world.ended("forked").await["output"], 8);
    let diff = get(&world, &format!("/v1/runs/{id}/diff/forked")).await;
    assert_eq!(diff["commonSteps"], 1, "{diff}");
    assert_eq!(
        (&diff["outcome"]["equal"], &diff["outcome"]["b"]["output"]),
        (&json!(false), &json!(8))
    );
    assert_eq!(
        refusal(world.get(&format!("/v1/runs/{id}/diff/nobody"))).await,
        (404, "UNKNOWN_RUN".into())
    );
}

#[tokio::test]
async fn model_requests_are_listed_and_shown_as_they_were_sent() {
    let world = stored().await;
    let id = world.start("chat", json!({"message": "what time is it?"})).await;
    assert_eq!(world.ended(&id).await["status"], "COMPLETED");
    let list = get(&world, &format!("/v1/runs/{id}/requests")).await;
    let requests = list["requests"].as_array().expect("requests");
    assert_eq!(requests.len(), 2, "the call of the tool, and the answer: {list}");
    let steps = get(&world, &format!("/v1/runs/{id}/steps")).await;
    for (request, finish) in requests.iter().zip(["tool_calls", "stop"]) {
        assert_eq!(
            (&request["nodeId"], &request["profileId"]),
            (&json!("ask"), &json!("bot"))
        );
        assert_eq!(
            (&request["finishReason"], &request["attempts"]),
            (&json!(finish), &json!(1))
        );
        assert!(request["cost"]["amount"].is_number(), "{request}");
        let mut steps = steps["steps"].as_array().expect("steps").iter();
        let answered = steps
            .find(|step| step["effectId"] == request["effectId"])
            .expect("a step");
        assert_eq!(
            (&answered["kind"], &answered["durationMs"]),
            (&json!("model"), &request["durationMs"])
        );
    }
    let path = |request: &Value| {
        format!(
            "/v1/runs/{id}/requests/{}",
            request["effectId"].as_str().expect("an id")
        )
    };
    let first = get(&world, &path(&requests[0])).await;
    assert_eq!(
        first["request"]["messages"][0]["content"], "what time is it?",
        "{first}"
    );
    assert_eq!(first["request"]["tools"][0]["name"], "clock", "{first}");
    assert_eq!(first["response"]["message"]["toolCalls"][0]["name"], "clock");
    assert!(first.get("prefix").is_none());
    let second = get(&world, &path(&requests[1])).await;
    // The history grew, so there is no reason for a difference.
    let expected = json!({"previous": requests[0]["effectId"], "sameMessages": 1});
    assert_eq!(second["prefix"], expected);
    assert_eq!(second["response"]["message"]["content"], "it is noon");
    for field in ["effectId", "step", "threadId", "at", "durationMs", "cost"] {
        assert_eq!(second[field], requests[1][field], "{field}");
    }
    let unknown = refusal(world.get(&format!("/v1/runs/{id}/requests/{id}.0.999"))).await;
    assert_eq!(unknown, (404, "UNKNOWN_REQUEST".into()));
    let page = get(&world, &format!("/v1/runs/{id}/requests?limit=1")).await;
    assert_eq!((&page["requests"], &page["next"]), (&json!([requests[0]]), &json!(1)));
}

#[tokio::test]
async fn an_explanation_is_plain_text() {
    let world = stored().await;
    let id = world.start("broken", Value::Null).await;
    assert_eq!(world.ended(&id).await["status"], "FAILED");
    let answer = answer(world.get(&format!("/v1/runs/{id}/explain"))).await;
    assert_eq!(answer.headers["content-type"], "text/plain; charset=utf-8");
    let text = answer.body.as_str().expect("text");
    assert!(text.starts_with(&format!("{id} of broken: FAILED")), "{text}");
    assert!(text.contains("\nFailing node: ask (LLM) of thread "), "{text}");
}

#[tokio::test]
async fn calls_that_need_a_store_say_so_without_one() {
    let world = World::new().await;
    let id = world.start("echo", json!({})).await;
    world.ended(&id).await;
    for call in [
        "?at=0",
        "/steps",
        "/definition",
        "/requests",
        "/requests/x",
        "/explain",
        &format!("/diff/{id}"),
    ] {
        let refused = answer(world.get(&format!("/v1/runs/{id}{call}"))).await;
        assert_eq!(
            (refused.status.as_u16(), &refused.body["code"]),
            (409, &json!("NO_STORE")),
            "{call}"
        );
        let detail = refused.body["detail"].as_str().expect("a detail");
        assert!(detail.contains("--store"), "{detail}");
        assert_eq!(
            refusal(world.get(&format!("/v1/runs/nobody{call}"))).await,
            (404, "UNKNOWN_RUN".into()),
            "{call}"
        );
    }
    let stored = stored().await;
    for call in [
        "?at=0",
        "/steps",
        "/threads",
        "/definition",
        "/requests",
        "/requests/x",
        "/explain",
        "/diff/x",
    ] {
        for id in ["nobody", "%20"] {
            let refused = refusal(stored.get(&format!("/v1/runs/{id}{call}"))).await;
            assert_eq!(refused, (404, "UNKNOWN_RUN".into()), "{id}{call}");
        }
    }
}

#[tokio::test]
async fn a_history_that_exceeds_the_cache_is_still_answered() {
    let limits = Limits {
        history_bytes: 1,
        ..Limits::default()
    };
    let options = Options {
        limits,
        ..Options::default()
    };
    let world = World::of(Engine::builder().store(MemoryStore::new()), options).await;
    let id = counted(&world, 3).await;
    let (one, other) = (
        get(&world, &format!("/v1/runs/{id}/steps")).await,
        get(&world, &format!("/v1/runs/{id}/steps")).await,
    );
    assert_eq!(one, other);
}
