//! Live runs under another definition: whether they fit it, the first difference, and how they go on by it.

use std::time::Duration;

use futures::executor::block_on;
use pirn::store::{MemoryStore, Store};
use pirn::{Engine, Migration, RunHandle, SourceFile, ThreadStatus};
use serde_json::{Value, json};

/// Calls `f`, waits for an event, and ends with `said`.
fn definition(wait: &str, said: &str, more: &[Value]) -> Value {
    let mut nodes = vec![
        json!({"id": "start", "type": "START"}),
        json!({"id": "call", "type": "CODE", "config": {"function": "f", "input": {"n": 1}}}),
    ];
    nodes.extend_from_slice(more);
    nodes.push(json!({"id": "wait", "type": "WAIT", "config": {"event": wait}}));
    nodes.push(json!({"id": "end", "type": "END", "config": {"output": format!("'{said}'")}}));
    let ids: Vec<Value> = nodes.iter().map(|node| node["id"].clone()).collect();
    let edges: Vec<Value> = ids
        .windows(2)
        .map(|pair| json!({"from": pair[0], "to": pair[1]}))
        .collect();
    json!({"id": "main", "nodes": nodes, "edges": edges})
}

fn engine(store: &MemoryStore) -> Engine {
    let engine = Engine::builder()
        .virtual_time(None)
        .store(store.clone())
        .workflows(definition("go", "old", &[]).to_string())
        .async_function("f", |_| std::future::ready(Ok(json!("called"))));
    engine.build().expect("builds")
}

/// A run that waits for its event, and whose process has ended.
fn waiting() -> MemoryStore {
    let store = MemoryStore::new();
    let engine = engine(&store);
    let run = engine.run("main").run_id("r").start().expect("starts");
    engine.wait_idle();
    run.leave();
    engine.shutdown_blocking(Duration::from_secs(5));
    store
}

fn file(definition: &Value) -> [SourceFile; 1] {
    [SourceFile::new("new.json", definition.to_string())]
}

fn check(engine: &Engine, definition: &Value) -> Migration {
    block_on(engine.resume("r").check_migration(&file(definition))).expect("is checked")
}

fn goes_on(engine: &Engine) -> RunHandle {
    let run = block_on(engine.resume("r").start()).expect("goes on");
    run.emit("go", [("n", json!(1))]);
    run
}

#[test]
fn a_run_whose_past_fits_is_moved_and_ends_by_the_other_definition() {
    let store = waiting();
    let other = definition("go", "new", &[]);
    let first = engine(&store);
    assert_eq!(
        check(&first, &other),
        Migration {
            fits: true,
            first_difference: None
        }
    );
    let steps = block_on(store.run("r")).expect("is read").expect("is there").steps;
    let moved = block_on(first.resume("r").migrate(&file(&other))).expect("is moved");
    assert!(moved.fits);
    assert_eq!(
        block_on(store.run("r")).expect("is read").expect("is there").steps,
        steps + 1
    );
    drop(first);
    // In another process, and in a fork from before it was moved.
    let second = engine(&store);
    let forked = block_on(second.fork("r", steps).make("s")).expect("is forked");
    let forked = block_on(forked.start()).expect("goes on");
    forked.emit("go", [("n", json!(1))]);
    second.wait_idle();
    assert_eq!(forked.outcome_blocking().output, json!("old"));
    let report = goes_on(&second).outcome_blocking();
    assert_eq!(
        (report.status, &report.output),
        (ThreadStatus::Completed, &json!("new"))
    );
    assert!(
        report.in_doubt.is_empty(),
        "nothing was asked for twice: {:?}",
        report.in_doubt
    );
    let ended = block_on(second.resume("r").check_migration(&file(&other))).expect_err("it has ended");
    assert_eq!(ended.code(), "RUN_HAS_ENDED");
}

#[test]
fn a_run_that_does_not_fit_stays_as_it_is_and_the_first_difference_is_named() {
    let store = waiting();
    let engine = engine(&store);
    let steps = || block_on(store.run("r")).expect("is read").expect("is there").steps;
    let before = steps();
    let set = json!({"id": "set", "type": "VARIABLE", "config": {"variableName": "x", "expression": "1"}});
    for (other, step, node, was, would) in [
        (definition("other", "new", &[]), 1, "wait", "go", "other"),
        (
            definition("go", "new", &[set]),
            1,
            "wait",
            "\"nodeId\":\"wait\"",
            "\"nodeId\":\"set\"",
        ),
    ] {
        let migration = block_on(engine.resume("r").migrate(&file(&other))).expect("is checked");
        assert!(!migration.fits);
        let first = migration.first_difference.expect("it is named");
        assert_eq!((first.step, first.node_id.as_deref()), (step, Some(node)), "{first:?}");
        assert!(first.was.to_string().contains(was), "{first:?}");
        assert!(first.would.to_string().contains(would), "{first:?}");
    }
    assert_eq!(steps(), before);
    let faulty = block_on(engine.resume("r").check_migration(&file(&json!({"id": "main"})))).expect_err("has faults");
    assert_eq!(faulty.code(), "INVALID_WORKFLOW");
    assert_eq!(goes_on(&engine).outcome_blocking().output, json!("old"));
}
