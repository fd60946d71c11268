//! Runs and sessions of a service that has a store.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::join_all;
use pirn::store::{MemoryStore, Pending, Run, SqliteStore, Store, StoreError, forward_to_store};
use pirn::{CommandOutcome, Engine, EngineBuilder, ResumeError, RunCommand};
use pirn_service::{Limits, Options};
use reqwest::Client;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

use crate::command::{Served, folder};
use crate::gated_store::GatedStore;
use crate::world::{DETACHES, Events, Sent, World, access, answer, answered, later, refusal};

async fn stored() -> World {
    World::of(Engine::builder().store(MemoryStore::new()), Options::default()).await
}

#[tokio::test]
async fn a_parked_run_and_its_stream_continue_with_consecutive_event_ids() {
    let world = stored().await;
    let id = world.start("paid", Value::Null).await;
    world.until(&id, "NODE_STARTED").await;
    let events = Events::open(world.get(&format!("/v1/runs/{id}/events"))).await;
    let parked = answer(world.post(&format!("/v1/runs/{id}/park"), &json!({}))).await;
    assert_eq!(parked.body, json!({"ok": true}));
    let mut before = events.all().await;
    let last = before.pop().expect("a last event");
    assert_eq!(
        (last.name.as_deref(), &last.json["status"]),
        (Some("end"), &json!("WAITING"))
    );
    let seen = before.last().and_then(|event| event.id).expect("a sequence");

    let shown = answer(world.get(&format!("/v1/runs/{id}"))).await.body;
    assert_eq!((&shown["status"], &shown["runId"]), (&json!("WAITING"), &json!(id)));
    let listed = answer(world.get("/v1/runs?status=waiting")).await.body;
    assert_eq!(listed["runs"][0]["runId"], json!(id));

    let resumed = answer(world.post(&format!("/v1/runs/{id}/resume"), &json!({}))).await;
    assert_eq!(resumed.body, json!({"ok": true}), "{:?}", resumed.body);
    let request = world
        .get(&format!("/v1/runs/{id}/events"))
        .header("last-event-id", seen);
    let later = Events::open(request).await;
    answer(world.post(&format!("/v1/runs/{id}/emit"), &json!({"name": "paid"}))).await;
    let later = later.all().await;
    assert_eq!(later.first().and_then(|event| event.id), Some(seen + 1));
    assert_eq!(later.last().expect("an end").json["status"], "COMPLETED");
}

/// Starts a run that waits, and parks it.
async fn parked(world: &World, workflow: &str) -> String {
    let id = world.start(workflow, Value::Null).await;
    world.until(&id, "NODE_STARTED").await;
    let parked = answer(world.post(&format!("/v1/runs/{id}/park"), &json!({}))).await;
    assert_eq!(parked.status.as_u16(), 200, "{}", parked.body);
    let end = Events::open(world.get(&format!("/v1/runs/{id}/events")))
        .await
        .all()
        .await;
    assert_eq!(end.last().expect("an end").json["status"], "WAITING");
    id
}

#[tokio::test]
async fn a_client_that_reconnects_is_stopped_by_the_end_of_the_run_only() {
    let world = stored().await;
    let id = parked(&world, "paid").await;
    let path = format!("/v1/runs/{id}/events");
    let last = async || {
        let all = Events::open(world.get(&path)).await.all().await;
        all.iter().rev().find_map(|event| event.id).expect("a sequence")
    };
    let rest = world.get(&path).header("last-event-id", last().await);
    let rest = Events::open(rest).await.all().await;
    let [end] = &rest[..] else { panic!("{rest:?}") };
    assert_eq!(
        (end.name.as_deref(), &end.json["status"]),
        (Some("end"), &json!("WAITING"))
    );
    for (call, body) in [("emit", json!({"name": "paid"})), ("resume", json!({}))] {
        let told = answer(world.post(&format!("/v1/runs/{id}/{call}"), &body)).await;
        assert_eq!(told.status.as_u16(), 200, "{}", told.body);
    }
    assert_eq!(world.ended(&id).await["status"], "COMPLETED");
    let rest = world.get(&path).header("last-event-id", last().await);
    assert_eq!(answer(rest).await.status.as_u16(), 204);
}

#[tokio::test]
async fn a_run_that_has_ended_is_neither_parked_nor_resumed_while_a_detached_branch_is_active() {
    let world = World::of(
        Engine::builder().store(MemoryStore::new()).workflows(DETACHES),
        Options::default(),
    )
    .await;
    let report = answer(world.post("/v1/runs?wait=10", &json!({"workflow": "detaches"})))
        .await
        .body;
    assert_eq!(report["status"], "COMPLETED", "{report}");
    let id = report["runId"].as_str().expect("an id");
    for call in ["park", "resume"] {
        let refused = refusal(world.post(&format!("/v1/runs/{id}/{call}"), &json!({})));
        let refused = tokio::time::timeout(Duration::from_secs(30), refused).await;
        assert_eq!(refused.expect("an answer"), (409, "RUN_ENDED".into()), "{call}");
    }
    answered(&world, id).await;
    assert_eq!(world.ended(id).await["status"], "COMPLETED");
}

#[tokio::test]
async fn the_questions_of_a_run_are_listed_while_it_is_resumed() {
    // One replay at a time: requests wait until the run was resumed.
    let options = Options {
        limits: Limits {
            replays: 1,
            ..Limits::default()
        },
        ..Options::default()
    };
    let world = World::of(Engine::builder().store(MemoryStore::new()), options).await;
    for _ in 0..10 {
        let id = parked(&world, "asks").await;
        let resume = answer(world.post(&format!("/v1/runs/{id}/resume"), &json!({})));
        let lists = (0..16).map(|_| answer(world.get(&format!("/v1/runs/{id}/interactions"))));
        let (resumed, lists) = tokio::join!(resume, join_all(lists));
        assert_eq!(resumed.status.as_u16(), 200, "{}", resumed.body);
        for list in lists {
            assert_eq!(list.body["interactions"][0]["nodeId"], "color", "{}", list.body);
        }
    }
}

fn in_a_file(name: &str) -> EngineBuilder {
    let store = SqliteStore::open(folder(name).join("runs.db")).expect("a store");
    Engine::builder().store(store)
}

#[tokio::test]
async fn inputs_to_a_parked_run_are_stored_until_it_resumes() {
    const EVENTS: usize = 20;
    let in_memory = Engine::builder().store(MemoryStore::new());
    for builder in [in_memory, in_a_file("told")] {
        let world = World::of(builder, Options::default()).await;
        let id = parked(&world, "paid").await;
        let emit = async |id: &str, n: usize| {
            let body = json!({"name": "paid", "data": {"n": n}});
            let told = answer(world.post(&format!("/v1/runs/{id}/emit"), &body)).await;
            (told.status.as_u16(), told.body["code"].clone())
        };
        // Concurrent events must not conflict with each other.
        let told = join_all((0..EVENTS).map(|n| emit(&id, n))).await;
        assert!(told.iter().all(|told| *told == (200, Value::Null)), "{told:?}");
        let shown = answer(world.get(&format!("/v1/runs/{id}"))).await.body;
        assert_eq!(shown["status"], "UNFINISHED", "it has what it waited for");
        for (call, body) in [("pause", json!({})), ("pin", json!({"section": "todo", "value": "x"}))] {
            let refused = refusal(world.post(&format!("/v1/runs/{id}/{call}"), &body)).await;
            assert_eq!(refused, (409, "NOT_CARRIED".into()), "{call}");
        }
        assert_eq!(emit("nobody", 0).await, (404, json!("UNKNOWN_RUN")));

        answer(world.post(&format!("/v1/runs/{id}/resume"), &json!({}))).await;
        let mut seen = Events::open(world.get(&format!("/v1/runs/{id}/events")))
            .await
            .all()
            .await;
        assert_eq!(seen.pop().expect("an end").json["status"], "COMPLETED");
        let numbers = seen.iter().filter(|event| event.json["type"] == "CUSTOM");
        let mut numbers: Vec<u64> = numbers.filter_map(|event| event.json["data"]["n"].as_u64()).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (0..EVENTS as u64).collect::<Vec<_>>(), "each once");
        for call in ["pause", "cancel"] {
            let refused = refusal(world.post(&format!("/v1/runs/{id}/{call}"), &json!({}))).await;
            assert_eq!(refused, (409, "RUN_ENDED".into()), "{call}");
        }
        assert_eq!(emit(&id, 0).await, (409, json!("RUN_ENDED")));

        let other = parked(&world, "asks").await;
        let open = answer(world.get(&format!("/v1/runs/{other}/interactions"))).await.body;
        let question = open["interactions"][0]["id"].as_str().expect("a question");
        let gives = async |given: &str| {
            let request = world.post(&format!("/v1/interactions/{question}"), &json!({"answer": given}));
            answer(request).await.status.as_u16()
        };
        assert_eq!(
            (gives("green").await, gives("red").await, gives("blue").await),
            (422, 200, 409)
        );

        let third = parked(&world, "paid").await;
        let cancelled = answer(world.post(&format!("/v1/runs/{third}/cancel"), &json!({}))).await;
        assert_eq!(cancelled.body, json!({"ok": true}));
        let shown = answer(world.get(&format!("/v1/runs/{third}"))).await.body;
        assert_eq!(shown["status"], "CANCELLED");
    }
}

/// A store in memory that delays the answer to one query of a run.
struct Gated {
    kept: MemoryStore,
    /// Signals the query, then waits for permission to answer.
    gate: Arc<Mutex<Option<Gate>>>,
}

type Gate = (oneshot::Sender<()>, oneshot::Receiver<()>);

impl Store for Gated {
    forward_to_store!(kept: location commit runs journal contents chain snapshot timers sessions session set_meta meta remove remove_session);
    fn run(&self, id: &str) -> Pending<Option<Run>> {
        let run = self.kept.run(id);
        let Some((asked, let_go)) = self.gate.lock().expect("whole").take() else {
            return run;
        };
        Box::pin(async move {
            asked.send(()).expect("the test waits");
            let_go.await.expect("the test lets it go");
            run.await
        })
    }
}

#[tokio::test]
async fn a_parked_run_is_never_reported_as_failed_and_can_be_resumed_at_once() {
    let gate = Arc::default();
    let store = Gated {
        kept: MemoryStore::new(),
        gate: Arc::clone(&gate),
    };
    let world = World::of(Engine::builder().store(store), Options::default()).await;
    let id = world.start("paid", Value::Null).await;
    world.until(&id, "NODE_STARTED").await;
    let ((asked, is_asked), (let_go, may_go)) = (oneshot::channel(), oneshot::channel());
    *gate.lock().expect("whole") = Some((asked, may_go));
    answer(world.post(&format!("/v1/runs/{id}/park"), &json!({}))).await;
    // The run has left this process, but the service has not yet read from the store that the run is unfinished.
    is_asked.await.expect("asked");
    let shown = answer(world.get(&format!("/v1/runs/{id}"))).await.body;
    assert_eq!(shown["status"], json!("RUNNING"), "{shown}");
    let resume = answer(world.post(&format!("/v1/runs/{id}/resume"), &json!({})));
    let emit = answer(world.post(&format!("/v1/runs/{id}/emit"), &json!({"name": "paid"})));
    let let_it_go = async { let_go.send(()).expect("the store waits") };
    let (resumed, told, ()) = tokio::join!(resume, emit, let_it_go);
    assert_eq!(
        (resumed.status.as_u16(), told.status.as_u16()),
        (200, 200),
        "{} {}",
        resumed.body,
        told.body
    );
    assert_eq!(world.ended(&id).await["status"], "COMPLETED");
    let listed = answer(world.get("/v1/runs")).await.body;
    assert_eq!(listed["runs"].as_array().map(Vec::len), Some(1), "{listed}");
}

#[tokio::test]
async fn concurrent_park_resume_and_emit_do_not_stop_a_run() {
    let world = World::of(in_a_file("at-once"), Options::default()).await;
    for _ in 0..30 {
        let id = world.start("paid", Value::Null).await;
        world.until(&id, "NODE_STARTED").await;
        let post = |what: &str, body: Value| answer(world.post(&format!("/v1/runs/{id}/{what}"), &body));
        let park = post("park", json!({}));
        let resume = post("resume", json!({}));
        let emit = post("emit", json!({"name": "paid"}));
        let (parked, resumed, told) = tokio::join!(park, resume, emit);
        for answer in [&parked, &resumed] {
            // 409: the run had already ended.
            assert!([200, 409].contains(&answer.status.as_u16()), "{}", answer.body);
        }
        assert_eq!(told.status.as_u16(), 200, "{}", told.body);
        let again = post("resume", json!({})).await;
        assert!([200, 409].contains(&again.status.as_u16()), "{}", again.body);
        let report = world.ended(&id).await;
        assert_eq!(report["status"], "COMPLETED", "{report}");
    }
}

/// A run that has received `paid`, which is being committed to the store.
async fn run_during_commit(nodes: &[&str]) -> (Engine, Arc<tokio::sync::Semaphore>, pirn::RunHandle) {
    let waits = nodes
        .iter()
        .map(|event| json!({"id": event, "type": "WAIT", "config": {"event": event}}));
    let (start, end) = (json!({"id": "s", "type": "START"}), json!({"id": "e", "type": "END"}));
    let nodes: Vec<Value> = std::iter::once(start).chain(waits).chain([end]).collect();
    let edges: Vec<Value> = nodes
        .windows(2)
        .map(|pair| json!({"from": pair[0]["id"], "to": pair[1]["id"]}))
        .collect();
    let workflow = json!({"id": "w", "nodes": nodes, "edges": edges});
    let (store, gate) = GatedStore::new();
    let engine = Engine::builder().store(store).workflows(workflow.to_string());
    let engine = engine.build().expect("valid");
    gate.add_permits(1_000);
    let run = engine.start("w", Value::Null).expect("it starts");
    run.wait_durable().await.expect("kept");
    gate.forget_permits(gate.available_permits());
    run.emit("paid", serde_json::Map::new());
    (engine, gate, run)
}

#[tokio::test]
async fn a_run_parked_during_its_last_commit_has_ended() {
    let (engine, gate, run) = run_during_commit(&["paid"]).await;
    // The event is durable; its effects are the next commit.
    gate.add_permits(1);
    let store = engine.store().expect("a store");
    let is_final = async || {
        let stored = store.run(run.run_id()).await.expect("it is read");
        stored.is_some_and(|stored| stored.status.is_final())
    };
    while !is_final().await {
        tokio::task::yield_now().await;
    }
    assert!(run.try_outcome().is_none(), "the answer to that commit waits");
    run.release();
    gate.add_permits(1_000);
    assert_eq!(run.outcome().await.status, pirn::ThreadStatus::Completed);
}

#[tokio::test]
async fn a_parked_run_is_owned_until_its_last_commit_completes_and_resumes_from_it() {
    let (engine, gate, run) = run_during_commit(&["paid", "more"]).await;
    run.release();
    let more = RunCommand::Emit {
        name: "more".to_owned(),
        data: serde_json::Map::new(),
    };
    let early = engine.resume(run.run_id()).start().await.map(drop);
    assert!(matches!(early, Err(ResumeError::UnderWay { .. })), "{early:?}");
    let (told, ()) = tokio::join!(engine.send_command(run.run_id(), &more), async {
        gate.add_permits(1_000);
    });
    assert_eq!(
        told.expect("told"),
        CommandOutcome::Kept,
        "it came after the run was told to leave"
    );
    assert_eq!(run.outcome().await.status, pirn::ThreadStatus::Failed);
    let resumed = engine.resume(run.run_id()).start().await.expect("it goes on");
    let outcome = resumed.outcome().await;
    assert_eq!(outcome.status, pirn::ThreadStatus::Completed, "{:?}", outcome.error);
}

#[tokio::test]
async fn an_event_during_the_resume_of_its_run_is_not_lost() {
    let world = World::of(in_a_file("taken-up"), Options::default()).await;
    for _ in 0..30 {
        let id = parked(&world, "paid").await;
        let resume = answer(world.post(&format!("/v1/runs/{id}/resume"), &json!({})));
        let emit = answer(world.post(&format!("/v1/runs/{id}/emit"), &json!({"name": "paid"})));
        let (resumed, told) = tokio::join!(resume, emit);
        assert_eq!(
            (resumed.status.as_u16(), told.status.as_u16()),
            (200, 200),
            "{} {}",
            resumed.body,
            told.body
        );
        assert_eq!(world.ended(&id).await["status"], "COMPLETED");
    }
}

#[tokio::test]
async fn a_run_without_an_owner_is_listed_next_to_owned_runs() {
    let world = stored().await;
    let left = parked(&world, "paid").await;
    // These runs have status WAITING in the store, but RUNNING in this process.
    for _ in 0..5 {
        let id = world.start("paid", Value::Null).await;
        world.until(&id, "NODE_STARTED").await;
    }
    let listed = answer(world.get("/v1/runs?status=waiting&limit=1")).await.body;
    let ids: Vec<&Value> = listed["runs"]
        .as_array()
        .expect("runs")
        .iter()
        .map(|run| &run["runId"])
        .collect();
    assert_eq!(ids, [&json!(left)], "{listed}");
    let running = answer(world.get("/v1/runs?status=RUNNING")).await.body;
    assert_eq!(running["runs"].as_array().map(Vec::len), Some(5));
}

#[tokio::test]
async fn an_ended_run_is_forked_and_both_runs_are_listed() {
    let world = stored().await;
    let id = world.start("steps", json!({"n": 2})).await;
    world.gate.add_permits(2);
    assert_eq!(world.ended(&id).await["output"], 2);
    let ask = json!({"step": 1, "runId": "other", "set": {"n": 7}});
    let forked = answer(world.post(&format!("/v1/runs/{id}/fork"), &ask)).await;
    assert_eq!(
        (forked.status.as_u16(), &forked.headers["location"]),
        (201, &"/v1/runs/other".parse().expect("a header"))
    );
    let base = json!({"runId": id, "step": 1});
    let running = answer(world.get("/v1/runs/other")).await.body;
    assert_eq!(running["forkedFrom"], base, "{running}");
    world.gate.add_permits(2);
    let ended = world.ended("other").await;
    assert_eq!((&ended["status"], &ended["forkedFrom"]), (&json!("COMPLETED"), &base));
    let again = refusal(world.post(&format!("/v1/runs/{id}/fork"), &ask)).await;
    assert_eq!(again, (409, "RUN_ID_TAKEN".into()));
    let far = json!({"step": 99});
    assert_eq!(
        refusal(world.post(&format!("/v1/runs/{id}/fork"), &far)).await,
        (422, "INVALID_VALUE".into())
    );
    let nobody = refusal(world.post("/v1/runs/nobody/fork", &json!({"step": 0}))).await;
    assert_eq!(nobody, (404, "UNKNOWN_RUN".into()));
    let taken = refusal(world.post("/v1/runs", &json!({"workflow": "echo", "input": {}, "runId": "other"}))).await;
    assert_eq!(taken, (409, "RUN_ID_TAKEN".into()));
}

#[tokio::test]
async fn a_fork_continues_with_edited_workflows_if_the_shared_steps_fit_them() {
    let world = stored().await;
    let id = world.start("steps", json!({"n": 2})).await;
    world.gate.add_permits(2);
    assert_eq!(world.ended(&id).await["output"], 2);
    let mut definition = answer(world.get(&format!("/v1/runs/{id}/definition"))).await.body;
    let nodes = definition["workflows"][0]["nodes"].as_array_mut().expect("nodes");
    let end = nodes.iter_mut().find(|node| node["type"] == "END").expect("an end");
    end["config"]["output"] = json!("'edited'");
    let ask = json!({"step": 1, "runId": "edited", "workflows": definition["workflows"]});
    let forked = answer(world.post(&format!("/v1/runs/{id}/fork"), &ask)).await;
    assert_eq!(forked.status.as_u16(), 201, "{}", forked.body);
    world.gate.add_permits(2);
    assert_eq!(world.ended("edited").await["output"], "edited");
    for (workflow, expected) in [
        (json!({"id": "steps", "nodes": []}), (409, "NOT_RESUMED".to_owned())),
        (json!({"id": "nobody"}), (422, "INVALID_VALUE".to_owned())),
    ] {
        let broken = json!({"step": 1, "runId": "broken", "workflows": [workflow]});
        let refused = refusal(world.post(&format!("/v1/runs/{id}/fork"), &broken)).await;
        assert_eq!(refused, expected);
    }
    assert_eq!(refusal(world.get("/v1/runs/broken")).await, (404, "UNKNOWN_RUN".into()));
}

#[tokio::test]
async fn only_an_administrator_without_a_tenant_forks_with_edited_workflows() {
    let options = Options {
        access: access(["runner roles=run", "acme-token tenant=acme", "operator"]),
        ..Options::default()
    };
    let world = World::of(Engine::builder().store(MemoryStore::new()), options).await;
    let post = async |token: &str, path: &str, body: Value| {
        let answer = answer(world.post(path, &body).bearer_auth(token)).await;
        (answer.status.as_u16(), answer.body)
    };
    for (token, edits) in [("runner", false), ("acme-token", false), ("operator", true)] {
        let id = format!("of-{token}");
        let body = json!({"workflow": "echo", "input": {}, "runId": id});
        assert_eq!(post(token, "/v1/runs?wait=60", body).await.1["status"], "COMPLETED");
        let path = format!("/v1/runs/{id}/fork");
        let definition = answer(world.get(&format!("/v1/runs/{id}/definition")).bearer_auth(token))
            .await
            .body;
        let (status, answered) = post(token, &path, json!({"step": 0, "workflows": definition["workflows"]})).await;
        assert_eq!(status, if edits { 201 } else { 403 }, "{token}: {answered}");
        assert!(edits || answered["code"] == "FORBIDDEN", "{answered}");
        let (status, answered) = post(token, &path, json!({"step": 0})).await;
        assert_eq!(status, 201, "{token}: {answered}");
    }
}

#[tokio::test]
async fn the_times_of_a_fork_count_from_its_start_in_memory_and_in_the_store() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let world = async || World::of(Engine::builder().shared_store(Arc::clone(&store)), Options::default()).await;
    let first = world().await;
    let id = first.start("chat", json!({"message": "x"})).await;
    first.ended(&id).await;
    let steps = answer(first.get(&format!("/v1/runs/{id}/steps"))).await.body;
    let last = steps["steps"].as_array().expect("steps").last().expect("an end")["step"].clone();
    later().await;
    // One fork only repeats steps of its base, the other one calls the model again.
    for (step, name) in [(last, "repeats"), (json!(0), "calls")] {
        let ask = json!({"step": step, "runId": name});
        let forked = answer(first.post(&format!("/v1/runs/{id}/fork"), &ask)).await;
        assert_eq!(forked.status.as_u16(), 201, "{}", forked.body);
        assert_eq!(first.ended(name).await["status"], "COMPLETED");
    }
    let listed = async |world: &World| {
        let mut runs = answer(world.get("/v1/runs")).await.body["runs"].take();
        let runs = runs.as_array_mut().expect("runs");
        let times = |run: &Value| ["runId", "startedAt", "updatedAt", "durationMs"].map(|field| run[field].clone());
        runs.iter().map(times).collect::<Vec<_>>()
    };
    let in_memory = listed(&first).await;
    assert_eq!(in_memory.len(), 3);
    for [name, started, updated, duration] in &in_memory[..2] {
        let [started, updated] = [started, updated].map(|time| time.as_u64().expect("a time"));
        assert!(started <= updated, "{name}: {in_memory:?}");
        assert_eq!(*duration, updated - started, "{name}: {in_memory:?}");
    }
    drop(first);
    assert_eq!(listed(&world().await).await[..2], in_memory[..2]);
}

#[tokio::test]
async fn a_request_that_waits_for_a_parked_run_is_answered_with_its_status_in_the_store() {
    let world = stored().await;
    let body = json!({"workflow": "paid", "runId": "parked"});
    let waits = tokio::spawn(answer(world.post("/v1/runs?wait=600", &body)));
    while answer(world.get("/v1/runs/parked")).await.status != 200 {}
    world.until("parked", "NODE_STARTED").await;
    answer(world.post("/v1/runs/parked/park", &json!({}))).await;
    let report = waits.await.expect("an answer");
    assert_eq!(
        (report.status.as_u16(), &report.body["status"]),
        (201, &json!("WAITING")),
        "{}",
        report.body
    );
}

#[tokio::test]
async fn a_service_without_a_store_neither_parks_nor_forks() {
    let world = World::new().await;
    let id = world.start("paid", Value::Null).await;
    for (call, body) in [("park", json!({})), ("fork", json!({"step": 0}))] {
        let refused = refusal(world.post(&format!("/v1/runs/{id}/{call}"), &body)).await;
        assert_eq!(refused, (409, "NO_STORE".into()), "{call}");
    }
}

#[tokio::test]
async fn runs_of_a_session_continue_each_other_over_http() {
    for world in [World::new().await, stored().await] {
        assert_eq!(
            refusal(world.get("/v1/sessions/ada")).await,
            (404, "UNKNOWN_SESSION".into())
        );
        for _ in 0..2 {
            let body = json!({"workflow": "chat", "input": {"message": "what time is it"}, "session": "ada"});
            let report = answer(world.post("/v1/runs?wait=20", &body)).await.body;
            assert_eq!(
                (&report["status"], &report["session"]),
                (&json!("COMPLETED"), &json!("ada")),
                "{report}"
            );
        }
        let state = answer(world.get("/v1/sessions/ada")).await.body;
        let questions = state["conversation"]["messages"].as_array().into_iter().flatten();
        let questions = questions.filter(|message| message["role"] == "user").count();
        assert_eq!((questions, &state["version"]), (2, &json!(2)), "{state}");
        let listed = answer(world.get("/v1/runs?session=ada")).await.body;
        assert_eq!(listed["runs"].as_array().map(Vec::len), Some(2));
        let none = answer(world.get("/v1/runs?session=bob")).await.body;
        assert_eq!(none["runs"], json!([]));
        let wrong = world.post("/v1/runs", &json!({"workflow": "chat", "session": ""}));
        assert_eq!(refusal(wrong).await, (422, "INVALID_VALUE".into()));
    }
}

const WAITS: &str = r#"{"id": "waits", "nodes": [{"id": "s", "type": "START"},
        {"id": "a", "type": "CODE", "config": {"code": "return 1 + 1"}},
        {"id": "w", "type": "WAIT", "config": {"event": "go"}}, {"id": "e", "type": "END", "config": {"output": "'done'"}}],
    "edges": [{"from": "s", "to": "a"}, {"from": "a", "to": "w"}, {"from": "w", "to": "e"}]}"#;

fn client() -> Client {
    Client::builder().no_proxy().build().expect("a client")
}

fn serve(folder: &Path) -> Served {
    Served::start(folder, &["waits.json", "--store", "runs.db", "--grace", "0"])
}

async fn events(served: &Served, after: u64) -> Events {
    let request = client().get(format!("{}/v1/runs/r1/events", served.url));
    Events::open(request.header("last-event-id", after)).await
}

async fn post(served: &Served, path: &str, body: &Value) -> Value {
    let request = client().post(format!("{}{path}", served.url));
    let request = request
        .header("content-type", "application/json")
        .body(body.to_string());
    answer(request).await.body
}

async fn until_it_waits(events: &mut Events) -> Vec<Sent> {
    let mut seen = Vec::new();
    loop {
        let event = events.next().await.expect("an event");
        let waits = event.json["type"] == "NODE_STARTED" && event.json["nodeId"] == "w";
        seen.push(event);
        if waits {
            return seen;
        }
    }
}

#[cfg(unix)]
#[tokio::test]
async fn a_restarted_service_resumes_its_runs_and_streams_with_consecutive_event_ids() {
    let folder = folder("killed");
    std::fs::write(folder.join("waits.json"), WAITS).expect("a file");
    let mut first = serve(&folder);
    post(
        &first,
        "/v1/runs",
        &json!({"workflow": "waits", "runId": "r1", "session": "s"}),
    )
    .await;
    let mut seen = until_it_waits(&mut events(&first, 0).await).await;
    first.kill();
    let second = serve(&folder);
    let last = seen.last().and_then(|event| event.id).expect("a sequence");
    let later = events(&second, last).await;
    post(&second, "/v1/runs/r1/emit", &json!({"name": "go"})).await;
    seen.extend(later.all().await);
    let end = seen.pop().expect("an end");
    assert_eq!(end.json["status"], "COMPLETED", "{:?}", end.json);
    let ids: Vec<u64> = seen.iter().filter_map(|event| event.id).collect();
    assert_eq!(
        ids,
        (1..=seen.len() as u64).collect::<Vec<_>>(),
        "each once, and none is missing"
    );
    let state = client().get(format!("{}/v1/sessions/s", second.url));
    assert_eq!(answer(state).await.body["version"], 1);
}

#[cfg(unix)]
#[tokio::test]
async fn an_idempotency_key_starts_one_run_across_a_kill_of_the_service() {
    let folder = folder("keys");
    std::fs::write(folder.join("waits.json"), WAITS).expect("a file");
    let body = json!({"workflow": "waits"});
    let start = async |served: &Served, key: &'static str, body: &Value| {
        let request = client()
            .post(format!("{}/v1/runs", served.url))
            .header("idempotency-key", key);
        let request = request.header("content-type", "application/json");
        let answer = answer(request.body(body.to_string())).await;
        (answer.status.as_u16(), answer.body)
    };
    let mut first = serve(&folder);
    let (status, begun) = start(&first, "order-17", &body).await;
    assert_eq!(status, 201, "{begun}");
    let nothing = start(&first, "order-18", &json!({"workflow": "nope"})).await;
    assert_eq!(nothing.0, 404, "{}", nothing.1);
    first.kill();

    let mut second = serve(&folder);
    let (status, again) = start(&second, "order-17", &body).await;
    assert_eq!((status, &again["runId"]), (201, &begun["runId"]), "{again}");
    let other = start(&second, "order-17", &json!({"workflow": "waits", "input": 1})).await;
    assert_eq!((other.0, &other.1["code"]), (422, &json!("IDEMPOTENCY_KEY_REUSED")));
    let (status, free) = start(&second, "order-18", &body).await;
    assert!(status == 201 && free["runId"] != begun["runId"], "{free}");
    let path = format!("/v1/runs/{}/emit", begun["runId"].as_str().expect("an id"));
    let mut events = Events::open(client().get(format!("{}{}", second.url, path.replace("emit", "events")))).await;
    post(&second, &path, &json!({"name": "go"})).await;
    while events
        .next()
        .await
        .is_some_and(|event| event.name.as_deref() != Some("end"))
    {}
    second.kill();

    // The run has ended, and this process has never owned it.
    let third = serve(&folder);
    let (status, ended) = start(&third, "order-17", &body).await;
    assert_eq!(
        (status, &ended["runId"], &ended["status"]),
        (201, &begun["runId"], &json!("COMPLETED"))
    );
    let request = client()
        .post(format!("{}/v1/runs?wait=5", third.url))
        .header("idempotency-key", "order-17");
    let request = request.header("content-type", "application/json");
    let report = answer(request.body(body.to_string())).await.body;
    assert_eq!((&report["output"], &report["runId"]), (&json!("done"), &begun["runId"]));
    let listed = answer(client().get(format!("{}/v1/runs", third.url))).await.body;
    assert_eq!(listed["runs"].as_array().map(Vec::len), Some(2), "{listed}");
}

#[cfg(unix)]
#[tokio::test]
async fn a_run_of_a_service_is_resumed_on_the_command_line_with_its_config() {
    let folder = folder("served-config");
    let workflow = r#"{"id": "tells", "nodes": [{"id": "s", "type": "START"},
            {"id": "w", "type": "WAIT", "config": {"event": "go"}},
            {"id": "t", "type": "TOOL", "config": {"tool": "tell", "arguments": {}}}, {"id": "e", "type": "END"}],
        "edges": [{"from": "s", "to": "w"}, {"from": "w", "to": "t"}, {"from": "t", "to": "e"}]}"#;
    let config = "[[tools]]\nname = \"tell\"\ndescription = \"tells\"\ninputSchema = { type = \"object\" }\n\
        command = { program = \"echo\", args = [\"told\"] }\n";
    std::fs::create_dir_all(folder.join("flows")).expect("a folder");
    std::fs::write(folder.join("flows/tells.json"), workflow).expect("a file");
    std::fs::write(folder.join("flows/pirn.toml"), config).expect("a file");
    let mut served = Served::start(&folder, &["flows/tells.json", "--store", "runs.db"]);
    post(&served, "/v1/runs", &json!({"workflow": "tells", "runId": "r1"})).await;
    served.kill();
    let pirn = |arguments: &[&str]| {
        let ended = std::process::Command::new(env!("CARGO_BIN_EXE_pirn"))
            .args(arguments)
            .current_dir(&folder)
            .output();
        let ended = ended.expect("it runs");
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(ended.status.success(), "{said}");
        serde_json::from_slice::<Value>(&ended.stdout).expect("JSON")
    };
    pirn(&["runs", "emit", "r1", "go", "--output", "json"]);
    let report = pirn(&["runs", "resume", "r1", "--approve", "none", "--output", "json"]);
    assert_eq!(report["status"], "COMPLETED", "{report}");
}

#[cfg(unix)]
#[tokio::test]
async fn a_terminated_service_does_not_end_its_stored_runs() {
    let folder = folder("terminated");
    std::fs::write(folder.join("waits.json"), WAITS).expect("a file");
    let mut first = serve(&folder);
    post(&first, "/v1/runs", &json!({"workflow": "waits", "runId": "r1"})).await;
    let mut stream = events(&first, 0).await;
    until_it_waits(&mut stream).await;
    first.signal("TERM");
    let last = stream.all().await.pop().expect("a last event");
    assert_eq!(
        (last.name.as_deref(), &last.json["status"]),
        (Some("end"), &json!("WAITING"))
    );
    assert_eq!(first.ended(), Some(0));
    let second = serve(&folder);
    post(&second, "/v1/runs/r1/emit", &json!({"name": "go"})).await;
    let all = events(&second, 0).await.all().await;
    assert_eq!(all.last().expect("an end").json["status"], "COMPLETED");
}

const QUICK: &str = r#"{"id": "quick", "nodes": [{"id": "s", "type": "START"},
        {"id": "a", "type": "CODE", "config": {"code": "return 1 + 1"}}, {"id": "e", "type": "END"}],
    "edges": [{"from": "s", "to": "a"}, {"from": "a", "to": "e"}]}"#;

/// Starts runs one after another until the service refuses; sends each acknowledged run id to the channel.
async fn start_on(url: String, workflow: &'static str, acknowledged: mpsc::UnboundedSender<String>) {
    let client = client();
    loop {
        let request = client
            .post(format!("{url}/v1/runs"))
            .header("content-type", "application/json");
        // The service may have exited.
        let Ok(response) = request.body(json!({ "workflow": workflow }).to_string()).send().await else {
            return;
        };
        let status = response.status().as_u16();
        let Ok(text) = response.text().await else { return };
        let told: Value = serde_json::from_str(&text).expect("JSON");
        match status {
            201 => acknowledged
                .send(told["runId"].as_str().expect("an id").to_owned())
                .expect("the test listens"),
            503 => return assert_eq!(told["code"], "DRAINING"),
            other => panic!("{other}: {told}"),
        }
    }
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn a_service_terminated_under_load_loses_no_acknowledged_run() {
    let folder = folder("loaded");
    std::fs::write(folder.join("waits.json"), WAITS).expect("a file");
    std::fs::write(folder.join("quick.json"), QUICK).expect("a file");
    let serve = || {
        let arguments = ["waits.json", "quick.json", "--store", "runs.db", "--grace", "1"];
        Served::start(&folder, &arguments)
    };
    let mut first = serve();
    let (sender, mut acknowledged) = mpsc::unbounded_channel();
    for n in 0..16 {
        let workflow = if n % 2 == 0 { "quick" } else { "waits" };
        tokio::spawn(start_on(first.url.trim().to_owned(), workflow, sender.clone()));
    }
    drop(sender);
    let mut ids = Vec::new();
    while ids.len() < 100 {
        ids.push(acknowledged.recv().await.expect("the service takes runs"));
    }
    first.signal("TERM");
    while let Some(id) = acknowledged.recv().await {
        ids.push(id);
    }
    assert_eq!(first.ended(), Some(0));

    let second = serve();
    for id in &ids {
        let report = answer(client().get(format!("{}/v1/runs/{id}", second.url))).await.body;
        if report["workflowId"] == "quick" {
            assert_ne!(report["status"], "CANCELLED", "{report}");
        } else {
            assert_ne!(report["status"], "COMPLETED", "{report}");
            post(&second, &format!("/v1/runs/{id}/emit"), &json!({"name": "go"})).await;
        }
        let events = client().get(format!("{}/v1/runs/{id}/events", second.url));
        let end = Events::open(events).await.all().await.pop().expect("an end");
        assert_eq!(end.json["status"], "COMPLETED", "{id}: {:?}", end.json);
    }
}

/// A store that refuses to write metadata on request.
#[derive(Clone)]
struct RefusesMeta {
    kept: MemoryStore,
    refuses: Arc<AtomicBool>,
}

impl Store for RefusesMeta {
    forward_to_store!(kept: location claims commit run runs journal contents chain snapshot timers sessions session meta remove
        remove_session);

    fn set_meta(&self, name: &str, value: Option<String>) -> Pending<()> {
        if self.refuses.load(Ordering::Relaxed) {
            let file = Arc::clone(self.location());
            let why = "the disk is full".to_owned();
            return Box::pin(std::future::ready(Err(StoreError::Failed { file, run: None, why })));
        }
        self.kept.set_meta(name, value)
    }
}

#[tokio::test]
async fn keys_after_one_that_the_store_refused_are_known_after_a_restart() {
    let store = RefusesMeta {
        kept: MemoryStore::new(),
        refuses: Arc::default(),
    };
    let start = async |world: &World, key: &'static str| {
        let request = world.post("/v1/runs", &json!({"workflow": "echo", "input": {"n": 1}}));
        let answer = answer(request.header("idempotency-key", key)).await;
        (answer.status.as_u16(), answer.body["runId"].clone())
    };
    let world = World::of(Engine::builder().store(store.clone()), Options::default()).await;
    let first = start(&world, "k1").await;
    store.refuses.store(true, Ordering::Relaxed);
    assert_eq!(start(&world, "k2").await.0, 500);
    store.refuses.store(false, Ordering::Relaxed);
    let third = start(&world, "k3").await;
    let fourth = start(&world, "k4").await;
    assert_eq!((first.0, third.0, fourth.0), (201, 201, 201));
    for (_, run) in [&first, &third, &fourth] {
        world.ended(run.as_str().expect("an id")).await;
    }
    let again = World::of(Engine::builder().store(store), Options::default()).await;
    for (key, run) in [("k1", first.1), ("k3", third.1), ("k4", fourth.1)] {
        assert_eq!(start(&again, key).await.1, run, "{key}");
    }
}
