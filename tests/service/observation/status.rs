//! The stream of the changes of all runs, and the open questions of all runs.

use std::time::Duration;

use pirn::Engine;
use pirn::store::MemoryStore;
use pirn_service::{Limits, Options};
use serde_json::{Value, json};

use crate::world::{DETACHES, Events, Sent, World, answer, answered, later, refusal};

async fn stored() -> World {
    World::of(Engine::builder().store(MemoryStore::new()), Options::default()).await
}

fn summary(event: &Sent) -> (String, String, u64) {
    assert_eq!(event.name.as_deref(), Some("run"));
    let text = |name: &str| event.json[name].as_str().expect("a text").to_owned();
    (
        text("runId"),
        text("status"),
        event.json["openQuestions"].as_u64().expect("a number"),
    )
}

/// Reads until a run has this status and number of questions; returns the id of that event.
async fn until(events: &mut Events, run: &str, status: &str, questions: u64) -> String {
    loop {
        let event = events.next().await.expect("a change");
        if summary(&event) == (run.to_owned(), status.to_owned(), questions) {
            return event.position.expect("an id");
        }
    }
}

#[tokio::test]
async fn every_change_of_status_and_questions_reaches_a_reader() {
    let world = World::new().await;
    let early = world.start("echo", json!({})).await;
    world.ended(&early).await;
    let mut events = Events::open(world.get("/v1/status")).await;
    // First the runs that are in memory.
    until(&mut events, &early, "COMPLETED", 0).await;
    let run = world.start("asks", Value::Null).await;
    until(&mut events, &run, "RUNNING", 0).await;
    until(&mut events, &run, "RUNNING", 1).await;
    answered(&world, &run).await;
    until(&mut events, &run, "COMPLETED", 0).await;
    let paused = world.start("steps", json!({"n": 1})).await;
    until(&mut events, &paused, "RUNNING", 0).await;
    answer(world.post(&format!("/v1/runs/{paused}/pause"), &json!({}))).await;
    world.gate.add_permits(1);
    until(&mut events, &paused, "PAUSED", 0).await;
    answer(world.post(&format!("/v1/runs/{paused}/cancel"), &json!({}))).await;
    until(&mut events, &paused, "CANCELLED", 0).await;
}

#[tokio::test]
async fn a_reader_that_reconnects_gets_the_runs_that_have_changed_since() {
    let world = World::new().await;
    let mut events = Events::open(world.get("/v1/status")).await;
    let first = world.start("echo", json!({})).await;
    // Its end must be read before the stream is closed, or it is a later change.
    until(&mut events, &first, "COMPLETED", 0).await;
    let second = world.start("asks", Value::Null).await;
    let read_to = until(&mut events, &second, "RUNNING", 1).await;
    let mut seen: Vec<String> = Vec::new();
    drop(events);
    let third = world.start("echo", json!({})).await;
    world.ended(&third).await;
    answered(&world, &second).await;
    world.ended(&second).await;
    let mut events = Events::open(world.get("/v1/status").header("last-event-id", &read_to)).await;
    while seen.last() != Some(&second) {
        let event = events.next().await.expect("a change");
        let (run, status, _) = summary(&event);
        assert_eq!(status, "COMPLETED");
        seen.push(run);
    }
    assert!(!seen.contains(&first), "it has not changed: {seen:?}");
    assert!(seen.contains(&third));
    // The id of a process that has ended, and ids that none has sent.
    for other in ["1.1", "18446744073709551615.1", "7"] {
        let mut events = Events::open(world.get("/v1/status").header("last-event-id", other)).await;
        let reset = events.next().await.expect("an event");
        assert_eq!(
            (reset.name.as_deref(), &reset.json),
            (Some("reset"), &json!({})),
            "{other}"
        );
        let again = events.next().await.expect("every run");
        assert_eq!(again.name.as_deref(), Some("run"));
    }
    let invalid = world.get("/v1/status").header("last-event-id", "x");
    assert_eq!(refusal(invalid).await, (400, "INVALID_REQUEST".into()));
}

#[tokio::test]
async fn a_parked_run_is_reported_with_its_status_in_the_store() {
    let world = stored().await;
    let mut events = Events::open(world.get("/v1/status")).await;
    let run = world.start("asks", Value::Null).await;
    until(&mut events, &run, "RUNNING", 1).await;
    answer(world.post(&format!("/v1/runs/{run}/park"), &json!({}))).await;
    loop {
        let event = events.next().await.expect("a change");
        if event.json["status"] == "WAITING" {
            break;
        }
    }
    answer(world.post(&format!("/v1/runs/{run}/resume"), &json!({}))).await;
    until(&mut events, &run, "RUNNING", 1).await;
    answered(&world, &run).await;
    until(&mut events, &run, "COMPLETED", 0).await;
}

#[tokio::test]
async fn the_end_of_a_run_and_the_questions_of_its_detached_branch_are_reported_while_the_branch_is_active() {
    for engine in [Engine::builder(), Engine::builder().store(MemoryStore::new())] {
        let world = World::of(engine.workflows(DETACHES), Options::default()).await;
        let mut events = Events::open(world.get("/v1/status")).await;
        let run = world.start("detaches", Value::Null).await;
        until(&mut events, &run, "COMPLETED", 1).await;
        let open = answer(world.get("/v1/interactions")).await.body;
        assert_eq!(open["interactions"][0]["runId"], json!(run), "{open}");
        answered(&world, &run).await;
        until(&mut events, &run, "COMPLETED", 0).await;
        let open = answer(world.get("/v1/interactions")).await.body;
        assert_eq!(open["interactions"], json!([]));
    }
}

#[tokio::test]
async fn status_streams_count_as_streams_send_comments_and_end_with_the_service() {
    let limits = Limits {
        streams: 1,
        keep_alive: Duration::from_millis(20),
        ..Limits::default()
    };
    let world = World::limited(limits).await;
    let mut events = Events::open(world.get("/v1/status")).await;
    let refused = refusal(world.get("/v1/status").header("accept", "text/event-stream")).await;
    assert_eq!(refused, (503, "TOO_MANY_STREAMS".into()));
    events.comment().await;
    let run = world.start("gated", Value::Null).await;
    until(&mut events, &run, "RUNNING", 0).await;
    let report = world.service.shut_down(Duration::ZERO).await;
    assert_eq!(report.runs_cancelled, 1);
    let last = events.all().await.pop().expect("a last change");
    assert_eq!(summary(&last), (run, "CANCELLED".to_owned(), 0));
}

#[tokio::test]
async fn the_open_questions_of_all_runs_are_listed_with_their_times() {
    let world = stored().await;
    let started: Vec<String> = futures::future::join_all(
        ["asks", "hurried", "two-people", "careful"].map(|workflow| world.start(workflow, Value::Null)),
    )
    .await;
    // A parked run is read from the store.
    world.until(&started[0], "INTERACTION_REQUESTED").await;
    let parked = answer(world.post(&format!("/v1/runs/{}/park", started[0]), &json!({}))).await;
    assert_eq!(parked.status.as_u16(), 200, "{}", parked.body);
    let mut questions = Vec::new();
    while questions.len() < 5 {
        let open = answer(world.get("/v1/interactions")).await.body;
        assert_eq!(open["more"], Value::Null);
        questions.clone_from(open["interactions"].as_array().expect("questions"));
    }
    let of = |run: usize| {
        questions
            .iter()
            .filter(|open| open["runId"] == *started[run])
            .collect::<Vec<_>>()
    };
    assert_eq!([0, 1, 2, 3].map(|run| of(run).len()), [1, 1, 2, 1]);
    let times: Vec<u64> = questions
        .iter()
        .map(|open| open["askedAt"].as_u64().expect("a time"))
        .collect();
    assert!(times.is_sorted(), "{times:?}");
    let parked = of(0)[0];
    assert_eq!(
        (&parked["workflowId"], &parked["nodeId"]),
        (&json!("asks"), &json!("color"))
    );
    assert_eq!(
        (&parked["choices"], &parked["expiresAt"]),
        (&json!(["red", "blue"]), &Value::Null)
    );
    let hurried = of(1)[0];
    let asked_at = hurried["askedAt"].as_u64().expect("a time");
    assert_eq!(hurried["expiresAt"], asked_at + 3_600_000);
    assert_eq!(
        (&of(3)[0]["tool"]["name"], &of(3)[0]["tool"]["arguments"]),
        (&json!("pay"), &json!({"amount": 7}))
    );
    // Each entry contains the question as its run lists it.
    let own = answer(world.get(&format!("/v1/runs/{}/interactions", started[3])))
        .await
        .body;
    for (name, value) in own["interactions"][0].as_object().expect("fields") {
        assert_eq!(of(3)[0].get(name), Some(value), "{name}");
    }
    let few = answer(world.get("/v1/interactions?limit=2")).await.body;
    assert_eq!(
        (few["interactions"].as_array().map(Vec::len), &few["more"]),
        (Some(2), &json!(true))
    );
    assert_eq!(
        refusal(world.get("/v1/interactions?limit=1001")).await,
        (400, "INVALID_REQUEST".into())
    );
    // The id in the list also answers the question of a stored run, which then no longer waits.
    let id = parked["id"].as_str().expect("an id");
    let told = answer(world.post(&format!("/v1/interactions/{id}"), &json!({"answer": "red"}))).await;
    assert_eq!(told.status.as_u16(), 200, "{}", told.body);
    let open = answer(world.get("/v1/interactions")).await.body;
    assert_eq!(open["interactions"].as_array().map(Vec::len), Some(4));
}

/// A workflow with two questions, one after the other.
const TWICE: &str = r#"{"id": "twice",
    "nodes": [{"id": "start", "type": "START"},
              {"id": "first", "type": "USER_INTERACTION", "config": {"question": "First?"}},
              {"id": "second", "type": "USER_INTERACTION", "config": {"question": "Second?"}},
              {"id": "end", "type": "END"}],
    "edges": [{"from": "start", "to": "first"}, {"from": "first", "to": "second"}, {"from": "second", "to": "end"}]}"#;

/// Starts a run with a question. Returns its id after the question is open.
async fn asking(world: &World, workflow: &str) -> String {
    let run = world.start(workflow, Value::Null).await;
    world.until(&run, "INTERACTION_REQUESTED").await;
    later().await;
    run
}

#[tokio::test]
async fn a_short_list_of_questions_has_those_that_were_asked_first() {
    let engine = Engine::builder().store(MemoryStore::new()).workflows(TWICE);
    let world = World::of(engine, Options::default()).await;
    let first = async || {
        let few = answer(world.get("/v1/interactions?limit=1")).await.body;
        assert_eq!(few["more"], true, "{few}");
        few["interactions"][0]["runId"].clone()
    };
    let older = [asking(&world, "twice").await, asking(&world, "twice").await];
    let younger = asking(&world, "asks").await;
    for run in &older {
        answered(&world, run).await;
    }
    loop {
        let all = answer(world.get("/v1/interactions")).await.body;
        let asked = all["interactions"].as_array().expect("questions");
        if asked.iter().filter(|open| open["nodeId"] == "second").count() == 2 {
            break;
        }
    }
    assert_eq!(
        first().await,
        json!(younger),
        "the second questions of the older runs are younger"
    );
    // A question of the store may be older than those in memory.
    let parked = answer(world.post(&format!("/v1/runs/{younger}/park"), &json!({}))).await;
    assert_eq!(parked.status.as_u16(), 200, "{}", parked.body);
    let mut stream = Events::open(world.get(&format!("/v1/runs/{younger}/events?types=CUSTOM"))).await;
    while stream.next().await.is_some() {}
    assert_eq!(first().await, json!(younger));
}
