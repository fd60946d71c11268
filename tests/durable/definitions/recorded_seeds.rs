//! The seed of `Math.random` is recorded, so an engine with another seed, or without one, continues a run with the same numbers.

use std::sync::Arc;

use futures::executor::block_on;
use pirn::store::MemoryStore;
use pirn::{Engine, RunReport, ThreadStatus};
use serde_json::json;

/// A number, a question and another number.
const WORKFLOW: &str = r#"{"id": "main", "nodes": [
    {"id": "start", "type": "START"}, {"id": "one", "type": "CODE", "config": {"code": "return Math.random()"}},
    {"id": "ask", "type": "USER_INTERACTION", "config": {"question": "Go on?"}},
    {"id": "two", "type": "CODE", "config": {"code": "return [nodes.one.output, Math.random()]"}}, {"id": "end", "type": "END"}],
  "edges": [{"from": "start", "to": "one"}, {"from": "one", "to": "ask"}, {"from": "ask", "to": "two"},
    {"from": "two", "to": "end"}]}"#;

fn engine(store: &MemoryStore, seed: Option<u64>) -> Engine {
    let engine = Engine::builder()
        .virtual_time(None)
        .store(store.clone())
        .workflows(WORKFLOW);
    let engine = seed.into_iter().fold(engine, pirn::EngineBuilder::seed);
    engine.build().expect("builds")
}

/// Resumes a run without an owner and answers its question.
fn finish(engine: &Engine) -> Arc<RunReport> {
    let run = block_on(engine.resume("run-1").start()).expect("resumes");
    engine.wait_idle();
    let asked = block_on(run.interactions());
    block_on(run.answer(&asked[0].id, json!("yes"))).expect("is taken");
    engine.wait_idle();
    run.try_outcome().expect("it ended")
}

#[test]
fn a_run_draws_the_numbers_of_the_seed_that_it_was_started_with() {
    let outputs = [None, Some(9), Some(5)].map(|later| {
        let store = MemoryStore::new();
        let first = engine(&store, Some(5));
        let run = first.run("main").run_id("run-1").start().expect("starts");
        first.wait_idle();
        drop((run, first));
        let report = finish(&engine(&store, later));
        assert_eq!(
            report.status,
            ThreadStatus::Completed,
            "seed {later:?}: {:?}",
            report.error
        );
        report.output.to_string()
    });
    assert_eq!(outputs[0], outputs[2], "resumed without a seed");
    assert_eq!(outputs[1], outputs[2], "resumed with another seed");
}

#[test]
fn a_run_that_another_process_executes_has_the_seed_of_the_process_that_created_it() {
    let outputs = [None, Some(9)].map(|later| {
        let store = MemoryStore::new();
        let first = engine(&store, Some(5));
        block_on(first.run("main").run_id("run-1").enqueue()).expect("is stored");
        drop(first);
        finish(&engine(&store, later)).output.to_string()
    });
    assert_ne!(outputs[0], "null");
    assert_eq!(outputs[0], outputs[1]);
}
