//! Typical mistakes and their messages: the problem, its location and the fix.

mod command_lines;
mod in_files;
mod in_runs;
#[cfg(unix)]
mod table;

use serde_json::{Value, json};

use crate::command::Ended;

/// Returns a workflow `start`, `work`, `end`, in which `work` is this node.
fn with_node(node_type: &str, config: &Value) -> Value {
    let mut flow = flow();
    flow["nodes"][1] = json!({"id": "work", "type": node_type, "config": config});
    flow
}

/// Returns a valid workflow.
fn flow() -> Value {
    json!({"id": "flow", "nodes": [
        {"id": "start", "type": "START"},
        {"id": "work", "type": "CODE", "config": {"code": "return 1"}},
        {"id": "end", "type": "END"}],
        "edges": [{"from": "start", "to": "work"}, {"from": "work", "to": "end"}]})
}

/// Returns a valid workflow with a fork of two paths.
fn forked() -> Value {
    json!({"id": "forked", "nodes": [
        {"id": "start", "type": "START"},
        {"id": "fork", "type": "FORK", "config": {"forkPathIds": ["a", "b"], "childNodeIds": ["left", "right"]}},
        {"id": "left", "type": "CODE", "config": {"code": "return 1"}},
        {"id": "right", "type": "CODE", "config": {"code": "return 2"}},
        {"id": "join", "type": "JOIN", "config": {"forkPathIds": ["a", "b"], "joinStrategy": "ALL_COMPLETED"}},
        {"id": "end", "type": "END"}],
        "edges": [{"from": "start", "to": "fork"}, {"from": "fork", "to": "left"}, {"from": "fork", "to": "right"},
            {"from": "left", "to": "join"}, {"from": "right", "to": "join"}, {"from": "join", "to": "end"}]})
}

/// Returns the file with another value at a JSON pointer.
fn with(mut file: Value, pointer: &str, value: Value) -> Value {
    let (parent, key) = pointer.rsplit_once('/').expect("a pointer");
    let parent = file.pointer_mut(parent).expect("it leads somewhere");
    match key.parse::<usize>() {
        Ok(index) if parent.as_array().is_some_and(|list| list.len() == index) => {
            parent.as_array_mut().expect("a list").push(value);
        }
        Ok(index) if parent.is_array() => parent[index] = value,
        _ => parent[key] = value,
    }
    file
}

/// Returns a bundle of the workflow and a profile.
#[allow(clippy::needless_pass_by_value)] // literals at every call
fn with_profile(flow: Value, profile: Value) -> Value {
    json!({"workflows": [flow], "profiles": [profile]})
}

#[track_caller]
fn assert_reported(name: &str, ended: &Ended, code: i32, parts: &[&str]) {
    let said = format!("{}{}", ended.stdout, ended.stderr);
    assert_eq!(ended.code, Some(code), "{name}: {said}");
    for part in parts {
        assert!(said.contains(part), "{name}: {part:?} is not in\n{said}");
    }
    assert!(!said.contains("panicked"), "{name}: {said}");
}
