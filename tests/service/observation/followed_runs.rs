//! Streams of runs that another process executes: two services on one shared store.

use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::future::join_all;
use pirn::Engine;
use pirn_service::{Limits, Options};
use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::chats::front_ends::types;
use crate::shared_store::SharedStore;
use crate::world::{Events, Sent, World, answer, refusal};

/// Two services, and the store of the second one.
struct Pair {
    owner: World,
    other: World,
    store: SharedStore,
}

impl Pair {
    async fn new() -> Self {
        Self::limited(Limits::default()).await
    }

    /// Returns a pair with these limits of the second service.
    async fn limited(limits: Limits) -> Self {
        let first = SharedStore::new();
        let store = first.of_process(2);
        let options = Options {
            limits,
            ..Options::default()
        };
        Self {
            owner: World::of(Engine::builder().store(first), Options::default()).await,
            other: World::of(Engine::builder().store(store.clone()), options).await,
            store,
        }
    }
}

fn path(id: &str) -> String {
    format!("/v1/runs/{id}/events")
}

async fn stream(world: &World, id: &str) -> Events {
    Events::open(world.get(&path(id))).await
}

/// Reads up to and including the next event of this type.
async fn read_to(events: &mut Events, event_type: &str, node: &str, read: &mut Vec<Sent>) {
    loop {
        let event = events.next().await.expect("the stream goes on");
        assert_ne!(event.name.as_deref(), Some("end"), "{event:?}");
        let is_found = event.json["type"] == event_type && event.json["nodeId"] == node;
        read.push(event);
        if is_found {
            return;
        }
    }
}

async fn rest(mut events: Events, read: &mut Vec<Sent>) {
    while let Some(event) = events.next().await {
        read.push(event);
    }
}

#[tokio::test]
async fn a_reader_at_another_process_gets_each_event_of_a_run_once_and_in_order_while_the_run_executes() {
    const STEPS: usize = 6;
    let Pair { owner, other, .. } = Pair::new().await;
    let id = owner.start("steps", json!({"n": STEPS})).await;
    let (mut here, mut there) = (stream(&owner, &id).await, stream(&other, &id).await);
    let (mut owner_read, mut other_read) = (Vec::new(), Vec::new());
    for _ in 0..STEPS {
        // The run waits in this node until the reader of the other process has seen it.
        read_to(&mut there, "NODE_STARTED", "step", &mut other_read).await;
        read_to(&mut here, "NODE_STARTED", "step", &mut owner_read).await;
        assert_eq!(other_read, owner_read);
        owner.gate.add_permits(1);
    }
    rest(here, &mut owner_read).await;
    rest(there, &mut other_read).await;
    assert_eq!(other_read, owner_read);
    let end = other_read.last().expect("an end");
    assert_eq!(
        (end.name.as_deref(), &end.json["status"]),
        (Some("end"), &json!("COMPLETED"))
    );
    let late = stream(&other, &id).await.all().await;
    assert_eq!(late, owner_read, "also after the end");
}

#[tokio::test]
async fn a_client_that_reconnects_at_either_process_gets_each_event_once() {
    let Pair { owner, other, .. } = Pair::new().await;
    let id = owner.start("steps", json!({"n": 5})).await;
    let whole = stream(&owner, &id).await;
    let mut read: Vec<Sent> = Vec::new();
    for world in [&other, &owner].into_iter().cycle() {
        let mut request = world.get(&path(&id));
        if let Some(last) = read.last() {
            request = request.header("last-event-id", last.id.expect("a sequence"));
        }
        let response = request.send().await.expect("an answer");
        if response.status() == StatusCode::NO_CONTENT {
            break;
        }
        let mut events = Events::of(response);
        let event = events.next().await.expect("an event or the end");
        if event.name.is_some() {
            assert_eq!(event.json["status"], "COMPLETED");
            break;
        }
        let is_waiting = event.json["type"] == "NODE_STARTED" && event.json["nodeId"] == "step";
        read.push(event);
        if is_waiting {
            owner.gate.add_permits(1);
        }
    }
    let mut whole = whole.all().await;
    whole.retain(|event| event.name.is_none());
    assert_eq!(read, whole);
}

#[tokio::test]
async fn streams_continue_when_another_process_takes_the_run_over() {
    let Pair { owner, other, store } = Pair::new().await;
    let id = owner.start("steps", json!({"n": 4})).await;
    let (mut here, mut there) = (stream(&owner, &id).await, stream(&other, &id).await);
    let (mut owner_read, mut other_read) = (Vec::new(), Vec::new());
    for (events, read) in [(&mut here, &mut owner_read), (&mut there, &mut other_read)] {
        read_to(events, "NODE_STARTED", "step", read).await;
    }
    owner.gate.add_permits(1);
    for (events, read) in [(&mut here, &mut owner_read), (&mut there, &mut other_read)] {
        read_to(events, "NODE_STARTED", "step", read).await;
    }
    store.take_over();
    let resumed = answer(other.post(&format!("/v1/runs/{id}/resume"), &json!({}))).await;
    assert_eq!(resumed.body, json!({"ok": true}));
    // The first process has lost the run: it cannot record the outcome of its call.
    owner.gate.add_permits(1);
    other.gate.add_permits(3);
    rest(here, &mut owner_read).await;
    rest(there, &mut other_read).await;
    let whole = stream(&other, &id).await.all().await;
    assert_eq!(whole.last().expect("an end").json["status"], "COMPLETED");
    let sequences: Vec<u64> = whole.iter().filter_map(|event| event.id).collect();
    assert_eq!(sequences, (1..=sequences.len() as u64).collect::<Vec<_>>());
    assert_eq!(other_read, whole, "at the process that took it over");
    assert_eq!(owner_read, whole, "at the process that lost it");
}

#[tokio::test]
async fn a_reader_that_is_behind_the_log_of_a_followed_run_reads_the_missing_events_from_the_store() {
    let pair = Pair::limited(Limits {
        events_per_run: 3,
        ..Limits::default()
    });
    let Pair { owner, other, .. } = pair.await;
    let id = owner.start("steps", json!({"n": 5})).await;
    let slow = stream(&other, &id).await;
    owner.gate.add_permits(5);
    let whole = stream(&owner, &id).await.all().await;
    assert_eq!(slow.all().await, whole, "nothing is missed");
}

#[tokio::test]
async fn all_streams_of_a_followed_run_share_one_reader_of_its_journal() {
    let Pair { owner, other, store } = Pair::new().await;
    let id = owner.start("steps", json!({"n": 3})).await;
    let mut streams = join_all((0..10).map(|_| stream(&other, &id))).await;
    for _ in 0..3 {
        for events in &mut streams {
            read_to(events, "NODE_STARTED", "step", &mut Vec::new()).await;
        }
        owner.gate.add_permits(1);
    }
    for events in streams {
        assert_eq!(events.all().await.last().expect("an end").json["status"], "COMPLETED");
    }
    let report = answer(owner.get(&format!("/v1/runs/{id}/steps"))).await.body;
    let steps = report["steps"].as_array().expect("steps").iter();
    let steps = steps.filter(|step| step["step"] != 0 && step["kind"] != "end").count();
    assert_eq!(store.records.load(Ordering::SeqCst) as usize, steps);
}

#[tokio::test]
async fn the_number_of_followed_runs_is_limited() {
    let pair = Pair::limited(Limits {
        followed_runs: 1,
        ..Limits::default()
    });
    let Pair { owner, other, .. } = pair.await;
    let (one, two) = (
        owner.start("paid", Value::Null).await,
        owner.start("paid", Value::Null).await,
    );
    let mut first = stream(&other, &one).await;
    read_to(&mut first, "NODE_STARTED", "wait", &mut Vec::new()).await;
    let refused = refusal(other.get(&path(&two))).await;
    assert_eq!(refused, (503, "TOO_MANY_STREAMS".into()));
    drop(first);
    let second = loop {
        let response = other.get(&path(&two)).send().await.expect("an answer");
        if response.status() == StatusCode::OK {
            break response;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(Events::of(second).next().await.expect("an event").id, Some(1));
}

#[tokio::test]
async fn a_service_that_shuts_down_ends_the_streams_of_runs_of_other_processes() {
    let Pair { owner, other, .. } = Pair::new().await;
    let id = owner.start("paid", Value::Null).await;
    let mut events = stream(&other, &id).await;
    read_to(&mut events, "NODE_STARTED", "wait", &mut Vec::new()).await;
    let (rest, _) = tokio::join!(events.all(), other.service.shut_down(Duration::ZERO));
    let end = rest.last().expect("an end");
    assert_eq!(
        (end.name.as_deref(), &end.json["status"]),
        (Some("end"), &json!("WAITING"))
    );
}

#[tokio::test]
async fn a_front_end_that_reconnects_at_another_process_receives_the_run_live() {
    let Pair { owner, other, .. } = Pair::new().await;
    let message = json!({"id": "m1", "role": "user", "content": "hello", "parts": [{"type": "text", "text": "hello"}]});
    let input = json!({"threadId": "t1", "runId": "r1", "state": {}, "tools": [], "context": [], "forwardedProps": {},
        "messages": [message]});
    let body = json!({"id": "c1", "trigger": "submit-message", "messages": [message]});
    let ways = [
        (
            "/v1/agui/talks-then-waits",
            input,
            "/v1/agui/talks-then-waits?threadId=t1&runId=r1",
            "STEP_FINISHED",
        ),
        (
            "/v1/chat/talks-then-waits",
            body,
            "/v1/chat/talks-then-waits/c1/stream",
            "text-end",
        ),
    ];
    for (start, body, again, spoken) in ways {
        let here = Events::open(owner.post(start, &body)).await;
        let mut there = Events::open(other.get(again)).await;
        let mut seen = Vec::new();
        loop {
            let event = there.next().await.expect("the reply").json;
            let is_spoken = event["type"] == spoken && seen.len() > 1;
            seen.push(event);
            if is_spoken {
                break;
            }
        }
        // The run waits here, and its reply was read already.
        owner.gate.add_permits(1);
        seen.extend(there.all().await.into_iter().map(|event| event.json));
        let here: Vec<Value> = here.all().await.into_iter().map(|event| event.json).collect();
        // The reply arrives at once, not in pieces.
        let whole = |events: &[Value]| {
            let mut types: Vec<String> = types(events).into_iter().map(str::to_owned).collect();
            types.dedup();
            types
        };
        assert_eq!(whole(&seen), whole(&here), "{again}");
    }
}
