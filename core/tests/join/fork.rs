//! Forks to try the machine on.

use std::sync::Arc;

use pirn_core::definition::{ForkStrategy, JoinStrategy, MergeVariables, OnDecided};
use pirn_core::graph::{Fork, ForkPath, JoinRule};
use pirn_core::join::{Effect, ForkJoinMachine, Input, PathEnd};

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

/// Feeds an input that must be accepted, and gives its effects.
#[track_caller]
pub(crate) fn step(machine: &mut ForkJoinMachine, input: Input) -> Vec<Effect> {
    let mut out = Vec::new();
    let answer = machine.step(input, &mut out);
    assert_eq!(answer, Ok(()), "refused by {machine:?}");
    out
}

/// A machine whose paths run and whose parent waits.
#[track_caller]
pub(crate) fn waiting(fork: &Fork) -> ForkJoinMachine {
    let mut machine = ForkJoinMachine::new(fork, None);
    step(&mut machine, Input::Start);
    step(&mut machine, Input::Waiting);
    machine
}

/// One path's end.
pub(crate) fn ended(path: usize, end: PathEnd) -> Input {
    Input::Ended { path, end }
}
