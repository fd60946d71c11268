//! A thread that waits for a run that it executes gets an error instead of a deadlock.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use pirn::{BlockingEvents, Engine, EngineBuilder, RunErrorCode, RunHandle, ShutdownReport, ThreadStatus, WeakEngine};
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

#[test]
fn an_inline_function_that_reads_the_events_of_its_run_gets_none_instead_of_a_deadlock() {
    for builder in [Engine::builder().arbiters(1), Engine::builder().virtual_time(Some(1))] {
        let (give, given) = crossbeam_channel::bounded::<BlockingEvents>(1);
        let builder = builder.function("read", move |_| {
            let events = given.recv().map_err(|error| error.to_string())?;
            Ok(json!(events.count()))
        });
        let reads = line("reads", &[node("n", "CODE", json!({"function": "read"}))]);
        let engine = builder.workflows(reads.to_string()).build().expect("valid");
        let mut prepared = engine.run("reads");
        give.send(prepared.blocking_events(&[], 64)).expect("it is called");
        let report = prepared.start().expect("admitted").outcome_blocking();
        assert_eq!(report.status, ThreadStatus::Completed, "{:?}", report.error);
        engine.shutdown_blocking(Duration::from_secs(5));
    }
}

/// Starts a run of a virtual engine with a function that receives the engine.
fn in_a_function(call: impl Fn(&Engine) -> Value + Send + Sync + 'static) -> (Engine, RunHandle) {
    let engine: Arc<OnceLock<WeakEngine>> = Arc::default();
    let own = Arc::clone(&engine);
    let builder = Engine::builder().virtual_time(Some(1)).function("call", move |_| {
        let engine = own
            .get()
            .and_then(WeakEngine::upgrade)
            .ok_or("the engine has stopped")?;
        Ok(call(&engine))
    });
    let calls = line("calls", &[node("n", "CODE", json!({"function": "call"}))]);
    let built = builder.workflows(calls.to_string()).build().expect("valid");
    engine.set(built.downgrade()).expect("set once");
    let run = built.run("calls").run_id("own").start().expect("admitted");
    (built, run)
}

#[test]
fn waiting_for_the_virtual_clock_in_a_function_returns_at_once_and_cancels_no_run() {
    let (engine, run) = in_a_function(|engine| {
        engine.wait_idle();
        let own = engine.find("own").expect("it is executed");
        engine.cancel_if_deadlocked(&own);
        json!("returned")
    });
    let report = run.outcome_blocking();
    assert_eq!(
        (report.status, &report.output),
        (ThreadStatus::Completed, &json!("returned"))
    );
    engine.shutdown_blocking(Duration::from_secs(5));
}

#[test]
fn a_shutdown_in_a_function_of_a_virtual_engine_starts_and_returns() {
    let (engine, run) = in_a_function(|engine| {
        #[allow(clippy::disallowed_methods)] // The virtual clock stands still while the function blocks its thread.
        let started = std::time::Instant::now();
        let report = engine.shutdown_blocking(Duration::from_secs(5));
        json!({"runs": report.runs_left, "is_fast": started.elapsed() < Duration::from_secs(3)})
    });
    let report = run.outcome_blocking();
    assert_eq!(report.output, json!({"runs": 1, "is_fast": true}), "{:?}", report.error);
    assert_eq!(
        engine.shutdown_blocking(Duration::from_secs(5)),
        ShutdownReport::default()
    );
}

#[test]
fn a_function_of_a_virtual_engine_executes_runs_of_another_virtual_engine() {
    let other = |id: &str| {
        let naps = line(id, &[node("n", "WAIT", json!({"seconds": 60}))]);
        let builder = Engine::builder().virtual_time(Some(2)).workflows(naps.to_string());
        builder.build().expect("valid")
    };
    let earlier = other("naps");
    let again = earlier.clone();
    let (engine, run) = in_a_function(move |_| {
        let of_earlier = again.start("naps", Value::Null).expect("admitted").outcome_blocking();
        let of_new = other("naps")
            .start("naps", Value::Null)
            .expect("admitted")
            .outcome_blocking();
        json!([of_earlier.status, of_new.status])
    });
    let report = run.outcome_blocking();
    let both = json!([ThreadStatus::Completed, ThreadStatus::Completed]);
    assert_eq!(report.output, both, "{:?}", report.error);
    for engine in [engine, earlier] {
        engine.shutdown_blocking(Duration::from_secs(5));
    }
}
