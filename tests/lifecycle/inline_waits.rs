//! A thread that waits for a run that it executes gets an error instead of a deadlock.

use std::time::Duration;

use pirn::{Engine, EngineBuilder, RunErrorCode, RunHandle, ThreadStatus};
use pirn_tests::world::{line, node};
use serde_json::{Value, json};

/// Runs a function that waits for its run; returns the result of that wait.
fn waits_for_itself(builder: EngineBuilder) -> Value {
    let (give, given) = crossbeam_channel::bounded::<RunHandle>(1);
    let builder = builder.function("wait", move |_| {
        let run = given.recv().map_err(|error| error.to_string())?;
        run.wait_all_ended_blocking();
        let report = run.outcome_blocking();
        let error = report.error.as_ref().map(|error| error.code);
        Ok(json!({"status": report.status, "code": error}))
    });
    let waits = line("waits", &[node("n", "CODE", json!({"function": "wait"}))]);
    let engine = builder.workflows(waits.to_string()).build().expect("valid");
    let run = engine.start("waits", Value::Null).expect("admitted");
    give.send(run.clone()).expect("it is called");
    let report = run.outcome_blocking();
    assert_eq!(report.status, ThreadStatus::Completed, "{:?}", report.error);
    engine.shutdown_blocking(Duration::from_secs(5));
    report.output.clone()
}

#[test]
fn an_inline_function_that_waits_for_its_run_gets_an_error() {
    let told = json!({"status": ThreadStatus::Running, "code": RunErrorCode::Overloaded});
    assert_eq!(waits_for_itself(Engine::builder().arbiters(1)), told);
    assert_eq!(waits_for_itself(Engine::builder().virtual_time(Some(1))), told);
}
