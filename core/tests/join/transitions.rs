//! Every (phase, input) row of the machine's table, and that no row is missing.

use std::collections::BTreeSet;

use pirn_core::join::PathEnd::{Completed, Failed};
use pirn_core::join::Phase::{Closed, Decided, Idle, Waiting};
use pirn_core::join::{ForkJoinMachine, Input, Phase, Rejected};
use pirn_definition::definition::JoinStrategy::AllCompleted;

use super::fork::{ended, fork, step};

/// Two paths, a timeout, in the given phase.
fn machine_in(phase: Phase) -> ForkJoinMachine {
    let mut fork = fork(2, AllCompleted);
    fork.join.timeout_ms = Some(1000);
    let mut machine = ForkJoinMachine::new(&fork, None);
    let inputs = [Input::Start, ended(0, Failed), ended(1, Completed)];
    let way = match phase {
        Idle => 0,
        Waiting => 1,
        Decided => 2,
        Closed => 3,
    };
    for input in inputs.into_iter().take(way) {
        step(&mut machine, input);
    }
    assert_eq!(machine.phase(), phase);
    machine
}

fn kind(input: &Input) -> u8 {
    match input {
        Input::Start => 0,
        Input::Ended { .. } => 1,
        Input::Deadline { .. } => 2,
        Input::Cancel => 3,
    }
}

#[test]
fn every_input_in_every_phase_matches_the_transition_table() {
    let one = || ended(1, Completed);
    let deadline = || Input::Deadline { generation: 1 };
    let not_running = |path| Err(Rejected::NotRunning { path });
    let no_timer = Err(Rejected::NoSuchTimer { generation: 1 });
    let table = [
        (Idle, Input::Start, Ok(Waiting)),
        (Idle, one(), not_running(1)),
        (Idle, deadline(), no_timer),
        (Idle, Input::Cancel, Ok(Closed)),
        (Waiting, Input::Start, Err(Rejected::AlreadyStarted)),
        (Waiting, one(), Ok(Waiting)),
        (Waiting, deadline(), Ok(Decided)),
        (Waiting, Input::Cancel, Ok(Decided)),
        (Decided, Input::Start, Ok(Decided)),
        (Decided, one(), Ok(Closed)),
        (Decided, deadline(), Ok(Decided)),
        (Decided, Input::Cancel, Ok(Decided)),
        (Closed, Input::Start, Ok(Closed)),
        (Closed, one(), Ok(Closed)),
        (Closed, deadline(), Ok(Closed)),
        (Closed, Input::Cancel, Ok(Closed)),
    ];
    let rows: BTreeSet<(Phase, u8)> = table.iter().map(|(phase, input, _)| (*phase, kind(input))).collect();
    assert_eq!(rows.len(), 4 * 4, "a row is missing");
    for (phase, input, expected) in table {
        let mut machine = machine_in(phase);
        let before = machine.clone();
        let mut out = Vec::new();
        let answer = machine.step(input, &mut out);
        assert_eq!(answer.map(|()| machine.phase()), expected, "{phase:?} {input:?}");
        if answer.is_err() {
            assert_eq!(
                (&machine, out.len()),
                (&before, 0),
                "{phase:?} {input:?} is refused, so nothing changes"
            );
        }
    }
}

#[test]
fn a_refused_input_names_its_path_or_timer() {
    let mut machine = machine_in(Waiting);
    let mut refuse = |input| machine.step(input, &mut Vec::new());
    assert_eq!(refuse(ended(2, Completed)), Err(Rejected::UnknownPath { path: 2 }));
    let stale = Input::Deadline { generation: 0 };
    assert_eq!(refuse(stale), Err(Rejected::NoSuchTimer { generation: 0 }));
    assert_eq!(refuse(ended(1, Completed)), Ok(()));
    assert_eq!(refuse(ended(1, Completed)), Err(Rejected::NotRunning { path: 1 }));
}
