//! Runs of generated workflows and of the shipped examples, rebuilt from their recorded inputs. Every scenario of
//! `world::run_in` is rebuilt too.

use std::sync::Arc;
use std::time::Duration;

use pirn::{Engine, EngineBuilder, Journal, Message, Role, RunBuilder, RunReport, ThreadStatus};
use pirn_tests::rebuilt::Recorder;
use pirn_tests::world::{forked, line, node, run_in, say, wait};
use proptest::prelude::*;
use serde_json::json;

use super::examples;
use super::generated::generated;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn generated_runs_are_rebuilt_from_their_inputs(generated in generated(), seed in 0..1_000_u64) {
        let said = vec![Message::new(Role::System, "You are kind."), Message::new(Role::User, "hello")];
        run_in(Engine::builder().virtual_time(Some(seed)), &generated.bundle(), json!({}), said);
    }
}

#[test]
fn the_shipped_examples_are_rebuilt_from_their_inputs() {
    for example in examples::all() {
        println!("{}", example.name);
        rebuilds(example.builder, example.run);
    }
}

#[test]
fn the_support_desk_is_rebuilt_with_its_tools_and_its_compression() {
    let desk = examples::support_desk();
    let report = rebuilds(desk.builder, desk.run);
    assert_eq!(report.status, ThreadStatus::Completed, "{:?}", report.error);
    assert_eq!(report.firings.len(), 1, "it compressed once");
}

/// The second node panics, once in a branch and once in the main thread.
#[test]
fn a_run_that_panicked_is_rebuilt_with_its_panics() {
    let panics = |id: &str| node(id, "CODE", json!({"function": "panics"}));
    let branches = [vec![say("s", "a"), panics("bad")], vec![say("t", "b"), wait("w", 5)]];
    let main = forked(&branches, false, &json!({"joinStrategy": "ANY_COMPLETED"}));
    let alone = line("alone", &[say("s", "kept"), panics("bad")]);
    for (workflow, status) in [(main, ThreadStatus::Completed), (alone, ThreadStatus::Failed)] {
        let id = workflow["id"].as_str().expect("an id").to_owned();
        let builder = Engine::builder()
            .virtual_time(Some(3))
            .function("panics", |_| panic!("on purpose"))
            .workflows(workflow.to_string());
        assert_eq!(rebuilds(builder, |engine| engine.run(&id)).status, status);
    }
}

/// Executes a run and rebuilds it from its record.
fn rebuilds(builder: EngineBuilder, run: impl FnOnce(&Engine) -> RunBuilder) -> Arc<RunReport> {
    let recorder = Arc::new(Recorder::default());
    let journal = Arc::clone(&recorder) as Arc<dyn Journal>;
    let engine = builder.journal(journal).build().expect("the workflow is valid");
    let handle = run(&engine).start().expect("it is admitted");
    let report = handle.outcome_blocking();
    handle.wait_all_ended_blocking();
    engine.shutdown_blocking(Duration::from_secs(5));
    assert!(recorder.count() > 0);
    recorder.check(&engine);
    report
}
