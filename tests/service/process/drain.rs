//! Shutdown: runs complete, or end with a status that can be read.

use std::time::Duration;

use serde_json::{Value, json};

use crate::world::{Events, World, answer, refusal};

#[tokio::test]
async fn a_draining_service_is_not_ready_and_starts_no_run() {
    let world = World::new().await;
    let id = world.start("gated", Value::Null).await;
    assert_eq!(answer(world.get("/readyz")).await.status, 200);
    world.service.drain();
    assert_eq!(refusal(world.get("/readyz")).await, (503, "DRAINING".into()));
    assert_eq!(answer(world.get("/healthz")).await.status, 200);
    let refused = answer(world.post("/v1/runs", &json!({"workflow": "echo"}))).await;
    assert_eq!(
        (refused.status.as_u16(), &refused.body["code"]),
        (503, &json!("DRAINING"))
    );
    assert_eq!(refused.headers["retry-after"], "5");
    // Runs under way can still be watched and controlled.
    assert_eq!(
        answer(world.get(&format!("/v1/runs/{id}"))).await.body["status"],
        "RUNNING"
    );
    world.gate.add_permits(1);
    assert_eq!(world.ended(&id).await["status"], "COMPLETED");
}

#[tokio::test]
async fn every_run_and_its_streams_end_within_the_grace_period() {
    let world = World::new().await;
    let (ends, hangs) = (
        world.start("gated", Value::Null).await,
        world.start("paid", Value::Null).await,
    );
    world.until(&hangs, "NODE_STARTED").await;
    let streams = [&ends, &hangs].map(|id| Events::open(world.get(&format!("/v1/runs/{id}/events"))));
    let [first, second] = futures::future::join_all(streams).await.try_into().ok().expect("two");
    world.gate.add_permits(1);
    let left = world.service.shut_down(Duration::from_millis(200)).await;
    assert_eq!((left.runs_cancelled, left.runs_left), (1, 0));
    let status = |all: Vec<crate::world::Sent>| {
        let last = all.last().expect("a last event").clone();
        assert_eq!(last.name.as_deref(), Some("end"));
        last.json["status"].as_str().map(str::to_owned)
    };
    assert_eq!(status(first.all().await).as_deref(), Some("COMPLETED"));
    assert_eq!(status(second.all().await).as_deref(), Some("CANCELLED"));
    // The outcome can still be read after the shutdown.
    assert_eq!(
        answer(world.get(&format!("/v1/runs/{hangs}"))).await.body["status"],
        "CANCELLED"
    );
}

#[cfg(unix)]
#[test]
fn a_service_whose_log_cannot_be_written_continues_until_it_is_stopped() {
    let folder = crate::command::folder("no-log");
    std::fs::write(folder.join("echo.json"), crate::command::ECHO).expect("a file");
    for format in ["text", "json"] {
        let mut served = crate::command::Served::start(&folder, &["echo.json", "--grace", "0", "--log-format", format]);
        served.close_log();
        // Logged, and answered by the service that runs on.
        served.signal("TERM");
        assert_eq!(served.ended(), Some(0), "{format}");
    }
}
