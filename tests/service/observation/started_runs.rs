//! Runs started by a trigger or a schedule: a service lists them like those of its clients.

use pirn::store::MemoryStore;
use pirn::{Engine, EngineBuilder};
use pirn_service::Options;
use serde_json::{Value, json};

use crate::world::{Events, World, answer, encoded, refusal, spawn};

/// Two workflows that start one that questions a person: when the first has completed, and each second by a schedule.
fn triggers() -> String {
    let step = |id: &str, kind: &str| json!({"id": id, "type": kind});
    let start = |workflow: &str| json!({"type": "START_WORKFLOW", "parameters": {"workflowId": workflow}});
    json!({"workflows": [
        {"id": "first", "nodes": [step("start", "START"), step("end", "END")], "edges": [{"from": "start", "to": "end"}],
         "triggers": [{"id": "then", "condition": {"eventType": "THREAD_COMPLETED"}, "action": start("asks")}]},
        {"id": "timed", "nodes": [step("start", "START"), step("end", "END")], "edges": [{"from": "start", "to": "end"}],
         "triggers": [{"id": "each-second", "type": "SCHEDULE", "schedule": {"cron": "* * * * * *"},
                       "action": start("asks")}]}]})
    .to_string()
}

fn builders() -> [EngineBuilder; 2] {
    [Engine::builder(), Engine::builder().store(MemoryStore::new())]
}

/// Waits until a new run of the workflow `asks` is listed; returns its id.
async fn listed(world: &World, before: &[String]) -> String {
    loop {
        let runs = answer(world.get("/v1/runs?workflow=asks")).await.body["runs"].clone();
        let ids = runs
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|run| run["runId"].as_str());
        if let Some(id) = ids.map(str::to_owned).find(|id| !before.contains(id)) {
            return id;
        }
        tokio::task::yield_now().await;
    }
}

/// The path of a run; the id is percent-encoded.
fn path(id: &str) -> String {
    format!("/v1/runs/{}", encoded(id))
}

/// Answers the question of a run over HTTP and waits for its completion.
async fn is_answered(world: &World, id: &str) {
    let path = path(id);
    let mut events = Events::open(world.get(&format!("{path}/events"))).await;
    let mut first = None;
    let asked = loop {
        let event = events.next().await.expect("an event");
        let id = first.get_or_insert(event.id).to_owned();
        assert_eq!(id, Some(1), "from the first event on");
        if event.json["type"] == "INTERACTION_REQUESTED" {
            break event;
        }
    };
    let open = answer(world.get(&format!("{path}/interactions"))).await;
    assert_eq!(open.status, 200, "{}", open.body);
    let question = open.body["interactions"][0]["id"].as_str().expect("an id");
    assert_eq!(asked.json["interactionId"], question);
    let report = answer(world.get(&path)).await;
    assert_eq!(
        (report.status.as_u16(), &report.body["status"]),
        (200, &json!("RUNNING"))
    );
    let question = path_of_question(question);
    let told = answer(world.post(&question, &json!({"answer": "red"}))).await;
    assert_eq!(told.body, json!({"ok": true}));
    let end = events.all().await.pop().expect("an end");
    assert_eq!(end.json["status"], "COMPLETED");
    let report = answer(world.get(&path)).await.body;
    assert_eq!(
        (&report["status"], &report["output"]),
        (&json!("COMPLETED"), &json!(["red", null]))
    );
}

fn path_of_question(id: &str) -> String {
    path(id).replace("/v1/runs/", "/v1/interactions/")
}

#[tokio::test]
async fn a_run_that_a_trigger_starts_is_listed_answered_and_cancelled_over_http() {
    for builder in builders() {
        let world = World::of(builder.workflows(triggers()).schedules(false), Options::default()).await;
        world.start("first", Value::Null).await;
        let answered = listed(&world, &[]).await;
        is_answered(&world, &answered).await;
        world.start("first", Value::Null).await;
        let cancelled = listed(&world, &[answered]).await;
        world.until(&cancelled, "INTERACTION_REQUESTED").await;
        let told = answer(world.post(&format!("{}/cancel", path(&cancelled)), &json!({}))).await;
        assert_eq!(told.body, json!({"ok": true}));
        assert_eq!(world.ended(&cancelled).await["status"], "CANCELLED");
        let again = world.post(&format!("{}/cancel", path(&cancelled)), &json!({}));
        assert_eq!(refusal(again).await, (409, "RUN_ENDED".into()));
    }
}

#[tokio::test]
async fn a_run_that_a_schedule_starts_is_listed_and_answered_over_http() {
    for builder in builders() {
        let world = World::of(builder.workflows(triggers()), Options::default()).await;
        let id = listed(&world, &[]).await;
        assert!(id.contains('@'), "{id}");
        is_answered(&world, &id).await;
    }
}

#[test]
fn a_service_created_before_its_runtime_lists_runs_started_in_between() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let engine = Engine::builder().schedules(false).workflows(triggers());
    let asks = json!({"id": "asks", "nodes": [{"id": "start", "type": "START"}, {"id": "end", "type": "END"}],
        "edges": [{"from": "start", "to": "end"}]});
    let engine = engine.workflows(asks.to_string()).build().expect("an engine");
    let service = pirn_service::Service::new(engine.clone(), Options::default());
    let run = engine.start("first", Value::Null).expect("it starts");
    run.wait_all_ended_blocking();
    while engine.live_runs() > 0 {
        std::thread::yield_now();
    }
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        spawn(listener, service.router());
        let client = reqwest::Client::builder().no_proxy().build().expect("a client");
        let runs = answer(client.get(format!("http://{address}/v1/runs"))).await.body["runs"].clone();
        let id = runs[0]["runId"].as_str().expect("a run").to_owned();
        assert_eq!(runs[0]["workflowId"], "asks");
        let events = Events::open(client.get(format!("http://{address}/v1/runs/{id}/events"))).await;
        let last = events.all().await.pop().expect("an end");
        assert_eq!(last.json["status"], "COMPLETED");
    });
}
