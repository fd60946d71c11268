//! Streams of events: resume, filter, lag, end.

use std::time::Duration;

use pirn_service::Limits;
use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::world::{Events, Sent, World, answer, refusal};

fn is_event(sent: &Sent) -> bool {
    sent.name.is_none()
}

#[tokio::test]
async fn a_client_that_reconnects_after_every_event_gets_each_once_in_order() {
    let world = World::new().await;
    let id = world.start("steps", json!({"n": 6})).await;
    let path = format!("/v1/runs/{id}/events");
    let mut read: Vec<Sent> = Vec::new();
    loop {
        let mut request = world.get(&path);
        if let Some(last) = read.last() {
            request = request.header("last-event-id", last.id.expect("a sequence"));
        }
        let response = request.send().await.expect("an answer");
        if response.status() == StatusCode::NO_CONTENT {
            break;
        }
        // Reads one event and drops the connection with the rest of its data.
        let mut events = Events::of(response);
        match events.next().await {
            Some(event) if is_event(&event) => read.push(event),
            Some(end) => {
                assert_eq!(end.name.as_deref(), Some("end"));
                break;
            }
            None => break,
        }
        drop(events);
        // The run advances both while a client is connected and while it is not.
        if read.len().is_multiple_of(4) {
            world.gate.add_permits(1);
        }
    }
    let sequences: Vec<u64> = read.iter().filter_map(|event| event.id).collect();
    assert_eq!(sequences, (1..=sequences.len() as u64).collect::<Vec<_>>());
    let whole = Events::open(world.get(&path)).await.all().await;
    assert_eq!(
        whole
            .iter()
            .filter(|event| is_event(event))
            .cloned()
            .collect::<Vec<_>>(),
        read
    );
    assert_eq!(world.ended(&id).await["status"], "COMPLETED");
}

#[tokio::test]
async fn streamed_events_equal_those_of_the_events_file_and_a_last_one_has_the_outcome() {
    let world = World::new().await;
    let id = world.start("echo", json!({"n": 1})).await;
    let all = Events::open(world.get(&format!("/v1/runs/{id}/events")))
        .await
        .all()
        .await;
    let (end, events) = all.split_last().expect("events");
    assert!(events.iter().all(|event| event.id == event.json["sequence"].as_u64()));
    assert_eq!(events[0].json["type"], "THREAD_STARTED");
    assert_eq!(events.last().expect("one").json["type"], "THREAD_COMPLETED");
    assert_eq!((end.name.as_deref(), end.id), (Some("end"), None));
    assert_eq!(end.json, json!({"runId": id, "status": "COMPLETED"}));
}

#[tokio::test]
async fn the_request_that_starts_a_run_can_read_its_events() {
    let world = World::new().await;
    let request = world.post("/v1/runs", &json!({"workflow": "echo", "input": {"n": 1}}));
    let response = request
        .header("accept", "text/event-stream")
        .send()
        .await
        .expect("an answer");
    assert_eq!(response.status(), StatusCode::CREATED);
    let location = response.headers()["location"].to_str().expect("a path").to_owned();
    let all = Events::of(response).all().await;
    assert_eq!(all[0].id, Some(1));
    assert_eq!(
        format!("/v1/runs/{}", all[0].json["runId"].as_str().expect("an id")),
        location
    );
}

#[tokio::test]
async fn a_late_reader_receives_the_number_of_missed_events() {
    let world = World::limited(Limits {
        events_per_run: 5,
        ..Limits::default()
    })
    .await;
    let id = world.start("echo", json!({"n": 1})).await;
    let count = answer(world.get("/v1/runs")).await.body["runs"][0]["lastSequence"].as_u64();
    world.ended(&id).await;
    let last = answer(world.get("/v1/runs")).await.body["runs"][0]["lastSequence"]
        .as_u64()
        .expect("a sequence");
    assert!(count <= Some(last) && last > 5);
    let all = Events::open(world.get(&format!("/v1/runs/{id}/events")))
        .await
        .all()
        .await;
    assert_eq!(all[0].name.as_deref(), Some("missed"));
    assert_eq!(all[0].json, json!({"after": 0, "count": last - 5}));
    assert_eq!(all[0].id, Some(last - 5));
    let kept: Vec<u64> = all.iter().skip(1).filter_map(|event| event.id).collect();
    assert_eq!(kept, (last - 4..=last).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_filter_selects_the_requested_event_types_only() {
    let world = World::new().await;
    let id = world.start("echo", json!({})).await;
    let path = format!("/v1/runs/{id}/events?types=node_completed,THREAD_COMPLETED");
    let all = Events::open(world.get(&path)).await.all().await;
    let types: Vec<&str> = all.iter().filter_map(|event| event.json["type"].as_str()).collect();
    assert_eq!(types, ["NODE_COMPLETED", "NODE_COMPLETED", "THREAD_COMPLETED"]);
    let wrong = world.get(&format!("/v1/runs/{id}/events?types=NODE_COMPLETD"));
    let refused = answer(wrong).await;
    assert_eq!(refused.status, StatusCode::BAD_REQUEST);
    assert!(
        refused.body["detail"]
            .as_str()
            .expect("a sentence")
            .contains("NODE_COMPLETED")
    );
    let wrong = world.get(&format!("/v1/runs/{id}/events")).header("last-event-id", "x");
    assert_eq!(refusal(wrong).await, (400, "INVALID_REQUEST".into()));
}

#[tokio::test]
async fn an_idle_stream_sends_a_comment() {
    let world = World::limited(Limits {
        keep_alive: Duration::from_millis(20),
        ..Limits::default()
    })
    .await;
    let id = world.start("gated", Value::Null).await;
    let mut events = Events::open(world.get(&format!("/v1/runs/{id}/events"))).await;
    events.comment().await;
    world.gate.add_permits(1);
    let all = events.all().await;
    assert_eq!(all.last().and_then(|end| end.name.clone()).as_deref(), Some("end"));
}

#[tokio::test]
async fn a_stream_with_a_filter_sends_a_comment_while_other_events_occur() {
    let world = World::limited(Limits {
        keep_alive: Duration::from_millis(20),
        ..Limits::default()
    })
    .await;
    let id = world.start("steps", json!({"n": 1_000})).await;
    let mut all = Events::open(world.get(&format!("/v1/runs/{id}/events"))).await;
    let mut none = Events::open(world.get(&format!("/v1/runs/{id}/events?types=CUSTOM"))).await;
    // Every step permits the next one, so the run raises events all the time.
    let steps = async {
        while let Some(event) = all.next().await {
            if event.json["nodeId"] == "step" && event.json["type"] == "NODE_STARTED" {
                world.gate.add_permits(1);
            }
        }
    };
    tokio::select! {
        () = none.comment() => {}
        () = steps => panic!("the run ended without a comment"),
    }
}

#[tokio::test]
async fn a_disconnected_client_cancels_its_run_only_if_requested() {
    let world = World::new().await;
    let open = async |cancels: bool| {
        let body = json!({"workflow": "gated", "cancelOnDisconnect": cancels});
        let request = world.post("/v1/runs", &body).header("accept", "text/event-stream");
        let mut events = Events::of(request.send().await.expect("a stream"));
        let first = events.next().await.expect("an event");
        first.json["runId"].as_str().expect("an id").to_owned()
    };
    let (cancelled, left) = (open(true).await, open(false).await);
    let report = world.ended(&cancelled).await;
    assert_eq!(report["status"], "CANCELLED");
    assert!(
        report["error"]["message"]
            .as_str()
            .expect("a sentence")
            .contains("disconnected")
    );
    assert_eq!(
        answer(world.get(&format!("/v1/runs/{left}"))).await.body["status"],
        "RUNNING"
    );
    world.gate.add_permits(1);
    assert_eq!(world.ended(&left).await["status"], "COMPLETED");
    // A client that reads to the end does not count as disconnected.
    let body = json!({"workflow": "echo", "input": {}, "cancelOnDisconnect": true});
    assert_eq!(
        answer(world.post("/v1/runs?wait=60", &body)).await.body["status"],
        "COMPLETED"
    );
    assert_eq!(
        refusal(world.post("/v1/runs", &body)).await,
        (422, "INVALID_VALUE".into())
    );
}

#[tokio::test]
async fn all_readers_of_a_run_get_every_event() {
    let world = World::new().await;
    let id = world.start("steps", json!({"n": 3})).await;
    let readers = (0..200).map(|_| async {
        let events = Events::open(world.get(&format!("/v1/runs/{id}/events"))).await;
        events.all().await
    });
    let readers = futures::future::join_all(readers);
    world.gate.add_permits(3);
    let all = readers.await;
    assert!(all.iter().all(|read| *read == all[0]));
    assert_eq!(all[0].iter().filter(|event| is_event(event)).count() + 1, all[0].len());
}

#[tokio::test]
async fn streams_beyond_the_limits_are_refused() {
    let world = World::limited(Limits {
        streams: 3,
        streams_per_run: 2,
        ..Limits::default()
    })
    .await;
    let (one, other) = (
        world.start("gated", Value::Null).await,
        world.start("gated", Value::Null).await,
    );
    let path = |id: &str| format!("/v1/runs/{id}/events");
    let first = Events::open(world.get(&path(&one))).await;
    let _second = Events::open(world.get(&path(&one))).await;
    assert_eq!(refusal(world.get(&path(&one))).await, (503, "TOO_MANY_STREAMS".into()));
    let _third = Events::open(world.get(&path(&other))).await;
    assert_eq!(
        refusal(world.get(&path(&other))).await,
        (503, "TOO_MANY_STREAMS".into())
    );
    // A stream frees its slot when its client disconnects or the run ends.
    drop(first);
    world.gate.add_permits(2);
    while world.get(&path(&other)).send().await.expect("an answer").status() != StatusCode::OK {
        tokio::task::yield_now().await;
    }
}
