//! Forks for tests of the join machine.

use std::sync::Arc;

use pirn_core::join::{Effect, ForkJoinMachine, Input, PathEnd};
use pirn_definition::definition::{ForkStrategy, JoinStrategy, MergeVariables, OnDecided, SourceFile, load};
use pirn_definition::graph::{CompileContext, Fork, ForkPath, Graph, JoinRule, compile_loaded};
use serde_json::{Value, json};

/// A parallel fork of paths `p0`, `p1`, ...; the main path defaults to `p0`.
pub(crate) fn fork(paths: usize, strategy: JoinStrategy) -> Fork {
    let path = |ix: usize| ForkPath {
        id: Arc::from(format!("p{ix}")),
        global_id: Arc::from(format!("w/f/p{ix}")),
        child: 0,
    };
    Fork {
        fork_node: 0,
        join_node: 0,
        paths: (0..paths).map(path).collect(),
        strategy: ForkStrategy::Parallel,
        join: JoinRule {
            strategy,
            threshold: 1,
            timeout_ms: None,
            main_path: 0,
            main_path_explicit: false,
            on_decided: OnDecided::Cancel,
            merge_variables: MergeVariables::None,
        },
    }
}

/// Compiles a graph with one fork, which has the paths `p0`, `p1`, ...
pub(crate) fn graph_of(paths: usize) -> Arc<Graph> {
    let ids: Vec<String> = (0..paths).map(|ix| format!("p{ix}")).collect();
    let children: Vec<String> = (0..paths).map(|ix| format!("b{ix}")).collect();
    let mut nodes = vec![
        json!({"id": "start", "type": "START"}),
        json!({"id": "fork", "type": "FORK",
            "config": {"forkPathIds": ids, "childNodeIds": children, "forkStrategy": "parallel"}}),
        json!({"id": "join", "type": "JOIN", "config": {"forkPathIds": ids, "joinStrategy": "ANY_COMPLETED"}}),
        json!({"id": "end", "type": "END"}),
    ];
    let mut edges = vec![
        json!({"from": "start", "to": "fork"}),
        json!({"from": "join", "to": "end"}),
    ];
    for child in &children {
        nodes.push(json!({"id": child, "type": "WAIT", "config": {"seconds": 1}}));
        edges.push(json!({"from": "fork", "to": child}));
        edges.push(json!({"from": child, "to": "join"}));
    }
    let workflow: Value = json!({"id": "w", "nodes": nodes, "edges": edges});
    let loaded = load(&SourceFile::new("fork.json", workflow.to_string()));
    let compiled = compile_loaded(&loaded, &CompileContext::default());
    assert!(compiled.faults.is_empty(), "{:#?}", compiled.faults);
    Arc::clone(&compiled.graphs[0])
}

/// Steps the machine with an input that must be accepted, and returns the effects.
#[track_caller]
pub(crate) fn step(machine: &mut ForkJoinMachine, input: Input) -> Vec<Effect> {
    let mut out = Vec::new();
    let answer = machine.step(input, &mut out);
    assert_eq!(answer, Ok(()), "refused by {machine:?}");
    out
}

/// Creates a machine with running paths and a waiting parent.
#[track_caller]
pub(crate) fn waiting(fork: &Fork) -> ForkJoinMachine {
    let mut machine = ForkJoinMachine::new(fork, None);
    step(&mut machine, Input::Start);
    machine
}

/// Returns the input for the end of a path.
pub(crate) fn ended(path: usize, end: PathEnd) -> Input {
    Input::Ended { path, end }
}
