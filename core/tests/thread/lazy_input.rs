//! The input of a function is built when the function reads it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use pirn_core::thread::{
    Effect, Environment, Input, Joined, Outcome, Output, Outputs, ThreadKind, ThreadMachine, ThreadSeed, Variables,
};
use pirn_definition::definition::{SourceFile, load};
use pirn_definition::graph::{CompileContext, compile_loaded};
use pirn_events::event::EventMask;
use serde_json::{Value, json};

/// A fork, with a function after its join.
fn machine() -> ThreadMachine {
    let workflow = json!({"id": "main", "nodes": [
        {"id": "start", "type": "START"},
        {"id": "fork", "type": "FORK", "config": {"forkPathIds": ["a"], "childNodeIds": ["a"]}},
        {"id": "a", "type": "WAIT", "config": {"seconds": 1}},
        {"id": "join", "type": "JOIN", "config": {"forkPathIds": ["a"], "joinStrategy": "ALL_COMPLETED"}},
        {"id": "after", "type": "CODE", "config": {"function": "f", "input": "output"}},
        {"id": "end", "type": "END"},
    ], "edges": [
        {"from": "start", "to": "fork"}, {"from": "fork", "to": "a"}, {"from": "a", "to": "join"},
        {"from": "join", "to": "after"}, {"from": "after", "to": "end"},
    ]});
    let loaded = load(&SourceFile::new("main.json", workflow.to_string()));
    let compiled = compile_loaded(&loaded, &CompileContext::default());
    assert!(compiled.faults.is_empty(), "{:#?}", compiled.faults);
    let graph = Arc::clone(&compiled.graphs[0]);
    let seed = ThreadSeed {
        thread_id: "r.0".into(),
        kind: ThreadKind::Main,
        path_id: None,
        first: graph.start,
        stop_at: None,
        input: Arc::new(Value::Null),
        variables: Variables::default(),
        outputs: Outputs::default(),
        last: Output::default(),
        agent: None,
        trigger_depth: 0,
    };
    ThreadMachine::new(graph, seed)
}

fn step(machine: &mut ThreadMachine, input: Input) -> Vec<Effect> {
    let environment = Environment {
        random: 0,
        interest: EventMask::NONE,
        holding: EventMask::NONE,
        has_globals: false,
        user_messages: None,
        agents_left: None,
        concurrency: None,
    };
    let mut out = Vec::new();
    machine.step(environment, input, &mut out);
    out
}

#[test]
fn a_function_after_a_join_is_requested_before_the_join_output_is_built() {
    let mut machine = machine();
    let effects = step(&mut machine, Input::Start);
    let Some(Effect::Fork { id, .. }) = effects.last() else {
        panic!("{effects:?}");
    };
    let made = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&made);
    let output = Output::later(1, move || json!({"made": counted.fetch_add(1, Ordering::Relaxed)}));
    let joined = Outcome::Joined(Box::new(Joined {
        output,
        variables: Vec::new(),
        raises_events: true,
        folds: Vec::new(),
    }));
    let effects = step(
        &mut machine,
        Input::Answer {
            effect: *id,
            outcome: joined,
        },
    );
    let Some(Effect::Function { input, .. }) = effects.last() else {
        panic!("no function is asked for");
    };
    assert_eq!(made.load(Ordering::Relaxed), 0);
    assert_eq!(**input.value(), json!({"made": 0}));
    assert_eq!(made.load(Ordering::Relaxed), 1);
}
