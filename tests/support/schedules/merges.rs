//! A thread that shares its conversation is stopped while the conversation merges the result of a trigger.

use pirn::scene::Stage;
use pirn::{EngineBuilder, EventType};
use pirn_actors::host::Schedule;
use serde_json::{Value, json};

use super::heard::Heard;
use super::scenes::{ask, ended, engine, played, start_with_subscriber};
use crate::world::{line, node, say, wait, workflow};

/// Time limit of the called workflow, and duration of the sub-workflow that it triggers, so that the two race.
const MS: u32 = 5;

/// A called workflow that shares its caller's conversation and times out when its trigger's sub-workflow ends. The
/// sub-workflow returns messages or a compression.
pub(super) fn shared() -> Vec<EngineBuilder> {
    let call = json!({ "subgraphId": "called", "conversation": "share" });
    let mut main = line(
        "main",
        &[
            say("before", &"some words ".repeat(20)),
            node("call", "SUBGRAPH", call),
            say("after", "on"),
        ],
    );
    for node in main["nodes"].as_array_mut().into_iter().flatten() {
        if node["id"] == "call" {
            node["timeoutMs"] = json!(MS);
            node["onError"] = json!({ "targetNodeId": "after" });
        }
    }
    let called = line("called", &[ask("x"), wait("w", MS), say("late", "late"), ask("y")]);
    let sub = |nodes: &[Value]| {
        let mut all = vec![node("s", "START_FROM_TRIGGER", json!({}))];
        all.extend(nodes.iter().cloned());
        let callback = json!({ "conversationHistoryCallback": { "lastN": 1 } });
        all.push(node("c", "CONTINUE_FROM_TRIGGER", callback));
        let way: Vec<&str> = all.iter().filter_map(|node| node["id"].as_str()).collect();
        workflow("sub", &all, &[&way.join(">")])
    };
    let trigger = |condition: &Value| {
        json!({ "id": "t", "type": "EVENT", "workflowId": "called", "maxTriggers": 1, "condition": condition,
            "action": { "type": "EXECUTE_TRIGGERED_SUBGRAPH", "parameters": { "triggeredWorkflowId": "sub" } } })
    };
    let bundle = |main: &Value, condition: &Value| {
        let sub = sub(&[say("note", "noted"), wait("v", MS)]);
        engine(&json!({ "workflows": [main, called, sub], "triggers": [trigger(condition)] }))
    };
    let mut limited = main.clone();
    limited["config"] = json!({ "tokenLimit": 30 });
    let spoken = json!({ "eventType": "NODE_COMPLETED", "expression": "event.nodeId === 'x'" });
    vec![
        bundle(&main, &spoken),
        bundle(&limited, &json!({ "eventType": "TOKEN_LIMIT_EXCEEDED" })),
    ]
}

/// Checks that every firing and every compression that started has exactly one outcome.
pub(super) fn stop(stage: &Stage, seed: u64, order: Box<dyn Schedule>) -> Result<(), String> {
    let (engine, run, heard) = played(stage, seed, order, |scene| {
        let (run, heard) = start_with_subscriber(scene.engine())?;
        Ok((std::sync::Arc::clone(scene.engine()), run, heard))
    })?;
    let report = ended(&engine, &run)?;
    heard.check_account()?;
    heard.check_threads()?;
    check_answers(
        &heard,
        report
            .conversation
            .messages
            .iter()
            .any(|message| message.content == "noted"),
    )
}

fn check_answers(heard: &Heard, is_noted: bool) -> Result<(), String> {
    let events = heard.events();
    let count = |event_type: EventType| {
        let of = events.iter().filter(|event| event.raised.event_type == event_type);
        of.count()
    };
    let started = count(EventType::TriggeredSubgraphStarted);
    let (completed, failed) = (
        count(EventType::TriggeredSubgraphCompleted),
        count(EventType::TriggeredSubgraphFailed),
    );
    if completed + failed != 1 || completed > started {
        return Err(format!(
            "one firing, {started} started, {completed} completed, {failed} failed"
        ));
    }
    if is_noted != (completed == 1) {
        return Err(format!(
            "{completed} completed, and what it handed back is there: {is_noted}"
        ));
    }
    let (changed, unchanged) = (
        count(EventType::CompressionCompleted),
        count(EventType::CompressionFailed),
    );
    if changed > completed || (changed == 1 && unchanged == 1) {
        return Err(format!(
            "{completed} completed, and {changed} compressed, {unchanged} not"
        ));
    }
    Ok(())
}
