//! SET_VARIABLE (SPEC section 5): every assignment of a trigger takes effect or causes an event with the reason.

use pirn::{EventType, ThreadStatus};
use pirn_events::event::Event;
use pirn_tests::world::{Ran, code, forked, line, node, run, run_seeded, wait, workflow};
use serde_json::{Value, json};

/// A trigger that assigns a variable on the events of one type for which `expression` holds.
fn set(event_type: &str, expression: &str, name: &str, value: &Value, scope: &str) -> Value {
    json!({"id": format!("sets-{name}"), "type": "EVENT",
        "condition": {"eventType": event_type, "expression": expression},
        "action": {"type": "SET_VARIABLE", "parameters": {"variableName": name, "value": value, "scope": scope}}})
}

/// The values of a variable by VARIABLE_CHANGED, in order.
fn changed_values(ran: &Ran, name: &str) -> Vec<Value> {
    let changes = ran.of(EventType::VariableChanged).into_iter();
    changes
        .filter(|event| event.raised.fields["name"] == name)
        .map(|event| event.raised.fields["value"].clone())
        .collect()
}

/// The failed triggers with their error codes.
fn failures(ran: &Ran) -> Vec<(String, String)> {
    let text = |event: &Event, pointer: &str| {
        let data = json!(event.raised.fields);
        data.pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let failed = ran.of(EventType::TriggerFailed).into_iter();
    failed
        .map(|event| (text(event, "/triggerId"), text(event, "/error/code")))
        .collect()
}

fn pair(trigger: &str, code: &str) -> (String, String) {
    (trigger.to_owned(), code.to_owned())
}

#[test]
fn a_global_variable_is_set_after_the_end_of_the_thread_that_raised_the_event() {
    for (event_type, expression, first) in [
        ("THREAD_COMPLETED", "event.pathId == 'p0'", code("a", "return 1")),
        ("NODE_COMPLETED", "event.nodeId == 'a'", code("a", "return 1")),
        ("NODE_FAILED", "event.nodeId == 'a'", code("a", "throw new Error('no')")),
        (
            "THREAD_FAILED",
            "event.pathId == 'p0'",
            code("a", "throw new Error('no')"),
        ),
    ] {
        let mut race = forked(
            &[vec![first], vec![wait("w", 50), code("b", "return g")]],
            false,
            &json!({"joinStrategy": "SUCCESS_COUNT_THRESHOLD", "threshold": 1, "onDecided": "detach"}),
        );
        if event_type.ends_with("COMPLETED") {
            for node in race["nodes"].as_array_mut().into_iter().flatten() {
                if node["id"] == "join" {
                    node["config"]["joinStrategy"] = json!("ALL_COMPLETED");
                }
            }
        }
        race["variables"] = json!([{"name": "g", "value": 0, "scope": "global"}]);
        race["triggers"] = json!([set(event_type, expression, "g", &json!(7), "global")]);
        for seed in 0..8 {
            let ran = run_seeded(&race, Value::Null, seed);
            assert_eq!(ran.report.variables["g"], 7, "{event_type}, seed {seed}");
            assert_eq!(
                ran.report.output["outputs"]["p1"], 7,
                "{event_type}: the other branch sees it"
            );
            assert_eq!(changed_values(&ran, "g"), [json!(7)], "{event_type}");
        }
    }
}

#[test]
fn a_global_variable_is_set_while_the_thread_that_raised_the_event_waits() {
    let mut race = forked(
        &[
            vec![wait("long", 1_000)],
            vec![wait("short", 10), code("b", "return g")],
        ],
        false,
        &json!({"joinStrategy": "ALL_COMPLETED"}),
    );
    race["variables"] = json!([{"name": "g", "value": 0, "scope": "global"}]);
    race["triggers"] = json!([set("NODE_STARTED", "event.nodeId == 'long'", "g", &json!(7), "global")]);
    let ran = run(&race, Value::Null);
    assert_eq!(ran.report.output["outputs"]["p1"], 7, "the whole run sees it");
}

#[test]
fn an_assignment_to_a_read_only_variable_is_a_failed_trigger_without_a_change() {
    for (scope, value, code) in [
        ("global", json!(7), "READONLY_VARIABLE"),
        ("thread", json!(7), "READONLY_VARIABLE"),
        ("global", json!("seven"), "NODE_FAILED"),
        ("thread", json!("seven"), "NODE_FAILED"),
    ] {
        let mut one = line("one", &[wait("a", 10), wait("b", 10)]);
        let readonly = code == "READONLY_VARIABLE";
        one["variables"] = json!([{"name": "v", "value": 0, "type": "number", "scope": scope, "readonly": readonly}]);
        one["triggers"] = json!([set("NODE_STARTED", "event.nodeId == 'a'", "v", &value, scope)]);
        let ran = run(&one, Value::Null);
        assert_eq!(
            ran.report.status,
            ThreadStatus::Completed,
            "no trigger fails the thread"
        );
        assert_eq!(ran.report.variables["v"], 0, "{scope}");
        assert_eq!(
            changed_values(&ran, "v"),
            [] as [Value; 0],
            "{scope}: nothing has changed"
        );
        assert_eq!(failures(&ran), [pair("sets-v", code)], "{scope}");
    }
}

#[test]
fn a_change_event_has_the_converted_value_of_the_variable() {
    for scope in ["global", "thread"] {
        let set_it = json!({"variableName": "v", "expression": "'41'", "scope": scope});
        let mut one = line("one", &[node("own", "VARIABLE", set_it), wait("a", 10), wait("b", 10)]);
        one["variables"] = json!([{"name": "v", "value": 0, "type": "number", "scope": scope}]);
        one["triggers"] = json!([set("NODE_STARTED", "event.nodeId == 'a'", "v", &json!("42"), scope)]);
        let ran = run(&one, Value::Null);
        assert_eq!(
            changed_values(&ran, "v"),
            [json!(41), json!(42)],
            "{scope}: as its type has it"
        );
    }
}

#[test]
fn an_assignment_to_a_variable_of_an_ended_thread_is_a_failed_trigger() {
    let mut race = forked(
        &[vec![code("a", "return 1")], vec![wait("w", 50)]],
        false,
        &json!({"joinStrategy": "ALL_COMPLETED"}),
    );
    race["triggers"] = json!([set(
        "THREAD_COMPLETED",
        "event.pathId == 'p0'",
        "v",
        &json!(7),
        "thread"
    )]);
    for seed in 0..8 {
        let ran = run_seeded(&race, Value::Null, seed);
        assert_eq!(failures(&ran), [pair("sets-v", "CANCELLED")], "seed {seed}");
        assert_eq!(changed_values(&ran, "v"), [] as [Value; 0]);
    }
}

#[test]
fn pending_assignments_are_made_when_a_thread_ends_during_a_node() {
    let broken = json!({"code": "throw new Error('no')", "retry": {"maxAttempts": 2, "initialDelayMs": 100}});
    let mut one = line("one", &[node("a", "CODE", json!({"code": "throw new Error('no')"}))]);
    for node in one["nodes"].as_array_mut().into_iter().flatten() {
        if node["id"] == "a" {
            node["retry"] = broken["retry"].clone();
        }
    }
    one["variables"] = json!([{"name": "v", "value": 0}]);
    one["triggers"] = json!([set("NODE_FAILED", "event.attempt == 1", "v", &json!(7), "thread")]);
    let ran = run(&one, Value::Null);
    assert_eq!(ran.report.status, ThreadStatus::Failed);
    assert_eq!(ran.report.variables["v"], 7);
    assert_eq!(changed_values(&ran, "v"), [json!(7)]);
}

#[test]
fn a_sub_workflow_receives_the_selected_global_variables() {
    let sub = workflow(
        "sub",
        &[
            node("from", "START_FROM_TRIGGER", json!({})),
            node(
                "saw",
                "VARIABLE",
                json!({"variableName": "saw", "expression": "input.variables", "scope": "global"}),
            ),
            node("to", "CONTINUE_FROM_TRIGGER", json!({})),
        ],
        &["from>saw>to"],
    );
    let mut main = line("main", &[wait("a", 10), wait("b", 10)]);
    main["variables"] = json!([{"name": "own", "value": 1}, {"name": "g", "value": 2, "scope": "global"},
        {"name": "other", "value": 3}]);
    main["triggers"] = json!([{"id": "t", "type": "EVENT",
        "condition": {"eventType": "NODE_STARTED", "expression": "event.nodeId == 'a'"},
        "action": {"type": "EXECUTE_TRIGGERED_SUBGRAPH", "parameters": {"triggeredWorkflowId": "sub",
            "mergeOptions": {"includeVariables": ["own", "g", "unknown"]}}}}]);
    let ran = run(&json!({"workflows": [main, sub]}), Value::Null);
    assert_eq!(ran.report.variables["saw"], json!({"own": 1, "g": 2}));
}

#[test]
fn a_read_only_variable_is_not_hidden_by_a_returned_variable() {
    for scope in ["global", "thread"] {
        let callback = json!({"variableCallback": {"includeVariables": ["free", "fixed"]}});
        let own = |name: &str| node(name, "VARIABLE", json!({"variableName": name, "expression": "7"}));
        let sub = workflow(
            "sub",
            &[
                node("from", "START_FROM_TRIGGER", json!({})),
                own("free"),
                own("fixed"),
                node("to", "CONTINUE_FROM_TRIGGER", callback),
            ],
            &["from>free>fixed>to"],
        );
        let mut main = line("main", &[wait("a", 10), wait("b", 10)]);
        main["variables"] = json!([{"name": "fixed", "value": 1, "scope": scope, "readonly": true},
            {"name": "free", "value": 2}]);
        main["triggers"] = json!([{"id": "t", "type": "EVENT",
            "condition": {"eventType": "NODE_STARTED", "expression": "event.nodeId == 'a'"},
            "action": {"type": "EXECUTE_TRIGGERED_SUBGRAPH", "parameters": {"triggeredWorkflowId": "sub"}}}]);
        let ran = run(&json!({"workflows": [main, sub]}), Value::Null);
        assert_eq!(
            (&ran.report.variables["fixed"], &ran.report.variables["free"]),
            (&json!(1), &json!(2)),
            "{scope}"
        );
        let failed = ran.of(EventType::TriggeredSubgraphFailed);
        assert_eq!(failed.len(), 1, "{scope}");
        assert_eq!(failed[0].raised.fields["error"]["code"], "READONLY_VARIABLE", "{scope}");
    }
}

/// Returns `names`, each 7, from a sub-workflow to a main thread with these variables whose next node outputs them.
fn returning(names: &[&str], conversation: bool, variables: &Value) -> Ran {
    let mut callback = json!({"variableCallback": {"includeVariables": names}});
    if conversation {
        callback["conversationHistoryCallback"] = json!({"lastN": 1, "mode": "append"});
    }
    let mut nodes = vec![
        node("from", "START_FROM_TRIGGER", json!({})),
        node(
            "say",
            "CONTEXT_PROCESSOR",
            json!({"operation": "insert", "messages": [{"role": "user", "content": "from the sub-workflow"}]}),
        ),
    ];
    let set = |name: &&str| node(name, "VARIABLE", json!({"variableName": name, "expression": "'7'"}));
    nodes.extend(names.iter().map(set));
    nodes.push(node("to", "CONTINUE_FROM_TRIGGER", callback));
    let way = format!("from>say>{}>to", names.join(">"));
    let sub = workflow("sub", &nodes, &[way.as_str()]);
    let later = node(
        "later",
        "VARIABLE",
        json!({"variableName": "g", "expression": "g + 1", "scope": "global"}),
    );
    let mut main = line(
        "main",
        &[
            wait("a", 10),
            code("saw", "return {own, g}"),
            later,
            code("end-saw", "return {own, g}"),
        ],
    );
    main["variables"] = variables.clone();
    main["triggers"] = json!([{"id": "t", "type": "EVENT",
        "condition": {"eventType": "NODE_STARTED", "expression": "event.nodeId == 'a'"},
        "action": {"type": "EXECUTE_TRIGGERED_SUBGRAPH", "parameters": {"triggeredWorkflowId": "sub"}}}]);
    run(&json!({"workflows": [main, sub]}), Value::Null)
}

#[test]
fn a_returned_value_of_a_global_variable_is_assigned_to_the_run() {
    for conversation in [false, true] {
        let ran = returning(
            &["own", "g"],
            conversation,
            &json!([{"name": "own", "value": 0, "type": "number"},
                {"name": "g", "value": 0, "type": "number", "scope": "global"}]),
        );
        assert_eq!(ran.code(), "", "{:?}", ran.report.error);
        assert_eq!(
            ran.report.output,
            json!({"own": 7, "g": 8}),
            "later writes to it are seen: nothing hides it"
        );
        let changes = ran.of(EventType::VariableChanged).into_iter();
        let changes: Vec<_> = changes
            .filter(|event| *event.thread_id == *ran.report.thread_id)
            .map(|event| ["name", "value", "scope"].map(|key| event.raised.fields[key].clone()))
            .collect();
        assert_eq!(
            json!(changes),
            json!([["g", 7, "global"], ["own", 7, "thread"], ["g", 8, "global"]]),
            "each value as its type has it"
        );
        assert_eq!(ran.visible().len(), usize::from(conversation));
    }
}

#[test]
fn a_returned_value_is_assigned_to_a_thread_variable_before_a_global_one() {
    let ran = returning(
        &["g"],
        false,
        &json!([{"name": "own", "value": 0}, {"name": "g", "value": 1}]),
    );
    assert_eq!(ran.report.output, json!({"own": 0, "g": "7"}));
}

#[test]
fn returned_variables_of_both_scopes_are_assigned_all_or_none() {
    for (own, global) in [
        (json!({}), json!({"type": "boolean", "value": false})),
        (json!({}), json!({"readonly": true})),
        (json!({"type": "boolean", "value": false}), json!({})),
    ] {
        for conversation in [false, true] {
            let with = |name: &str, scope: &str, more: &Value| {
                let mut variable = json!({"name": name, "value": 0, "scope": scope});
                for (key, value) in more.as_object().into_iter().flatten() {
                    variable[key] = value.clone();
                }
                variable
            };
            let variables = json!([with("own", "thread", &own), with("g", "global", &global)]);
            let ran = returning(&["own", "g"], conversation, &variables);
            let saw = ran.of(EventType::NodeCompleted).into_iter();
            let saw: Vec<_> = saw.filter(|event| event.raised.fields["nodeId"] == "saw").collect();
            assert_eq!(
                saw[0].raised.fields["output"],
                json!({"own": variables[0]["value"], "g": variables[1]["value"]})
            );
            assert_eq!(ran.of(EventType::TriggeredSubgraphFailed).len(), 1, "{own} {global}");
            assert_eq!(ran.visible().len(), 0, "{own} {global}");
        }
    }
}
