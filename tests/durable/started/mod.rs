//! Runs that triggers of other runs start, and that another engine or process than that of their starter executes.
//!
//! Not here: triggers of one process that is killed, which are in `triggers.rs`, and processes on real servers, which are in
//! `tests/cluster`.
#![allow(clippy::disallowed_methods, reason = "the engines run in real time")]

mod again;
mod left;
mod random;
mod shared_memory;

use pirn::{Engine, EngineBuilder, RunHandle};
use serde_json::{Value, json};

pub(super) const RUN: &str = "run-1";

/// Returns a workflow that starts the workflows `starts` after its first node, then waits for an answer and returns it.
pub(super) fn asks(id: &str, starts: &[String]) -> Value {
    let trigger = |of: &String| {
        json!({"id": format!("starts-{of}"), "type": "EVENT",
            "condition": {"eventType": "NODE_COMPLETED", "expression": "event.nodeId == 'first'"},
            "action": {"type": "START_WORKFLOW", "parameters": {"workflowId": of}}})
    };
    let triggers: Vec<Value> = starts.iter().map(trigger).collect();
    json!({"id": id, "triggers": triggers,
        "nodes": [{"id": "start", "type": "START"}, {"id": "first", "type": "CODE", "config": {"function": "work"}},
            {"id": "ask", "type": "USER_INTERACTION", "config": {"question": "On?"}},
            {"id": "last", "type": "CODE", "config": {"function": "work"}},
            {"id": "end", "type": "END", "config": {"output": "nodes.ask.answer"}}],
        "edges": [{"from": "start", "to": "first"}, {"from": "first", "to": "ask"}, {"from": "ask", "to": "last"},
            {"from": "last", "to": "end"}]})
}

/// Returns an engine for a run of the workflow `main` that starts a run of `mine`. Both have a question.
fn pair() -> EngineBuilder {
    engine_of(&[asks("main", &["mine".to_owned()]), asks("mine", &[])])
}

fn engine_of(workflows: &[Value]) -> EngineBuilder {
    Engine::builder()
        .workflows(json!({ "workflows": workflows }).to_string())
        .async_function("work", |_| std::future::ready(Ok::<_, String>(Value::Null)))
}

/// Answers the question of a run. Returns false if it is not open here.
pub(super) fn answer(run: &RunHandle, answer: &str) -> bool {
    let questions = futures::executor::block_on(run.interactions());
    let Some(question) = questions.first() else {
        return false;
    };
    futures::executor::block_on(run.answer(&question.id, json!(answer))).is_ok()
}
