//! Values that a fork assigns, and forks that are not started.

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
     "variables": [{"name": "n", "value": 0, "scope": "global"}, {"name": "own", "value": 0},
                   {"name": "fixed", "value": 1, "readonly": true}, {"name": "text", "type": "string", "value": "a"}],
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

/// Returns an engine and its store after the end of the run `r`.
fn ended() -> (Engine, MemoryStore) {
    let (engine, store) = waiting();
    let run = block_on(engine.resume("r").start()).expect("goes on");
    engine.wait_idle();
    run.emit("go", [("n", json!(0))]);
    run.outcome_blocking();
    engine.wait_idle();
    (engine, store)
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
        engine.fork("r", 0).set("fixed", json!(2)),
        engine.fork("r", 0).set("text", json!(2)),
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

#[test]
fn a_fork_that_was_never_started_keeps_its_assigned_variables() {
    let (engine, _store) = waiting();
    let fork = engine.fork("r", 0).set("n", json!(3)).set("own", json!(7));
    // As after a kill of the process: only the store has the fork.
    drop(block_on(fork.make("f")).expect("is forked"));
    let view = block_on(engine.view("f", None)).expect("is read");
    assert_eq!(view.step, 2, "one step for each assignment");
    let fork = block_on(engine.resume("f").start()).expect("starts");
    engine.wait_idle();
    fork.emit("go", [("n", json!(0))]);
    let report = fork.outcome_blocking();
    assert_eq!(
        (report.status, &report.output),
        (ThreadStatus::Completed, &json!([5, 5, 7])),
        "{report:?}"
    );
}

#[test]
fn a_fork_whose_start_is_refused_is_removed_and_its_id_is_free() {
    let (_, store) = waiting();
    let engine = Engine::builder()
        .virtual_time(None)
        .store(store.clone())
        .max_runs(1)
        .workflows(COUNTS);
    let engine = engine.build().expect("builds");
    let base = block_on(engine.resume("r").start()).expect("goes on");
    for _ in 0..2 {
        let fork = block_on(engine.fork("r", 0).set("own", json!(7)).make("f")).expect("is forked");
        let error = block_on(fork.start()).expect_err("one run is the limit");
        assert_eq!(error.code(), "OVERLOADED");
        assert!(block_on(store.run("f")).expect("is read").is_none(), "nothing is left");
    }
    engine.wait_idle();
    base.emit("go", [("n", json!(0))]);
    assert_eq!(
        base.outcome_blocking().output,
        json!([5, 5, 0]),
        "the base is unchanged"
    );
}

#[test]
fn a_fork_after_the_end_cannot_assign_a_variable_of_the_ended_thread() {
    let (engine, _store) = ended();
    let last = block_on(engine.view("r", None)).expect("is read").step;
    let error = block_on(engine.fork("r", last).set("own", json!(7)).make("f")).map(drop);
    let error = error.expect_err("nothing would read it");
    assert!(error.to_string().contains("which has ended at step"), "{error}");
}

#[test]
fn an_equal_fork_has_no_difference_in_its_outcome() {
    let fails = r#"{"id": "fails", "nodes": [{"id": "s", "type": "START"}, {"id": "c", "type": "CODE", "config": {"code": "throw new Error('no')"}},
        {"id": "e", "type": "END"}], "edges": [{"from": "s", "to": "c"}, {"from": "c", "to": "e"}]}"#;
    let store = MemoryStore::new();
    let engine = Engine::builder()
        .virtual_time(None)
        .store(store)
        .workflows(fails)
        .build()
        .expect("builds");
    engine
        .run("fails")
        .run_id("r")
        .start()
        .expect("starts")
        .outcome_blocking();
    engine.wait_idle();
    let fork = block_on(block_on(engine.fork("r", 0).make("f")).expect("is forked").start()).expect("starts");
    fork.outcome_blocking();
    engine.wait_idle();
    let difference = block_on(engine.diff("r", "f")).expect("both are read");
    assert!(difference.outcome.equal, "{difference:?}");
}

#[test]
fn time_limits_and_waits_of_a_fork_exclude_the_time_before_its_start() {
    let waits = r#"{"id": "waits", "config": {"timeoutMs": 60000},
        "nodes": [{"id": "s", "type": "START"}, {"id": "a", "type": "WAIT", "config": {"seconds": 40}},
                  {"id": "b", "type": "WAIT", "config": {"seconds": 15}}, {"id": "e", "type": "END"}],
        "edges": [{"from": "s", "to": "a"}, {"from": "a", "to": "b"}, {"from": "b", "to": "e"}]}"#;
    let engine = Engine::builder().virtual_time(None).store(MemoryStore::new());
    let engine = engine.workflows(waits).build().expect("builds");
    let played = |id: &str| {
        let run = engine.run("waits").run_id(id).start().expect("starts");
        run.outcome_blocking();
        engine.wait_idle();
    };
    played("r");
    // Also a fork that shares a step of its base's own.
    for (base, step, id) in [("r", 0, "f"), ("r", 1, "g"), ("f", 1, "h"), ("h", 1, "i")] {
        // The clock passes the time limit of every earlier run.
        played(&format!("before-{id}"));
        let fork = block_on(engine.fork(base, step).make(id)).expect("is forked");
        let report = block_on(fork.start()).expect("starts").outcome_blocking();
        engine.wait_idle();
        let view = block_on(engine.view(id, None)).expect("is read");
        for report in [&report, &view.report] {
            assert_eq!(
                (report.status, report.elapsed_ms),
                (ThreadStatus::Completed, 55_000),
                "{id}"
            );
        }
    }
}
