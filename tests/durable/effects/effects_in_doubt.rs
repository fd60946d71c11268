//! Effects in doubt, which started and have no recorded outcome: every policy, the events and the idempotency key.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::executor::block_on;
use futures::future::{self, FutureExt};
use pirn::store::{MemoryStore, RunStatus, Store};
use pirn::{DoubtAnswer, Engine, EngineBuilder, Resolution, RunReport, idempotency_key};
use serde_json::{Value, json};

use crate::durable::faults::failing_store::{Crash, Failing};

/// Returns a workflow that calls its one function under this policy.
fn workflow(policy: &Value) -> String {
    let mut node = json!({"id": "pay", "type": "CODE", "config": {"function": "pay", "input": {"amount": 7}}});
    if !policy.is_null() {
        node["inDoubt"] = policy.clone();
    }
    let nodes = json!([{"id": "start", "type": "START"}, node, {"id": "end", "type": "END"}]);
    let edges = json!([{"from": "start", "to": "pay"}, {"from": "pay", "to": "end"}]);
    json!({"id": "main", "nodes": nodes, "edges": edges}).to_string()
}

#[derive(Clone, Default)]
struct Calls(Arc<Mutex<Vec<Option<String>>>>);

impl Calls {
    fn keys(&self) -> Vec<String> {
        self.0.lock().expect("no panic").iter().flatten().cloned().collect()
    }

    fn engine(&self, policy: &Value, store: impl Store) -> EngineBuilder {
        let calls = self.0.clone();
        Engine::builder()
            .store(store)
            .workflows(workflow(policy))
            .async_function("pay", move |_| {
                calls.lock().expect("no panic").push(idempotency_key());
                future::ready(Ok(json!("paid")))
            })
    }
}

/// Returns the store of a run whose process ended after the function was called and before its outcome was durable.
fn interrupted(policy: &Value, calls: &Calls) -> MemoryStore {
    let kept = MemoryStore::new();
    let engine = calls
        .engine(policy, Failing::new(kept.clone(), Crash::Before(1)))
        .build();
    let run = engine
        .expect("builds")
        .run("main")
        .run_id("run-1")
        .start()
        .expect("starts");
    let error = run.outcome_blocking().error.clone().expect("the store failed");
    assert_eq!(error.code.as_str(), "STORE_ERROR");
    assert_eq!(calls.keys(), ["run-1.0.1"]);
    let status = block_on(kept.run("run-1")).expect("is read").expect("is there").status;
    assert_eq!(status, RunStatus::Unfinished, "nothing was made up");
    kept
}

fn resumed(engine: &Engine) -> Arc<RunReport> {
    let report = block_on(engine.resume("run-1").start())
        .expect("goes on")
        .outcome_blocking();
    engine.shutdown_blocking(Duration::from_secs(5));
    report
}

#[test]
fn an_effect_in_doubt_is_repeated_and_reported_under_a_repeating_policy() {
    for policy in [json!(null), json!("retry"), json!("keyed")] {
        let calls = Calls::default();
        let kept = interrupted(&policy, &calls);
        let report = resumed(&calls.engine(&policy, kept).build().expect("builds"));
        assert_eq!(report.output, "paid");
        assert_eq!(calls.keys(), ["run-1.0.1", "run-1.0.1"], "the same key");
        assert_eq!(report.repeated[0].effect_id, "run-1.0.1");
        let doubt = json!(report.in_doubt[0]);
        let wanted = if policy.is_null() { json!("keyed") } else { policy };
        let expected = json!({"effectId": "run-1.0.1", "nodeId": "pay", "kind": "function", "policy": wanted, "resolution": "repeated"});
        assert_eq!(doubt, expected);
    }
}

#[test]
fn an_effect_in_doubt_fails_under_the_fail_policy() {
    let (calls, policy) = (Calls::default(), json!("fail"));
    let kept = interrupted(&policy, &calls);
    let report = resumed(&calls.engine(&policy, kept).build().expect("builds"));
    let error = report.error.as_ref().expect("failed");
    assert!(json!(error).to_string().contains("EFFECT_IN_DOUBT"), "{error}");
    assert_eq!(calls.keys().len(), 1);
    assert_eq!(
        (report.in_doubt[0].resolution, report.repeated.len()),
        (Resolution::Failed, 0)
    );
}

#[test]
fn a_reconcile_function_decides_whether_an_effect_was_performed() {
    for (said, output, times) in [
        (json!({"done": true, "result": "was paid"}), "was paid", 1),
        (json!({"done": false}), "paid", 2),
    ] {
        let (calls, policy) = (Calls::default(), json!({"reconcile": "look"}));
        let look = move |asked: Value| {
            assert_eq!(
                asked,
                json!({"key": "run-1.0.1", "nodeId": "pay", "kind": "function", "asked": {"amount": 7}})
            );
            future::ready(Ok(said.clone()))
        };
        let kept = interrupted(&policy, &calls);
        let engine = calls.engine(&policy, kept).async_function("look", look).build();
        let report = resumed(&engine.expect("builds"));
        assert_eq!((report.output.as_str(), calls.keys().len()), (Some(output), times));
        assert_eq!(report.in_doubt.len(), 1);
    }
}

#[test]
fn a_failing_reconcile_function_does_not_change_the_run() {
    let (calls, policy) = (Calls::default(), json!({"reconcile": "look"}));
    let kept = interrupted(&policy, &calls);
    let engine = calls
        .engine(&policy, kept.clone())
        .async_function("look", |_| future::ready(Err("no line".to_owned())));
    let engine = engine.build().expect("builds");
    let error = block_on(engine.resume("run-1").start()).expect_err("not known");
    assert_eq!(error.code(), "EFFECT_IN_DOUBT");
    assert!(error.to_string().contains("no line"), "{error}");
    assert_eq!(
        block_on(kept.run("run-1")).expect("is read").expect("is there").status,
        RunStatus::Unfinished
    );
}

#[test]
fn a_person_can_decide_about_an_effect_in_doubt() {
    let policy = json!("ask");
    for (answer, output, times) in [
        (DoubtAnswer::Done(json!("was paid")), json!("was paid"), 1),
        (DoubtAnswer::Repeat, json!("paid"), 2),
        (DoubtAnswer::Fail, Value::Null, 1),
    ] {
        let calls = Calls::default();
        let kept = interrupted(&policy, &calls);
        let nobody = calls.engine(&policy, kept.clone()).build().expect("builds");
        let error = block_on(nobody.resume("run-1").start()).expect_err("nobody is there to be asked");
        assert_eq!(error.code(), "EFFECT_IN_DOUBT");
        drop(nobody);
        let asked = calls.engine(&policy, kept).ask_in_doubt(move |question| {
            assert_eq!((&*question.node_id, &*question.effect_id), ("pay", "run-1.0.1"));
            future::ready(answer.clone()).boxed()
        });
        let report = resumed(&asked.build().expect("builds"));
        assert_eq!((&report.output, calls.keys().len()), (&output, times));
    }
}

#[test]
fn a_durable_run_resumes_in_the_next_process_after_a_shutdown() {
    let kept = MemoryStore::new();
    let nap = json!({"id": "main",
        "nodes": [{"id": "s", "type": "START"}, {"id": "w", "type": "WAIT", "config": {"seconds": 3600}}, {"id": "e", "type": "END"}],
        "edges": [{"from": "s", "to": "w"}, {"from": "w", "to": "e"}]});
    let engine = |store: MemoryStore| {
        Engine::builder()
            .virtual_time(None)
            .store(store)
            .workflows(nap.to_string())
    };
    // On the real clock the hour has not passed.
    let real = Engine::builder()
        .store(kept.clone())
        .workflows(nap.to_string())
        .build()
        .expect("builds");
    let mut run = real.run("main").run_id("run-1");
    let mut events = run.blocking_events(&[pirn::EventType::NodeStarted], 100);
    let run = run.start().expect("starts");
    assert!(events.next().is_some(), "it has begun: what is told is durable");
    assert_eq!(real.shutdown_blocking(Duration::ZERO).runs_left, 0);
    assert_eq!(
        run.outcome_blocking().error.as_ref().map(|error| error.code.as_str()),
        Some("CANCELLED")
    );
    let engine = engine(kept.clone()).build().expect("builds");
    let recovered = block_on(engine.recover()).expect("is read");
    let [(run_id, Ok(run))] = &recovered[..] else {
        panic!("{recovered:?}")
    };
    assert_eq!(
        (run_id.as_str(), run.outcome_blocking().status.as_str()),
        ("run-1", "COMPLETED")
    );
    engine.shutdown_blocking(Duration::from_secs(5));
    assert_eq!(
        block_on(kept.run("run-1")).expect("is read").expect("is there").status,
        RunStatus::Completed
    );
}
