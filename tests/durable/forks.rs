//! Values that a fork assigns: checked as those of a new run, and assigned in the declared scope.

use std::time::Duration;

use futures::executor::block_on;
use pirn::store::{MemoryStore, RunFilter, Store};
use pirn::{Engine, ThreadStatus};
use serde_json::{Value, json};

/// Levels of a value that no run accepts.
const TOO_MANY: usize = 101;

/// A workflow that counts a global variable up to five, which a called workflow reads at the end.
const COUNTS: &str = r#"{"workflows": [
    {"id": "counts", "inputSchema": {"type": "object", "required": ["a"]},
     "variables": [{"name": "n", "value": 0, "scope": "global"}, {"name": "own", "value": 0}],
     "nodes": [{"id": "s", "type": "START"},
               {"id": "wait", "type": "WAIT", "config": {"event": "go"}},
               {"id": "count", "type": "VARIABLE", "config": {"variableName": "n", "expression": "n + 1"}},
               {"id": "again", "type": "ROUTE",
                "config": {"routes": [{"condition": "n < 5", "targetNodeId": "count"}], "defaultTargetNodeId": "reads"}},
               {"id": "reads", "type": "SUBGRAPH", "config": {"subgraphId": "reads"}},
               {"id": "e", "type": "END", "config": {"output": "[n, nodes.reads, own]"}}],
     "edges": [{"from": "s", "to": "wait"}, {"from": "wait", "to": "count"}, {"from": "count", "to": "again"},
               {"from": "reads", "to": "e"}]},
    {"id": "reads", "variables": [{"name": "n", "value": 0, "scope": "global"}],
     "nodes": [{"id": "s", "type": "START"}, {"id": "e", "type": "END", "config": {"output": "n"}}],
     "edges": [{"from": "s", "to": "e"}]}]}"#;

/// Returns an engine whose store has the run `r`, which waits.
fn waiting() -> (Engine, MemoryStore) {
    let store = MemoryStore::new();
    let engine = Engine::builder()
        .virtual_time(None)
        .store(store.clone())
        .workflows(COUNTS);
    let engine = engine.build().expect("builds");
    let run = engine.run("counts").input(json!({"a": 1})).run_id("r").start();
    let run = run.expect("starts");
    engine.wait_idle();
    run.release();
    engine.shutdown_blocking(Duration::from_secs(5));
    let engine = Engine::builder()
        .virtual_time(None)
        .store(store.clone())
        .workflows(COUNTS);
    (engine.build().expect("builds"), store)
}

fn nested(levels: usize) -> Value {
    (0..levels).fold(json!(1), |inner, _| json!([inner]))
}

#[test]
fn a_fork_refuses_the_values_that_a_new_run_refuses_and_creates_no_run() {
    let (engine, store) = waiting();
    let refused = [
        engine.fork("r", 0).set("n", nested(TOO_MANY)),
        engine.fork("r", 0).input(json!({"a": nested(TOO_MANY - 1)})),
        engine.fork("r", 0).input(json!("no object")),
    ];
    for fork in refused {
        let error = block_on(fork.make("f")).map(drop).expect_err("is refused");
        assert_eq!(error.code(), "INVALID_INPUT", "{error}");
    }
    let runs = block_on(store.runs(RunFilter::default(), None, 10)).expect("is read");
    assert_eq!(runs.len(), 1);
    for deepest in [
        engine.fork("r", 0).set("n", nested(TOO_MANY - 1)),
        engine.fork("r", 0).input(json!({"a": nested(TOO_MANY - 2)})),
    ] {
        let id = format!(
            "fork-{}",
            block_on(store.runs(RunFilter::default(), None, 10))
                .expect("is read")
                .len()
        );
        drop(block_on(deepest.make(id.as_str())).expect("is forked"));
        block_on(engine.view(&id, None)).expect("is read again");
    }
}

#[test]
fn a_fork_assigns_a_variable_in_its_declared_scope() {
    let (engine, _store) = waiting();
    let fork = engine.fork("r", 0).set("n", json!(3)).set("own", json!(7));
    let fork = block_on(block_on(fork.make("f")).expect("is forked").start()).expect("starts");
    engine.wait_idle();
    fork.emit("go", [("n", json!(0))]);
    let report = fork.outcome_blocking();
    assert_eq!(
        (report.status, &report.output),
        (ThreadStatus::Completed, &json!([5, 5, 7])),
        "{report:?}"
    );
}
