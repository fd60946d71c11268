//! Runs that one process adds to the store and another process executes.

use std::sync::Arc;

use futures::executor::block_on;
use pirn::store::{MemoryStore, RunStatus, Store};
use pirn::{Engine, ResumeError, ThreadStatus};
use serde_json::json;

use crate::durable::crashes::compare;
use crate::durable::faults::external_effects::{Known, Outside, RUN};
use crate::durable::faults::failing_store::{Crash, Failing};
use crate::durable::small_workflows;
use crate::durable::workflows;

fn all() -> Vec<String> {
    let small = small_workflows::all().into_iter().map(|(_, bundle)| bundle);
    workflows::all().into_iter().chain(small).collect()
}

fn has_doubts(known: &Known) -> bool {
    known.events.values().any(|event| event["type"] == "EFFECT_IN_DOUBT")
}

#[test]
fn a_run_executed_by_another_process_gives_an_equal_result_without_doubts() {
    for (number, bundle) in all().into_iter().enumerate() {
        let here = Outside::default();
        assert!(here.play(&bundle, &MemoryStore::new()));
        let store = MemoryStore::new();
        let elsewhere = Outside::default();
        elsewhere.put(&bundle, &store).expect("is put");
        assert_eq!(
            *elsewhere.known(),
            Known::default(),
            "{number}: nothing is done by whoever puts it"
        );
        assert!(elsewhere.play(&bundle, &store), "{number}");
        let (here, elsewhere) = (here.known(), elsewhere.known());
        compare(&bundle, &Known::default(), &elsewhere, &here, &format!("{number}"));
        assert!(!has_doubts(&elsewhere), "{number}: {bundle}");
        // All attempts of a node use one idempotency key.
        let again = elsewhere
            .asked
            .iter()
            .find(|(key, times)| **times > here.asked.get(*key).copied().unwrap_or(1));
        assert_eq!(again, None, "{number}: {:?}", elsewhere.asked);
    }
}

#[test]
fn calls_of_a_run_put_into_the_store_are_in_doubt_after_a_crash_of_its_first_owner() {
    let mut doubts = 0;
    for bundle in all() {
        let whole = Outside::default();
        assert!(whole.play(&bundle, &MemoryStore::new()));
        for at in 0..3 {
            let store = MemoryStore::new();
            let killed = Outside::default();
            killed.put(&bundle, &store).expect("is put");
            killed.play(&bundle, &Failing::new(store.clone(), Crash::Before(at)));
            let before = killed.known().clone();
            let again = Outside::of(before.clone());
            assert!(again.play(&bundle, &store), "{at}");
            compare(
                &bundle,
                &before,
                &again.known(),
                &whole.known(),
                &format!("before {at}"),
            );
            doubts += u32::from(has_doubts(&again.known()));
        }
    }
    assert!(doubts > 10, "only {doubts}");
}

const SHORT: &str = r#"{"id": "short", "edges": [{"from": "start", "to": "end"}],
    "nodes": [{"id": "start", "type": "START"}, {"id": "end", "type": "END", "config": {"output": "input"}}]}"#;

fn engine(store: &MemoryStore) -> Engine {
    let engine = Engine::builder().virtual_time(None).store(store.clone());
    engine.workflows(SHORT).build().expect("builds")
}

#[test]
fn a_run_that_cannot_be_put_into_the_store_is_refused_with_its_reason() {
    let store = MemoryStore::new();
    let engine = engine(&store);
    let put = |workflow: &str| block_on(engine.run(workflow).run_id(RUN).enqueue());
    let code = |put: Result<Arc<str>, ResumeError>| put.expect_err("is refused").code();
    assert_eq!(code(put("none")), "WORKFLOW_NOT_FOUND");
    assert!(block_on(store.run(RUN)).expect("is read").is_none());
    assert!(put("short").is_ok());
    assert_eq!(code(put("short")), "RUN_ID_TAKEN");
    let storeless = Engine::builder().workflows(SHORT).build().expect("builds");
    assert_eq!(code(block_on(storeless.run("short").enqueue())), "NO_STORE");
    let status = block_on(store.run(RUN)).expect("is read").map(|run| run.status);
    assert_eq!(status, Some(RunStatus::Unfinished));
}

#[test]
fn a_run_put_into_the_store_precedes_later_runs_of_its_session() {
    let store = MemoryStore::new();
    let engine = engine(&store);
    let of_session = |input: &str| engine.run("short").input(input).session("s");
    let first = block_on(of_session("first").enqueue()).expect("is put");
    let second = of_session("second").start().expect("starts").outcome_blocking();
    let code = second.error.as_ref().map(|error| error.code.as_str());
    assert_eq!(code, Some("SESSION_BUSY"), "it is behind one that nobody carries");
    let carried = block_on(engine.resume(&*first).start())
        .expect("goes on")
        .outcome_blocking();
    assert_eq!(
        (carried.status, &carried.output),
        (ThreadStatus::Completed, &json!("first"))
    );
    let third = of_session("third").start().expect("starts").outcome_blocking();
    assert_eq!(third.status, ThreadStatus::Completed, "{:?}", third.error);
}
