//! Triggers fire once for each event, within their limits, however often the process of their run ends.

use std::time::Duration;

use futures::FutureExt;
use futures::channel::oneshot;
use futures::executor::block_on;
use pirn::store::{MemoryStore, Store};
use pirn::{Engine, EventType, RunHandle, SubscriptionItem, ThreadStatus};
use serde_json::{Value, json};

use super::crashes::{crash_and_resume, uninterrupted};
use super::faults::external_effects::{Known, Outside, RUN};
use super::faults::failing_store::{Crash, Failing};

fn work(id: &str) -> Value {
    json!({"id": id, "type": "CODE", "config": {"function": "work"}, "onError": {"targetNodeId": "end"}})
}

fn line(triggers: &Value) -> Value {
    json!({"id": "main", "triggers": triggers,
        "nodes": [{"id": "start", "type": "START"}, work("a"), work("b"), work("c"), {"id": "end", "type": "END"}],
        "edges": [{"from": "start", "to": "a"}, {"from": "a", "to": "b"}, {"from": "b", "to": "c"}, {"from": "c", "to": "end"}]})
}

fn trigger(id: &str, action: &Value) -> Value {
    json!({"id": id, "type": "EVENT", "maxTriggers": 2, "action": action,
        "condition": {"eventType": "NODE_COMPLETED", "expression": "event.nodeType == 'CODE'"}})
}

fn triggered() -> Value {
    json!({"id": "aside", "nodes": [
            {"id": "begin", "type": "START_FROM_TRIGGER"},
            {"id": "w", "type": "CODE", "config": {"function": "work"}},
            {"id": "set", "type": "VARIABLE", "config": {"variableName": "last", "expression": "input.event.nodeId"}},
            {"id": "back", "type": "CONTINUE_FROM_TRIGGER", "config": {"variableCallback": {"includeAll": true}}}],
        "edges": [{"from": "begin", "to": "w"}, {"from": "w", "to": "set"}, {"from": "set", "to": "back"}]})
}

/// Every trigger action, in a run that is killed at every commit.
#[test]
fn triggers_act_as_often_as_in_an_uninterrupted_run() {
    let execute = |waits: bool| {
        json!({"type": "EXECUTE_TRIGGERED_SUBGRAPH",
        "parameters": {"triggeredWorkflowId": "aside", "waitForCompletion": waits}})
    };
    let assign = json!({"type": "SET_VARIABLE", "parameters": {"variableName": "seen", "expression": "event.nodeId", "scope": "global"}});
    let pause = json!({"type": "RESUME_THREAD", "parameters": {}});
    let notify = json!({"type": "SEND_NOTIFICATION", "parameters": {"message": "{{event.nodeId}} is done"}});
    let call = |function: &str| json!({"type": "CUSTOM", "parameters": {"function": function, "parameters": {"n": 1}}});
    let in_workflow = [
        execute(true),
        execute(false),
        assign,
        pause,
        notify.clone(),
        call("work"),
        call("note"),
        call("breaks"),
    ];
    let in_workflow =
        in_workflow.map(|action| json!({"workflows": [line(&json!([trigger("t", &action)])), triggered()]}));
    // A trigger outside of the workflow belongs to the run whose event it fires on.
    let outside = [notify, call("work"), call("note")];
    let outside = outside.map(|action| json!({"workflows": [line(&json!([]))], "triggers": [trigger("t", &action)]}));
    for bundle in in_workflow.into_iter().chain(outside) {
        let bundle = bundle.to_string();
        let (whole, commits) = uninterrupted(&bundle);
        for at in 0..commits {
            for crash in [Crash::Before(at), Crash::After(at)] {
                let found = crash_and_resume(&bundle, crash, &whole);
                let outcome = found.reports.last().cloned().unwrap_or_default();
                let firings = outcome["firings"].as_array().map_or(0, Vec::len);
                assert!(firings <= 2, "{crash:?}: {outcome}");
            }
        }
    }
}

fn starting() -> String {
    let starts = json!({"type": "START_WORKFLOW", "parameters": {"workflowId": "mine"}});
    let mine = json!({"id": "mine", "nodes": [{"id": "start", "type": "START"}, work("w"), {"id": "end", "type": "END"}],
        "edges": [{"from": "start", "to": "w"}, {"from": "w", "to": "end"}]});
    json!({"workflows": [line(&json!([trigger("t", &starts)])), mine]}).to_string()
}

/// Kills the run before and after each of its commits and resumes it. Then calls `check` with the received events and the store.
fn resume_after_each_crash(
    bundle: &str,
    prepared: impl Fn() -> MemoryStore,
    check: impl Fn(Crash, &Known, &MemoryStore),
) {
    let whole = Failing::new(prepared(), Crash::Never);
    assert!(Outside::default().play(bundle, &whole));
    for at in 0..whole.commits() {
        for crash in [Crash::Before(at), Crash::After(at)] {
            let store = prepared();
            let first = Outside::default();
            first.play(bundle, &Failing::new(store.clone(), crash));
            let second = Outside::of(first.known().clone());
            let again = Failing::new(store.clone(), Crash::Never);
            assert!(second.play(bundle, &again), "{crash:?}");
            let known = second.known().clone();
            check(crash, &known, &store);
        }
    }
}

/// The run of the trigger may end, and its process, before the started run has ended.
#[test]
fn a_run_that_a_trigger_starts_exists_after_any_crash() {
    resume_after_each_crash(&starting(), MemoryStore::new, |crash, _, store| {
        for firing in 1..=2 {
            let run = block_on(store.run(&format!("{RUN}-f{firing}"))).expect("is read");
            assert!(run.is_some(), "{crash:?}: the run of firing {firing}");
        }
    });
}

/// Users may choose an id of the form of a run that a trigger starts. The trigger fails, also in a later process.
#[test]
fn a_resumed_run_does_not_take_over_a_users_run() {
    let bundle = starting();
    let taken = || {
        let store = MemoryStore::new();
        let engine = Outside::default()
            .engine(&bundle, store.clone())
            .build()
            .expect("builds");
        for firing in 0..=2 {
            let run = engine.run("mine").run_id(format!("{RUN}-f{firing}"));
            block_on(run.enqueue()).expect("is stored");
        }
        engine.shutdown_blocking(Duration::from_secs(5));
        store
    };
    resume_after_each_crash(&bundle, taken, |crash, known, store| {
        let is_failure = |event: &&Value| {
            event["type"] == "TRIGGERED_SUBGRAPH_FAILED" && event["error"].to_string().contains("RUN_ID_TAKEN")
        };
        // The failure of a start that arrives after the run has settled is not recorded.
        let failures = known.events.values().filter(is_failure).count();
        assert!(failures <= 2, "{crash:?}: {:?}", known.events);
        for firing in 0..=2 {
            let run = block_on(store.run(&format!("{RUN}-f{firing}"))).expect("is read");
            let is_unchanged = run.is_some_and(|run| !run.status.is_final());
            assert!(is_unchanged, "{crash:?}: the run {firing} of a user");
        }
    });
}

/// The second process of a run continues with the remaining budget and reports only once that it is exhausted.
#[test]
fn a_resumed_run_has_its_remaining_trigger_budget() {
    const MOST: usize = 9;
    let notify = |id: &str, event: &str, of: &str| {
        json!({"id": id, "type": "EVENT", "action": {"type": "SEND_NOTIFICATION", "parameters": {"message": id}},
            "condition": {"eventType": event, "expression": of}})
    };
    let triggers = json!([
        notify("first", "NODE_COMPLETED", "event.nodeId == 'a' || event.nodeId == 'b'"),
        notify("again", "NOTIFICATION", "true"),
        notify("and-again", "NOTIFICATION", "true"),
    ]);
    let mut workflow = line(&triggers);
    workflow["config"] = json!({"maxTriggeredEvents": MOST});
    let bundle = json!({"workflows": [workflow]}).to_string();
    let outside = Outside::default();
    let store = Failing::new(MemoryStore::new(), Crash::Never);
    assert!(outside.play(&bundle, &store));
    let whole = outside.known().clone();
    let heard = |known: &Known, word: &str| {
        let of = known.events.values().filter(|event| event["type"] == word);
        of.count()
    };
    assert_eq!(
        heard(&whole, "NOTIFICATION"),
        MOST + 2,
        "two are caused by steps of the run"
    );
    assert_eq!(heard(&whole, "TRIGGER_FAILED"), 1);
    for at in 0..store.commits() {
        for crash in [Crash::Before(at), Crash::After(at)] {
            // The event that exhausts the budget may be another one than in the uninterrupted run.
            let kept = MemoryStore::new();
            let outside = Outside::default();
            outside.play(&bundle, &Failing::new(kept.clone(), crash));
            let again = Outside::of(outside.known().clone());
            assert!(again.play(&bundle, &kept), "{crash:?}: ends in the end");
            let found = again.known().clone();
            // Notifications that were counted before the crash but not raised are not sent again.
            let (sent, told) = (heard(&found, "NOTIFICATION"), heard(&found, "TRIGGER_FAILED"));
            assert!((2..=MOST + 2).contains(&sent), "{crash:?}: {sent}");
            assert!(told <= 1, "{crash:?}: {told}");
        }
    }
}

#[test]
fn the_failure_of_a_trigger_at_the_end_of_a_run_reaches_its_subscribers() {
    let main = json!({"id": "main",
        "nodes": [{"id": "start", "type": "START"},
            {"id": "set", "type": "VARIABLE", "config": {"variableName": "x", "expression": "1"}}, {"id": "end", "type": "END"}],
        "edges": [{"from": "start", "to": "set"}, {"from": "set", "to": "end"}],
        "triggers": [{"id": "t", "condition": {"eventType": "VARIABLE_CHANGED"},
            "action": {"type": "STOP_THREAD", "parameters": {"threadId": "nobody"}}}]});
    for builder in [Engine::builder(), Engine::builder().store(MemoryStore::new())] {
        let engine = builder.workflows(main.to_string()).build().expect("builds");
        let mut run = engine.run("main");
        let events = run.blocking_events(&[EventType::TriggerFailed, EventType::ThreadCompleted], 100);
        let run = run.start().expect("starts");
        run.wait_all_ended_blocking();
        engine.shutdown_blocking(Duration::from_secs(5));
        let types: Vec<EventType> = events
            .map(|heard| match heard {
                SubscriptionItem::Event(event) => event.raised.event_type,
                SubscriptionItem::Lagged(count) => panic!("{count} events were lost"),
            })
            .collect();
        assert!(types.contains(&EventType::TriggerFailed), "{types:?}");
    }
}

/// Returns a run once it has an open question.
pub(super) fn asking(engine: &Engine, run: &str) -> RunHandle {
    loop {
        match engine.find(run) {
            Some(run) if !block_on(run.interactions()).is_empty() => return run,
            // Each question passes through the run's mailbox, so the run makes progress.
            Some(_) | None => std::thread::yield_now(),
        }
    }
}

/// At a shutdown, a waiting run is stored before the run that started it if the latter executes a function.
#[test]
fn a_started_run_that_a_shutdown_stores_has_not_failed() {
    const CHILD: &str = "run-1-f1";
    let ask = json!({"id": "q", "type": "USER_INTERACTION", "config": {"question": "Sure?"}});
    let starts = json!({"type": "START_WORKFLOW", "parameters": {"workflowId": "mine"}});
    let mut started = trigger("t", &starts);
    started["condition"]["expression"] = json!("event.nodeId == 'a'");
    let main = json!({"id": "main", "triggers": [started],
        "nodes": [{"id": "start", "type": "START"}, {"id": "a", "type": "CODE", "config": {"code": "return 1"}}, work("b"), ask,
            {"id": "end", "type": "END"}],
        "edges": [{"from": "start", "to": "a"}, {"from": "a", "to": "b"}, {"from": "b", "to": "q"}, {"from": "q", "to": "end"}]});
    let mine = json!({"id": "mine", "nodes": [{"id": "start", "type": "START"}, ask, {"id": "end", "type": "END"}],
        "edges": [{"from": "start", "to": "q"}, {"from": "q", "to": "end"}]});
    let store = MemoryStore::new();
    let (open, gate) = oneshot::channel::<()>();
    let gate = gate.shared();
    let engine = || {
        let gate = gate.clone();
        let builder = Engine::builder().workflows(json!({"workflows": [main, mine]}).to_string());
        let builder = builder.async_function("work", move |_| gate.clone().map(|_| Ok(Value::Null)));
        builder.store(store.clone()).build().expect("builds")
    };
    let first = engine();
    let run = first.run("main").run_id(RUN).start().expect("starts");
    let child = asking(&first, CHILD);
    std::thread::scope(|scope| {
        let shutdown = scope.spawn(|| first.shutdown_blocking(Duration::from_mins(1)));
        // The child sends its report to its starter before it publishes it.
        assert_eq!(child.outcome_blocking().status, ThreadStatus::Failed);
        open.send(()).expect("the function waits");
        assert_eq!(run.outcome_blocking().status, ThreadStatus::Failed);
        shutdown.join().expect("no panic");
    });

    let second = engine();
    let run = block_on(second.resume(RUN).start()).expect("resumes");
    assert!(
        second.find(CHILD).is_some(),
        "a run is resumed with the runs that it started"
    );
    for run in [asking(&second, CHILD), run.clone()] {
        let question = block_on(run.interactions()).remove(0);
        block_on(run.answer(&question.id, Value::from("yes"))).expect("is open");
        assert_eq!(run.outcome_blocking().status, ThreadStatus::Completed);
    }
    let report = run.outcome_blocking();
    assert!(
        report.firings.iter().all(|firing| firing.error.is_none()),
        "{:?}",
        report.firings
    );
    second.shutdown_blocking(Duration::from_secs(5));
}
