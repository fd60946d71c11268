//! Generated workflows: a fork with a few nodes per branch, and triggers on their events.

use pirn_tests::world::{code, forked, line, node, say, wait};
use proptest::prelude::*;
use serde_json::{Value, json};

/// Work that a generated node does.
#[derive(Clone, Debug)]
enum Does {
    Script(u8),
    Throw,
    Assign(u8),
    Global(u8),
    Say(u8),
    Ask,
    Wait(u8),
    Call(&'static str),
    Compress,
}

fn does() -> impl Strategy<Value = Does> {
    prop_oneof![
        3 => (0..9_u8).prop_map(Does::Script),
        1 => Just(Does::Throw),
        2 => (0..3_u8).prop_map(Does::Assign),
        2 => (0..3_u8).prop_map(Does::Global),
        2 => (0..9_u8).prop_map(Does::Say),
        2 => Just(Does::Ask),
        2 => (0..4_u8).prop_map(Does::Wait),
        2 => prop::sample::select(vec!["share", "fork", "none"]).prop_map(Does::Call),
        1 => Just(Does::Compress),
    ]
}

impl Does {
    fn node(&self, id: &str) -> Value {
        let variable = |n: &u8, scope: &str| {
            let config =
                json!({"variableName": format!("{scope}{n}"), "expression": format!("'{id}'"), "scope": scope});
            node(id, "VARIABLE", config)
        };
        match self {
            Self::Script(n) => code(id, &format!("return {n}")),
            Self::Throw => code(id, "throw new Error('on purpose')"),
            Self::Assign(n) => variable(n, "thread"),
            Self::Global(n) => variable(n, "global"),
            Self::Say(n) => say(id, &format!("text {n}")),
            Self::Ask => node(id, "LLM", json!({"profileId": "main", "prompt": "question"})),
            Self::Wait(n) => wait(id, u32::from(*n) * 5),
            Self::Call(mode) => node(id, "SUBGRAPH", json!({"subgraphId": "called", "conversation": mode})),
            Self::Compress => node(
                id,
                "CONTEXT_PROCESSOR",
                json!({"operation": "compress", "strategy": "keep_recent", "parameters": {"count": 2}}),
            ),
        }
    }
}

/// A fork with up to a few branches, and triggers on their events.
#[derive(Clone, Debug)]
pub(crate) struct Generated {
    branches: Vec<Vec<Does>>,
    strategy: &'static str,
    serial: bool,
    detach: bool,
    merge: &'static str,
    timeout: Option<u8>,
    waits: bool,
    triggers: bool,
}

pub(crate) fn generated() -> impl Strategy<Value = Generated> {
    let strategies = vec!["ALL_COMPLETED", "ANY_COMPLETED", "ALL_FAILED", "ANY_FAILED"];
    (
        prop::collection::vec(prop::collection::vec(does(), 1..4), 1..4),
        prop::sample::select(strategies),
        prop::sample::select(vec!["none", "main", "all"]),
        prop::option::of(0..4_u8),
        (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>()),
    )
        .prop_map(
            |(branches, strategy, merge, timeout, (serial, detach, waits, triggers))| Generated {
                branches,
                strategy,
                serial,
                detach,
                merge,
                timeout,
                waits,
                triggers,
            },
        )
}

impl Generated {
    pub(crate) fn bundle(&self) -> Value {
        let branch = |(no, does): (usize, &Vec<Does>)| -> Vec<Value> {
            let nodes = does.iter().enumerate();
            nodes
                .map(|(place, does)| does.node(&format!("n{no}x{place}")))
                .collect()
        };
        let branches: Vec<Vec<Value>> = self.branches.iter().enumerate().map(branch).collect();
        let mut join = json!({
            "joinStrategy": self.strategy,
            "mergeVariables": self.merge,
            "onDecided": if self.detach { "detach" } else { "cancel" },
        });
        if let Some(timeout) = self.timeout {
            join["timeout"] = json!(f64::from(timeout) * 0.004);
        }
        let mut main = forked(&branches, self.serial, &join);
        let trigger = |id: &str, event: &str, condition: &str| {
            json!({"id": id, "type": "EVENT", "condition": {"eventType": event, "expression": condition},
                "action": {"type": "EXECUTE_TRIGGERED_SUBGRAPH", "parameters": {
                    "triggeredWorkflowId": "watcher", "waitForCompletion": self.waits}}})
        };
        if self.triggers {
            main["triggers"] = json!([
                trigger("said", "MESSAGE_ADDED", "event.index < 3"),
                trigger(
                    "done",
                    "NODE_COMPLETED",
                    "event.nodeId == 'n0x0' || event.nodeId == 'n1x1'"
                ),
            ]);
        }
        let watcher = json!({"id": "watcher", "nodes": [
                node("begin", "START_FROM_TRIGGER", json!({})),
                node("set", "VARIABLE", json!({"variableName": "thread0", "expression": "'watched'"})),
                wait("rest", 3),
                say("note", "watched"),
                node("back", "CONTINUE_FROM_TRIGGER", json!({
                    "variableCallback": {"includeVariables": ["thread0"]},
                    "conversationHistoryCallback": {"lastN": 1}})),
            ], "edges": [
                {"from": "begin", "to": "set"}, {"from": "set", "to": "rest"},
                {"from": "rest", "to": "note"}, {"from": "note", "to": "back"}]});
        let called = line("called", &[wait("w", 4), say("s", "called")]);
        json!({"workflows": [main, watcher, called], "profiles": [{"id": "main", "provider": "echo"}]})
    }
}
