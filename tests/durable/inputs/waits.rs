//! Events that arrive before a WAIT, across processes.

use std::time::Duration;

use futures::executor::block_on;
use pirn::store::MemoryStore;
use pirn::{Engine, RunHandle, ThreadStatus};
use serde_json::json;

/// A workflow that waits for `go` twice, with a question in between.
const BUNDLE: &str = r#"{"id": "main", "nodes": [
    {"id": "start", "type": "START"}, {"id": "first", "type": "WAIT", "config": {"event": "go"}},
    {"id": "ask", "type": "USER_INTERACTION", "config": {"question": "On?"}},
    {"id": "go", "type": "WAIT", "config": {"event": "go", "timeout": 60}},
    {"id": "end", "type": "END", "config": {"output": "[nodes.first.data.n, nodes.go.data.n]"}}],
  "edges": [{"from": "start", "to": "first"}, {"from": "first", "to": "ask"}, {"from": "ask", "to": "go"}, {"from": "go", "to": "end"}]}"#;

fn engine(store: &MemoryStore) -> Engine {
    let engine = Engine::builder()
        .virtual_time(None)
        .store(store.clone())
        .workflows(BUNDLE);
    engine.build().expect("builds")
}

fn resumed(store: &MemoryStore) -> (Engine, RunHandle) {
    let engine = engine(store);
    let run = block_on(engine.resume("run-1").start()).expect("goes on");
    engine.wait_idle();
    (engine, run)
}

#[test]
fn an_event_before_a_wait_survives_its_process_and_is_consumed_once() {
    let store = MemoryStore::new();
    let first = engine(&store);
    let run = first.run("main").run_id("run-1").start().expect("starts");
    first.wait_idle();
    for n in 1..=3 {
        run.emit("go", [("n", json!(n))]);
    }
    first.wait_idle();
    drop((run, first));
    let (second, run) = resumed(&store);
    let question = block_on(run.interactions()).remove(0);
    block_on(run.answer(&question.id, json!("yes"))).expect("is taken");
    second.wait_idle();
    let report = run.try_outcome().expect("it ended");
    assert_eq!(
        (report.status, &report.output),
        (ThreadStatus::Completed, &json!([1, 2]))
    );
    second.shutdown_blocking(Duration::from_secs(5));
}
