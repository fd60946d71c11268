//! Triggers whose templates need JavaScript: each is evaluated on a script thread, and later work of the same run waits for it.

use std::time::Duration;

use pirn::script::{ExpressionLimits, ScriptSettings};
use pirn::{Engine, EventType, SubscriptionItem, ThreadStatus};
use pirn_tests::world::{code, line, node, run_seeded, wait, workflow};
use serde_json::{Value, json};

fn trigger(id: &str, expression: &str, variable: &str, value: &Value) -> Value {
    json!({"id": id, "type": "EVENT",
        "condition": {"eventType": "NODE_COMPLETED", "expression": expression},
        "action": {"type": "SET_VARIABLE", "parameters": {"variableName": variable, "value": value, "scope": "global"}}})
}

/// An expression evaluated on the matcher's thread, without JavaScript.
const PLAIN: &str = "event.nodeId === 'a' || event.nodeId === 'b'";

/// An expression that needs JavaScript.
const SCRIPT: &str = "['A', 'B'].map(name => name.toLowerCase()).includes(event.nodeId)";

fn watched(triggers: &[Value]) -> Value {
    let mut main = line("main", &[code("a", "return 1"), code("b", "return 2"), wait("w", 10)]);
    main["variables"] = json!([{"name": "g", "value": "", "scope": "global"}]);
    main["triggers"] = json!(triggers);
    main
}

#[test]
fn triggers_of_a_run_act_in_order_with_and_without_javascript() {
    let slow = trigger("slow", SCRIPT, "g", &json!("slow"));
    let quick = trigger("quick", PLAIN, "g", &json!("quick"));
    for seed in 0..10 {
        for (triggers, expected) in [
            ([slow.clone(), quick.clone()], ["slow", "quick", "slow", "quick"]),
            ([quick.clone(), slow.clone()], ["quick", "slow", "quick", "slow"]),
        ] {
            let ran = run_seeded(&watched(&triggers), Value::Null, seed);
            let told: Vec<&Value> = ran
                .of(EventType::VariableChanged)
                .into_iter()
                .map(|event| &event.raised.fields["value"])
                .collect();
            assert_eq!(told, expected, "seed {seed}");
        }
    }
}

#[test]
fn a_slow_expression_of_a_trigger_delays_no_other_run_of_its_arbiter() {
    // Stopped by the time limit for expressions.
    let endless = trigger("endless", "(() => { while (true) {} })()", "g", &json!("never"));
    let after = trigger("after", PLAIN, "g", &json!("after"));
    let other = line("other", &[wait("w", 1)]);
    let bundle = json!({"workflows": [watched(&[endless, after]), other]});
    let scripts = ScriptSettings {
        expressions: ExpressionLimits {
            time: Duration::from_secs(4),
            ..ExpressionLimits::default()
        },
        ..ScriptSettings::default()
    };
    let engine = Engine::builder().arbiters(1).scripts(scripts);
    let engine = engine.workflows(bundle.to_string()).build();
    let engine = engine.unwrap_or_else(|error| panic!("{error}"));
    let run = engine.start("main", Value::Null).expect("admitted");
    for _ in 0..3 {
        let beside = engine.start("other", Value::Null).expect("admitted").outcome_blocking();
        assert_eq!(beside.status, ThreadStatus::Completed);
    }
    assert_eq!(run.try_outcome(), None, "its triggers have not acted yet");
    let report = run.outcome_blocking();
    assert_eq!(
        (report.status, &report.variables["g"]),
        (ThreadStatus::Completed, &json!("after"))
    );
}

#[test]
fn a_run_that_raises_events_faster_than_its_triggers_waits_and_loses_none() {
    let each = node(
        "each",
        "LOOP_START",
        json!({"loopId": "l", "dataSource": {"iterable": 1_500, "variableName": "n"}}),
    );
    let nodes = [
        node("s", "START", json!({})),
        each,
        code("a", "return 1"),
        node("b", "VARIABLE", json!({"variableName": "own", "expression": "n"})),
        node("last", "LOOP_END", json!({"loopId": "l"})),
        node("e", "END", json!({})),
    ];
    let mut main = workflow("main", &nodes, &["s>each>a>b>last>e"]);
    main["config"] = json!({"maxSteps": 100_000});
    main["variables"] = json!([{"name": "g", "value": 0, "scope": "global"}, {"name": "own", "value": 0}]);
    let count = json!({"type": "SEND_NOTIFICATION", "parameters": {"message": "{{event.nodeId}}"}});
    main["triggers"] = json!([{"id": "count", "type": "EVENT", "action": count,
        "condition": {"eventType": "NODE_COMPLETED", "expression": SCRIPT}}]);
    let engine = Engine::builder().arbiters(1).workflows(main.to_string()).build();
    let engine = engine.unwrap_or_else(|error| panic!("{error}"));
    let mut run = engine.run("main");
    let told = run.blocking_events(&[EventType::Notification], 1 << 12);
    let run = run.start().expect("admitted");
    let told: Vec<String> = told
        .map(|heard| match heard {
            SubscriptionItem::Event(event) => event.raised.fields["message"].as_str().unwrap_or_default().to_owned(),
            SubscriptionItem::Lagged(missed) => panic!("{missed} were missed"),
        })
        .collect();
    let report = run.outcome_blocking();
    assert_eq!(report.status, ThreadStatus::Completed, "{:?}", report.error);
    assert_eq!(told.len(), 3_000);
    assert!(told.chunks(2).all(|two| two == ["a", "b"]), "in their order");
}

#[test]
fn a_shutdown_waits_for_the_evaluation_of_a_triggers_template() {
    let bundle = watched(&[trigger("slow", SCRIPT, "g", &json!("slow"))]);
    let engine = Engine::builder().arbiters(1).workflows(bundle.to_string()).build();
    let engine = engine.unwrap_or_else(|error| panic!("{error}"));
    let run = engine.start("main", Value::Null).expect("admitted");
    let report = engine.shutdown_blocking(Duration::from_mins(1));
    assert_eq!((report.runs_cancelled, report.runs_left, report.tasks_left), (0, 0, 0));
    assert_eq!(run.outcome_blocking().variables["g"], "slow");
}
