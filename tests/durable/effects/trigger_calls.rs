//! Functions and notifications that triggers call: recorded before the call starts, and labelled when they are repeated.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::channel::oneshot;
use futures::executor::block_on;
use futures::future::{self, FutureExt, Shared};
use pirn::store::{MemoryStore, RunStatus, Store};
use pirn::{
    DoubtAnswer, DoubtKind, Engine, EngineBuilder, EventType, Resolution, RunReport, SubscriptionItem, ThreadStatus,
    idempotency_key,
};
use serde_json::{Value, json};

use crate::durable::faults::failing_store::{Crash, Failing};

/// The targets of a trigger's call.
const TARGETS: [&str; 3] = ["work", "inline", "notify"];

fn workflow(target: &str, policy: &Value) -> String {
    let action = match target {
        "notify" => json!({"type": "SEND_NOTIFICATION", "parameters": {"message": "{{event.nodeId}} is done"}}),
        function => json!({"type": "CUSTOM", "parameters": {"function": function}}),
    };
    let mut trigger = json!({"id": "tell", "type": "EVENT", "action": action,
        "condition": {"eventType": "NODE_COMPLETED", "expression": "event.nodeId == 'set'"}});
    if !policy.is_null() {
        trigger["inDoubt"] = policy.clone();
    }
    json!({"id": "main", "triggers": [trigger],
        "nodes": [{"id": "start", "type": "START"},
            {"id": "set", "type": "VARIABLE", "config": {"variableName": "n", "expression": "1"}}, {"id": "end", "type": "END"}],
        "edges": [{"from": "start", "to": "set"}, {"from": "set", "to": "end"}]})
    .to_string()
}

#[derive(Clone, Default)]
struct Calls(Arc<Mutex<Vec<String>>>);

impl Calls {
    fn keys(&self) -> Vec<String> {
        self.0.lock().expect("no panic").clone()
    }

    fn made(&self) {
        let key = idempotency_key().expect("a call has a key");
        self.0.lock().expect("no panic").push(key);
    }

    fn engine(&self, (target, policy): (&str, &Value), store: impl Store) -> EngineBuilder {
        let (work, inline, notify) = (self.clone(), self.clone(), self.clone());
        Engine::builder()
            .store(store)
            .workflows(workflow(target, policy))
            .async_function("work", move |_| {
                work.made();
                future::ready(Ok(Value::Null))
            })
            .function("inline", move |_| {
                inline.made();
                Ok(Value::Null)
            })
            .on_notification(move |message, _| {
                assert_eq!(message, "set is done");
                notify.made();
            })
    }
}

/// Returns a store whose process ended after the trigger's call and before the call's result was durable.
fn interrupted(of: (&str, &Value), calls: &Calls) -> MemoryStore {
    for at in 0.. {
        let (kept, tried) = (MemoryStore::new(), Calls::default());
        let failing = Failing::new(kept.clone(), Crash::Before(at));
        let engine = tried.engine(of, failing.clone()).build().expect("builds");
        let run = engine.run("main").run_id("run-1").start().expect("starts");
        run.outcome_blocking();
        run.wait_all_ended_blocking();
        engine.shutdown_blocking(Duration::from_secs(5));
        assert!(
            failing.commits() > at,
            "{of:?}: its call was durable before it was made"
        );
        if tried.keys() == ["run-1.t1"] {
            calls.0.lock().expect("no panic").extend(tried.keys());
            let status = block_on(kept.run("run-1")).expect("is read").expect("is there").status;
            assert_eq!(status, RunStatus::Unfinished);
            return kept;
        }
    }
    unreachable!("there are fewer commits")
}

/// Resumes the run and returns its report and the events after the crash that report the call's result.
fn resumed(engine: &Engine) -> (Arc<RunReport>, Vec<Value>) {
    let mut run = engine.resume("run-1");
    let wanted = [
        EventType::EffectInDoubt,
        EventType::TriggerFailed,
        EventType::Notification,
    ];
    let events = run.blocking_events_after(0, &wanted, 64);
    let run = block_on(run.start()).expect("goes on");
    let report = run.outcome_blocking();
    run.wait_all_ended_blocking();
    engine.shutdown_blocking(Duration::from_secs(5));
    let events = events.map(|heard| match heard {
        SubscriptionItem::Event(event) => event.to_json(),
        SubscriptionItem::Lagged(count) => panic!("{count} events were missed"),
    });
    (report, events.collect())
}

fn types(events: &[Value]) -> Vec<&str> {
    events.iter().filter_map(|event| event["type"].as_str()).collect()
}

#[test]
fn a_call_in_doubt_is_repeated_with_its_key_and_reported() {
    for target in TARGETS {
        for policy in [json!(null), json!("retry"), json!("keyed")] {
            let calls = Calls::default();
            let kept = interrupted((target, &policy), &calls);
            let (report, events) = resumed(&calls.engine((target, &policy), kept).build().expect("builds"));
            assert_eq!(calls.keys(), ["run-1.t1", "run-1.t1"], "{target}");
            let wanted = if policy.is_null() { json!("keyed") } else { policy };
            let doubt = json!({"effectId": "run-1.t1", "nodeId": "tell", "kind": "trigger", "policy": wanted, "resolution": "repeated"});
            assert_eq!(json!(report.in_doubt), json!([doubt]), "{target}");
            assert_eq!(
                json!(report.repeated),
                json!([{"effectId": "run-1.t1", "nodeId": "tell", "kind": "trigger"}])
            );
            let told: &[&str] = if target == "notify" {
                &["EFFECT_IN_DOUBT", "NOTIFICATION"]
            } else {
                &["EFFECT_IN_DOUBT"]
            };
            assert_eq!(types(&events), told, "{target}");
            assert_eq!(report.status, ThreadStatus::Completed);
        }
    }
}

#[test]
fn a_call_in_doubt_is_a_failed_trigger_under_the_fail_policy() {
    for target in TARGETS {
        let (calls, policy) = (Calls::default(), json!("fail"));
        let kept = interrupted((target, &policy), &calls);
        let (report, events) = resumed(&calls.engine((target, &policy), kept).build().expect("builds"));
        assert_eq!(calls.keys().len(), 1, "{target}");
        assert_eq!(types(&events), ["EFFECT_IN_DOUBT", "TRIGGER_FAILED"], "{target}");
        assert_eq!(events[1]["error"]["code"], "EFFECT_IN_DOUBT");
        assert_eq!(
            (report.in_doubt[0].resolution, report.repeated.len()),
            (Resolution::Failed, 0)
        );
    }
}

#[test]
fn a_reconcile_function_decides_whether_a_call_was_made() {
    for target in TARGETS {
        for (said, times) in [(json!({"done": true}), 1), (json!({"done": false}), 2)] {
            let (calls, policy) = (Calls::default(), json!({"reconcile": "look"}));
            let kept = interrupted((target, &policy), &calls);
            let look = move |asked: Value| {
                assert_eq!(
                    (&asked["key"], &asked["nodeId"], &asked["kind"]),
                    (&json!("run-1.t1"), &json!("tell"), &json!("trigger"))
                );
                let asked = &asked["asked"];
                assert!(
                    asked["message"] == "set is done" || asked["event"]["nodeId"] == "set",
                    "{asked}"
                );
                future::ready(Ok(said.clone()))
            };
            let engine = calls
                .engine((target, &policy), kept)
                .async_function("look", look)
                .build();
            let (report, events) = resumed(&engine.expect("builds"));
            assert_eq!(calls.keys().len(), times, "{target}");
            assert_eq!(report.in_doubt.len(), 1);
            // The notification is reported in any case, even if no process knew that it was sent.
            assert_eq!(types(&events).contains(&"NOTIFICATION"), target == "notify");
        }
    }
}

#[test]
fn a_person_can_decide_about_a_call_in_doubt() {
    for (answer, times) in [
        (DoubtAnswer::Done(Value::Null), 1),
        (DoubtAnswer::Repeat, 2),
        (DoubtAnswer::Fail, 1),
    ] {
        let (calls, of) = (Calls::default(), ("work", &json!("ask")));
        let kept = interrupted(of, &calls);
        let nobody = calls.engine(of, kept.clone()).build().expect("builds");
        let error = block_on(nobody.resume("run-1").start()).expect_err("nobody is there to be asked");
        assert_eq!(error.code(), "EFFECT_IN_DOUBT");
        nobody.shutdown_blocking(Duration::from_secs(5));
        let asked = calls.engine(of, kept).ask_in_doubt(move |question| {
            assert_eq!((&*question.effect_id, question.kind), ("run-1.t1", DoubtKind::Trigger));
            future::ready(answer.clone()).boxed()
        });
        resumed(&asked.build().expect("builds"));
        assert_eq!(calls.keys().len(), times);
    }
}

#[test]
fn a_cancelled_run_repeats_no_call() {
    for target in TARGETS {
        let (calls, policy) = (Calls::default(), json!(null));
        let kept = interrupted((target, &policy), &calls);
        let engine = calls.engine((target, &policy), kept.clone()).build().expect("builds");
        let run = block_on(engine.resume("run-1").cancel("enough")).expect("goes on");
        run.outcome_blocking();
        run.wait_all_ended_blocking();
        engine.shutdown_blocking(Duration::from_secs(5));
        assert_eq!(calls.keys().len(), 1, "{target}");
        let status = block_on(kept.run("run-1")).expect("is read").expect("is there").status;
        assert!(status.is_final(), "{target}: {}", status.as_str());
    }
}

/// Returns an engine whose async function waits at a gate.
fn gated(kept: MemoryStore, gate: Shared<oneshot::Receiver<()>>, begun: std::sync::mpsc::Sender<String>) -> Engine {
    let engine = Engine::builder().store(kept).workflows(workflow("work", &Value::Null));
    let engine = engine.async_function("work", move |_| {
        begun.send(idempotency_key().unwrap_or_default()).unwrap_or(());
        let gate = gate.clone();
        async move {
            gate.await.unwrap_or(());
            Ok(Value::Null)
        }
    });
    engine.build().expect("builds")
}

#[test]
fn the_end_of_a_run_waits_for_an_async_trigger_function_and_its_outcome_does_not() {
    let (kept, (open, gate)) = (MemoryStore::new(), oneshot::channel());
    let (begun, calls) = std::sync::mpsc::channel();
    let engine = gated(kept.clone(), gate.shared(), begun);
    let run = engine.run("main").run_id("run-1").start().expect("starts");
    assert_eq!(run.outcome_blocking().status, ThreadStatus::Completed);
    assert_eq!(calls.recv().expect("is called"), "run-1.t1");
    let status = || block_on(kept.run("run-1")).expect("is read").expect("is there").status;
    assert_eq!(status(), RunStatus::Unfinished, "something of it is left");
    open.send(()).expect("is awaited");
    run.wait_all_ended_blocking();
    assert_eq!(status(), RunStatus::Completed);
    engine.shutdown_blocking(Duration::from_secs(5));
}

#[test]
fn a_call_stopped_by_a_shutdown_is_made_by_the_next_process() {
    let (kept, (_open, gate)) = (MemoryStore::new(), oneshot::channel());
    let (begun, calls) = std::sync::mpsc::channel();
    let engine = gated(kept.clone(), gate.shared(), begun.clone());
    let run = engine.run("main").run_id("run-1").start().expect("starts");
    assert_eq!(calls.recv().expect("is called"), "run-1.t1");
    assert_eq!(run.outcome_blocking().status, ThreadStatus::Completed);
    engine.shutdown_blocking(Duration::ZERO);
    let engine = gated(kept, open_gate(), begun);
    let (report, events) = resumed(&engine);
    assert_eq!(calls.recv().expect("is called"), "run-1.t1");
    assert_eq!(types(&events), ["EFFECT_IN_DOUBT"]);
    assert!(report.repeated.is_empty(), "the outcome had been told");
}

/// Returns a gate that is already open.
fn open_gate() -> Shared<oneshot::Receiver<()>> {
    let (open, gate) = oneshot::channel();
    open.send(()).expect("is awaited");
    gate.shared()
}
