//! Every effect of the end of a run's main thread (SPEC sections 5 and 6) is in the run's report.

use std::time::Duration;

use pirn::FiringOutcome;
use pirn::{Engine, EventType};
use pirn_tests::world::{Ran, code, line, node, run, wait, workflow};
use serde_json::{Value, json};

/// A trigger on events that the main thread of `main` raises.
fn trigger(id: &str, condition: &Value, action: &Value) -> Value {
    json!({"id": id, "type": "EVENT", "workflowId": "main", "condition": condition, "action": action})
}

fn start(workflow: &str) -> Value {
    json!({"type": "START_WORKFLOW", "parameters": {"workflowId": workflow}})
}

fn bundle(main: &[Value], triggers: &[Value]) -> Value {
    let sub = workflow(
        "sub",
        &[
            node("from", "START_FROM_TRIGGER", json!({})),
            node("to", "CONTINUE_FROM_TRIGGER", json!({})),
        ],
        &["from>to"],
    );
    let mut main = line("main", main);
    main["variables"] = json!([{"name": "g", "value": 0, "scope": "global"}]);
    json!({"workflows": [main, line("other", &[code("o", "return 1")]), sub], "triggers": triggers})
}

fn fired(ran: &Ran) -> Vec<(&str, FiringOutcome)> {
    let firings = ran.report.firings.iter();
    firings
        .map(|firing| (firing.trigger_id.as_str(), firing.outcome))
        .collect()
}

#[test]
fn firings_caused_by_the_end_of_the_main_thread_are_in_the_report() {
    for (main, event_type) in [
        (code("a", "return 1"), "THREAD_COMPLETED"),
        (code("a", "throw new Error('no')"), "THREAD_FAILED"),
    ] {
        let on_end = json!({"eventType": event_type});
        let execute = json!({"type": "EXECUTE_TRIGGERED_SUBGRAPH", "parameters": {"triggeredWorkflowId": "sub"}});
        let set = json!({"type": "SET_VARIABLE", "parameters": {"variableName": "g", "value": 7, "scope": "global"}});
        let triggers = [
            trigger("starts", &on_end, &start("other")),
            trigger("too-late", &on_end, &execute),
            trigger("sets", &on_end, &set),
            trigger("follows", &json!({"eventType": "VARIABLE_CHANGED"}), &start("other")),
        ];
        let ran = run(&bundle(&[main], &triggers), Value::Null);
        let fired = fired(&ran);
        assert_eq!(fired.len(), 3, "{event_type}: {fired:?}");
        assert_eq!(fired[0].0, "starts", "{event_type}");
        assert_eq!(fired[1], ("too-late", FiringOutcome::Refused), "{event_type}");
        assert_eq!(
            fired[2].0, "follows",
            "{event_type}: what follows from that is in it too"
        );
        assert_eq!(ran.report.variables["g"], 7, "{event_type}");
        assert_eq!(ran.of(EventType::TriggeredSubgraphFailed).len(), 1);
    }
}

#[test]
fn firings_caused_by_a_notification_at_the_end_are_in_the_report() {
    let told = json!({"type": "SEND_NOTIFICATION", "parameters": {"message": "over"}});
    let again = json!({"type": "SEND_NOTIFICATION", "parameters": {"message": "and out"}});
    let triggers = [
        trigger("tells", &json!({"eventType": "THREAD_COMPLETED"}), &told),
        trigger(
            "again",
            &json!({"eventType": "NOTIFICATION", "expression": "event.message == 'over'"}),
            &again,
        ),
        trigger(
            "starts",
            &json!({"eventType": "NOTIFICATION", "expression": "event.message == 'and out'"}),
            &start("other"),
        ),
    ];
    let ran = run(&bundle(&[code("a", "return 1")], &triggers), Value::Null);
    assert_eq!(fired(&ran).len(), 1, "{:?}", ran.report.firings);
}

#[test]
fn firings_of_the_last_events_are_in_the_report_on_real_threads() {
    let set = |id: &str, condition: Value| trigger(id, &condition, &start("other"));
    let triggers = [
        set(
            "node",
            json!({"eventType": "NODE_COMPLETED", "expression": "event.nodeId == 'a'"}),
        ),
        set("end", json!({"eventType": "THREAD_COMPLETED"})),
    ];
    let engine = Engine::builder()
        .function("quick", |_| Ok(Value::Null))
        .workflows(bundle(&[node("a", "CODE", json!({"function": "quick"}))], &triggers).to_string())
        .build()
        .expect("valid");
    // The query is answered after the engine's initial triggers are registered.
    let known = futures::executor::block_on(engine.triggers(None)).len();
    assert_eq!(known, 2);
    for _ in 0..200 {
        let report = engine.start("main", Value::Null).expect("admitted").outcome_blocking();
        let fired: Vec<&str> = report.firings.iter().map(|firing| firing.trigger_id.as_str()).collect();
        assert_eq!(fired, ["node", "end"]);
    }
    engine.shutdown_blocking(Duration::from_secs(5));
}

#[test]
fn all_triggers_of_an_engine_apply_to_its_first_run() {
    let others = (0..2_000).map(|number| {
        let never = json!({"eventType": "NODE_FAILED", "expression": format!("event.nodeId == '{number}'")});
        trigger(&format!("never-{number}"), &never, &start("other"))
    });
    let last = trigger("last", &json!({"eventType": "THREAD_STARTED"}), &start("other"));
    let triggers: Vec<Value> = others.chain([last]).collect();
    let engine = Engine::builder()
        .workflows(bundle(&[wait("w", 0)], &triggers).to_string())
        .build()
        .expect("valid");
    let report = engine.start("main", Value::Null).expect("admitted").outcome_blocking();
    assert_eq!(report.firings.len(), 1, "{:?}", report.firings);
    engine.shutdown_blocking(Duration::from_secs(5));
}
