//! Live runs under another definition: whether they are compatible, the first difference, and how they continue with it.

use std::time::Duration;

use futures::executor::block_on;
use pirn::store::{MemoryStore, Store};
use pirn::{Engine, Migration, RunHandle, SourceFile, ThreadStatus};
use serde_json::{Value, json};

/// Returns a workflow that calls `f`, waits for an event and ends with the output `said`.
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

/// Returns the store of a run that waits for its event and whose process has ended.
fn waiting() -> MemoryStore {
    let store = MemoryStore::new();
    let engine = engine(&store);
    let run = engine.run("main").run_id("r").start().expect("starts");
    engine.wait_idle();
    run.release();
    engine.shutdown_blocking(Duration::from_secs(5));
    store
}

fn file(definition: &Value) -> [SourceFile; 1] {
    [SourceFile::new("new.json", definition.to_string())]
}

fn check(engine: &Engine, definition: &Value) -> Migration {
    block_on(engine.resume("r").check_migration(&file(definition))).expect("is checked")
}

fn resume_and_emit(engine: &Engine) -> RunHandle {
    let run = block_on(engine.resume("r").start()).expect("goes on");
    run.emit("go", [("n", json!(1))]);
    run
}

#[test]
fn a_run_with_a_compatible_history_is_migrated_and_completes_under_the_new_definition() {
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
    // Resumes in another process, and in a fork from a step before the migration.
    let second = engine(&store);
    let forked = block_on(second.fork("r", steps).make("s")).expect("is forked");
    let forked = block_on(forked.start()).expect("goes on");
    forked.emit("go", [("n", json!(1))]);
    second.wait_idle();
    assert_eq!(forked.outcome_blocking().output, json!("old"));
    let report = resume_and_emit(&second).outcome_blocking();
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
fn an_incompatible_run_is_unchanged_and_the_first_difference_is_named() {
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
        assert!(first.before.to_string().contains(was), "{first:?}");
        assert!(first.after.to_string().contains(would), "{first:?}");
    }
    assert_eq!(steps(), before);
    let faulty = block_on(engine.resume("r").check_migration(&file(&json!({"id": "main"})))).expect_err("has faults");
    assert_eq!(faulty.code(), "INVALID_WORKFLOW");
    assert_eq!(resume_and_emit(&engine).outcome_blocking().output, json!("old"));
}

#[test]
fn a_file_without_a_workflow_of_the_run_is_refused_and_the_run_is_unchanged() {
    let store = waiting();
    let engine = engine(&store);
    let steps = || block_on(store.run("r")).expect("is read").expect("is there").steps;
    let before = steps();
    let mut other = definition("go", "new", &[]);
    other["id"] = json!("mian");
    let checked = block_on(engine.resume("r").check_migration(&file(&other)));
    for refused in [checked, block_on(engine.resume("r").migrate(&file(&other)))] {
        let error = refused.expect_err("it replaces nothing");
        assert_eq!(error.code(), "WORKFLOW_NOT_FOUND");
        let expected = "the files have the workflows mian, and run r has none of them; it has main; did you mean main?";
        assert!(error.to_string().ends_with(expected), "{error}");
    }
    assert_eq!(steps(), before);
    // One workflow of the run is enough: the files may have others too.
    let both = json!({"workflows": [definition("go", "new", &[]), other]});
    assert!(check(&engine, &both).fits);
}

/// Returns a workflow that assigns `x`, calls a function and waits for an event. One trigger sets `seen` on events that match
/// `condition`. Another one pauses the thread after the call, so that all triggers have processed the previous events.
fn watched(expression: &str, condition: &str, value: &str, function: &str) -> Value {
    let nodes = [
        json!({"id": "start", "type": "START"}),
        json!({"id": "set", "type": "VARIABLE", "config": {"variableName": "x", "expression": expression}}),
        json!({"id": "call", "type": "CODE", "config": {"function": function, "input": {"n": 1}}}),
        json!({"id": "wait", "type": "WAIT", "config": {"event": "go"}}),
        json!({"id": "end", "type": "END"}),
    ];
    let edges = [("start", "set"), ("set", "call"), ("call", "wait"), ("wait", "end")];
    let edges = edges.map(|(from, to)| json!({"from": from, "to": to}));
    let mut holds = sets("holds", "event.nodeId === 'call'", "1");
    holds["action"] = json!({"type": "EXECUTE_TRIGGERED_SUBGRAPH",
        "parameters": {"triggeredWorkflowId": "sub", "waitForCompletion": true}});
    let triggers = [sets("t", condition, value), holds];
    let main = json!({"id": "main", "nodes": nodes, "edges": edges, "triggers": triggers});
    let nodes = json!([{"id": "b", "type": "START_FROM_TRIGGER"}, {"id": "c", "type": "CONTINUE_FROM_TRIGGER"}]);
    let sub = json!({"id": "sub", "nodes": nodes, "edges": [{"from": "b", "to": "c"}]});
    json!({"workflows": [main, sub]})
}

fn sets(id: &str, condition: &str, value: &str) -> Value {
    let action = json!({"type": "SET_VARIABLE", "parameters": {"variableName": "seen", "expression": value}});
    json!({"id": id, "condition": {"eventType": "NODE_COMPLETED", "expression": condition}, "action": action})
}

/// Compares the definition of a waiting run with each of the others.
fn compared(own: &Value, others: &[Value]) -> Vec<Migration> {
    let store = MemoryStore::new();
    let builds = || {
        let engine = Engine::builder()
            .virtual_time(None)
            .store(store.clone())
            .workflows(own.to_string())
            .async_function("f", |_| std::future::ready(Ok(json!("called"))))
            .async_function("g", |_| std::future::ready(Ok(json!("called"))));
        engine.build().expect("builds")
    };
    let first = builds();
    let run = first.run("main").run_id("r").start().expect("starts");
    first.wait_idle();
    run.release();
    first.shutdown_blocking(Duration::from_secs(5));
    let engine = builds();
    others.iter().map(|other| check(&engine, other)).collect()
}

#[track_caller]
fn differs(migration: &Migration, node: &str, was: &str, would: &str) {
    let first = migration.first_difference.as_ref().expect("it does not fit");
    assert!(!migration.fits);
    assert_eq!(first.node_id.as_deref(), Some(node), "{first:?}");
    assert!(first.before.to_string().contains(was), "{first:?}");
    assert!(first.after.to_string().contains(would), "{first:?}");
}

const AT_SET: &str = "event.nodeId === 'set' && event.output === 1";

#[test]
fn a_definition_with_triggers_that_would_have_fired_differently_is_incompatible() {
    let other = |condition| watched("1", condition, "'yes'", "f");
    let mut added = other(AT_SET);
    added["workflows"][0]["triggers"]
        .as_array_mut()
        .expect("a list")
        .push(sets("u", "event.nodeId === 'start'", "1"));
    let mut removed = other(AT_SET);
    removed["workflows"][0]["triggers"]
        .as_array_mut()
        .expect("a list")
        .remove(0);
    let mut disabled = other(AT_SET);
    disabled["workflows"][0]["triggers"][0]["enabled"] = json!(false);
    let others = [
        other("event.nodeId === 'set' && event.output === 2"),
        removed,
        disabled,
        added,
        watched("1", AT_SET, "'no'", "f"),
    ];
    let migrations = compared(&other(AT_SET), &others);
    for migration in &migrations[..3] {
        differs(migration, "set", "main/t", "event");
        let first = migration.first_difference.as_ref().expect("it is named");
        assert!(!first.after.to_string().contains("main/t"), "{first:?}");
    }
    differs(&migrations[3], "start", "event", "main/u");
    differs(&migrations[4], "set", "\"value\":\"yes\"", "\"value\":\"no\"");
}

#[test]
fn a_changed_trigger_with_equal_decisions_about_past_events_is_compatible() {
    let own = watched("1", AT_SET, "'yes'", "f");
    let mut added = own.clone();
    let ends = sets("u", "event.nodeId === 'end'", "1");
    added["workflows"][0]["triggers"]
        .as_array_mut()
        .expect("a list")
        .push(ends);
    let others = [
        watched("1", "event.nodeId === 'set'", "'y' + 'es'", "f"),
        added,
        own.clone(),
    ];
    for migration in compared(&own, &others) {
        assert!(migration.fits, "{migration:?}");
    }
}

#[test]
fn a_definition_with_a_changed_expression_that_a_script_thread_evaluated_is_incompatible() {
    // These values are in the record, so a replay yields them even if the expression differs.
    let script = |n: u32| format!("[{n}].map(item => item + 1)[0]");
    let condition = |id: &str| format!("['{id}'].some(item => item == event.nodeId)");
    let own = watched(&script(1), &condition("set"), "1", "f");
    let others = [
        watched(&script(2), &condition("set"), "1", "f"),
        watched(&script(1), &condition("call"), "1", "f"),
        own.clone(),
    ];
    let migrations = compared(&own, &others);
    differs(&migrations[0], "set", "[1].map", "[2].map");
    differs(&migrations[1], "start", "['set'].some", "['call'].some");
    assert!(migrations[2].fits, "{:?}", migrations[2]);
}

#[test]
fn a_definition_with_another_value_of_a_variable_that_a_script_thread_read_is_incompatible() {
    let of = |first: u32, other: u32| {
        let mut own = watched("[read].map(item => item + 1)[0]", AT_SET, "1", "f");
        own["workflows"][0]["variables"] = json!([{"name": "read", "value": first}, {"name": "other", "value": other}]);
        own
    };
    let migrations = compared(&of(1, 1), &[of(2, 1), of(1, 2)]);
    differs(&migrations[0], "set", "\"read\":1", "\"read\":2");
    assert!(migrations[1].fits, "nothing has read it: {:?}", migrations[1]);
}

#[test]
fn a_definition_that_assigned_another_value_or_called_another_function_is_incompatible() {
    let own = watched("1", "event.nodeId === 'none'", "1", "f");
    let others = [
        watched("1 + 1", "event.nodeId === 'none'", "1", "f"),
        watched("1", "event.nodeId === 'none'", "1", "g"),
        watched("2 - 1", "event.nodeId === 'none'", "1", "f"),
    ];
    let migrations = compared(&own, &others);
    differs(&migrations[0], "set", "\"value\":1", "\"value\":2");
    differs(&migrations[1], "call", "\"name\":\"f\"", "\"name\":\"g\"");
    assert!(migrations[2].fits, "{:?}", migrations[2]);
}
