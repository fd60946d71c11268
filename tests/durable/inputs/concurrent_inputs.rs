//! Inputs to a run while other processes take it over, send inputs to it or release it.

use futures::executor::block_on;
use pirn::store::{MemoryStore, StoreError};
use pirn::{CommandOutcome, Engine, ResumeError, RunCommand, SubscriptionItem, ThreadStatus};
use pirn_tests::world::{line, node};
use serde_json::{Map, json};

use crate::durable::faults::failing_store::{Crash, Failing};

fn engine(store: &Failing<MemoryStore>) -> Engine {
    let waits = line("waits", &[node("w", "WAIT", json!({"event": "go"}))]);
    let engine = Engine::builder().arbiters(1).store(store.clone());
    engine.workflows(waits.to_string()).build().expect("valid")
}

fn go() -> RunCommand {
    RunCommand::Emit {
        name: "go".to_owned(),
        data: Map::new(),
    }
}

#[test]
fn an_input_to_a_constantly_changed_run_fails_after_a_bounded_number_of_attempts() {
    let store = Failing::new(MemoryStore::new(), Crash::Never);
    let engine = engine(&store);
    let id = block_on(engine.run("waits").enqueue()).expect("begun");
    store.conflict();
    let before = store.commits();
    let told = block_on(engine.send_command(&id, &go()));
    assert!(
        matches!(told, Err(ResumeError::Store(StoreError::Moved { .. }))),
        "{told:?}"
    );
    assert_eq!(store.commits() - before, 17);
}

#[test]
fn a_run_resumed_during_its_release_receives_its_event_and_numbers_events_once() {
    let store = Failing::new(MemoryStore::new(), Crash::Never);
    let engine = engine(&store);
    for _ in 0..50 {
        let run = engine.start("waits", json!(null)).expect("starts");
        block_on(run.wait_durable()).expect("kept");
        let id = run.run_id().to_owned();
        run.release();
        let (resumed, events) = loop {
            let mut resume = engine.resume(&id);
            let events = resume.events_after(0, &[], 64);
            match block_on(resume.start()) {
                Ok(run) => break (run, events),
                Err(ResumeError::UnderWay { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        };
        assert_eq!(
            block_on(engine.send_command(&id, &go())).expect("told"),
            CommandOutcome::UnderWay
        );
        assert_eq!(resumed.outcome_blocking().status, ThreadStatus::Completed);
        resumed.wait_all_ended_blocking();
        let sequences: Vec<u64> = futures::executor::block_on_stream(events)
            .map(|heard| match heard {
                SubscriptionItem::Event(event) => event.sequence,
                SubscriptionItem::Lagged(missed) => panic!("{missed} were missed"),
            })
            .collect();
        let expected: Vec<u64> = (1..=sequences.len() as u64).collect();
        assert!(sequences.len() > 3 && sequences == expected, "{sequences:?}");
    }
}
