//! Triggers: cases F12, F14 to F16, and accepted forms.

use pirn_definition::definition::{FaultCode, TriggerAction};
use serde_json::{Value, json};

use crate::definitions::fixtures::{build, codes_of, flow, loaded, node, shown, the_fault};

fn with(triggers: &Value) -> Value {
    let mut file = flow(&json!([node("s", "START"), node("e", "END")]), &["s>e"]);
    file["triggers"] = triggers.clone();
    file
}

fn trigger(id: &str) -> Value {
    json!({"id": id, "condition": {"eventType": "NODE_COMPLETED"}, "action": {"type": "STOP_THREAD"}})
}

#[test]
fn f14_a_trigger_on_custom_events_names_the_event() {
    for word in ["NODE_CUSTOM_EVENT", "CUSTOM", "custom"] {
        let mut one = trigger("t");
        one["condition"] = json!({"eventType": word});
        let compiled = build(with(&json!([one])).to_string());
        assert_eq!(
            the_fault(&compiled.faults, FaultCode::MissingField).pointer,
            "/triggers/0/condition",
            "F14 {word}"
        );
        one["condition"]["eventName"] = json!("a");
        assert!(codes_of(&with(&json!([one]))).is_empty(), "F14 {word}");
    }
}

#[test]
fn f12_f15_f16_trigger_ids_are_unique_and_an_empty_list_is_valid() {
    let compiled = build(with(&json!([trigger("t1"), trigger("t1")])).to_string());
    assert_eq!(
        the_fault(&compiled.faults, FaultCode::DuplicateTriggerId).pointer,
        "/triggers/1/id",
        "F15"
    );
    assert!(codes_of(&with(&json!([]))).is_empty(), "F16");
    let outside = json!({"triggers": [trigger("t1"), trigger("t1")]});
    assert_eq!(codes_of(&outside), ["DUPLICATE_TRIGGER_ID"], "F12");
}

#[test]
fn trigger_keywords_are_case_insensitive() {
    for (status, enabled) in [
        ("ENABLED", true),
        ("enabled", true),
        ("DISABLED", false),
        ("disabled", false),
    ] {
        let file = json!({"id": "t", "type": "event", "status": status, "condition": {"eventType": "node_completed"},
            "action": {"type": "pause_thread", "parameters": {}}});
        let loaded = loaded(file.to_string());
        assert!(loaded.faults.is_empty(), "{}", shown(&loaded.faults));
        assert_eq!(loaded.triggers[0].value.enabled, enabled, "{status}");
        assert!(matches!(
            loaded.triggers[0].value.action,
            TriggerAction::PauseThread { thread_id: None }
        ));
    }
}

#[test]
fn every_trigger_action_loads() {
    for action in [
        json!({"type": "SET_VARIABLE", "parameters": {"variableName": "x", "value": null}}),
        json!({"type": "set_variable", "parameters": {"variable": "x", "expression": "event.n", "scope": "GLOBAL"}}),
        json!({"type": "SEND_NOTIFICATION", "parameters": {"message": "{{event.type}}", "channel": "mail"}}),
        json!({"type": "CUSTOM", "parameters": {"function": "f", "parameters": {"any": [1, null]}}}),
        json!({"type": "RESUME_THREAD", "parameters": {"threadId": "t"}}),
        json!({"type": "START_WORKFLOW", "parameters": {"workflowId": "w"}}),
    ] {
        let mut one = trigger("t");
        one["action"] = action.clone();
        let compiled = build(with(&json!([one])).to_string());
        assert!(compiled.faults.is_empty(), "{action}:\n{}", shown(&compiled.faults));
    }
}

#[test]
fn a_fault_of_a_trigger_is_reported_with_its_location() {
    for (change, code, pointer) in [
        (json!({"type": "TIMER"}), "INVALID_VALUE", "/type"),
        (json!({"status": "MAYBE"}), "INVALID_VALUE", "/status"),
        (
            json!({"status": "ENABLED", "enabled": true}),
            "DUPLICATE_FIELD",
            "/status",
        ),
        (
            json!({"condition": {"eventType": "NODE_COMPLETE"}}),
            "INVALID_VALUE",
            "/condition/eventType",
        ),
        (
            json!({"action": {"type": "START_WORKFLOWS"}}),
            "INVALID_VALUE",
            "/action/type",
        ),
        (
            json!({"action": {"type": "START_WORKFLOW", "parameters": {"workflowId": "nope"}}}),
            "UNKNOWN_WORKFLOW_REFERENCE",
            "/action/parameters/workflowId",
        ),
        (
            json!({"action": {"type": "START_WORKFLOW", "parameters": {"workflowId": "w", "input": {"source": "thread"}}}}),
            "INVALID_VALUE",
            "/action/parameters/input/source",
        ),
        (
            json!({"action": {"type": "EXECUTE_TRIGGERED_SUBGRAPH", "parameters": {"triggeredWorkflowId": "w"}}}),
            "INVALID_TRIGGERED_WORKFLOW",
            "/action/parameters/triggeredWorkflowId",
        ),
        (
            json!({"action": {"type": "STOP_THREAD", "parameters": {"thread": "x"}}}),
            "UNKNOWN_FIELD",
            "/action/parameters/thread",
        ),
        (
            json!({"action": {"type": "CUSTOM", "parameters": {}}}),
            "MISSING_FIELD",
            "/action/parameters",
        ),
        (
            json!({"workflowId": "nope"}),
            "UNKNOWN_WORKFLOW_REFERENCE",
            "/workflowId",
        ),
        (json!({"maxTriggers": -1}), "INVALID_VALUE", "/maxTriggers"),
    ] {
        let mut one = trigger("t");
        for (key, value) in change.as_object().expect("an object") {
            one[key] = value.clone();
        }
        let compiled = build(with(&json!([one])).to_string());
        assert_eq!(compiled.faults.len(), 1, "{change}:\n{}", shown(&compiled.faults));
        assert_eq!(compiled.faults[0].code.as_str(), code, "{change}");
        assert_eq!(compiled.faults[0].pointer, format!("/triggers/0{pointer}"), "{change}");
    }
}

#[test]
fn an_invalid_trigger_timeout_is_refused() {
    for timeout in [json!(-1), json!(1e300), json!("soon")] {
        let file = json!({"id": "t", "condition": {"eventType": "NODE_FAILED"}, "action": {"type": "EXECUTE_TRIGGERED_SUBGRAPH",
            "parameters": {"triggeredWorkflowId": "x", "timeout": timeout}}});
        assert_eq!(codes_of(&file), ["INVALID_TIMEOUT"], "{timeout}");
    }
}

#[test]
fn an_unknown_workflow_is_only_a_warning_in_a_file_without_workflows() {
    let mut one = trigger("t");
    one["action"] = json!({"type": "START_WORKFLOW", "parameters": {"workflowId": "elsewhere"}});
    let compiled = build(one.to_string());
    assert!(compiled.faults.is_empty(), "{}", shown(&compiled.faults));
    assert_eq!(compiled.warnings[0].code.as_str(), "UNKNOWN_WORKFLOW_REFERENCE");
}

#[test]
fn a_variable_to_pass_on_that_nothing_assigns_is_a_warning() {
    let ends = json!([node("first", "START_FROM_TRIGGER"), {"id": "last", "type": "CONTINUE_FROM_TRIGGER",
        "config": {"variableCallback": {"includeVariables": ["seen", "sen"]}}}]);
    let mut sub = flow(&ends, &["first>last"]);
    sub["id"] = json!("sub");
    let mut one = trigger("t");
    one["action"] = json!({"type": "EXECUTE_TRIGGERED_SUBGRAPH", "parameters": {"triggeredWorkflowId": "sub",
        "mergeOptions": {"includeVariables": ["secrt", "secret"]}}});
    let mut main = with(&json!([one]));
    main["variables"] = json!([{"name": "secret"}, {"name": "seen"}]);
    let compiled = build(json!([main, sub]).to_string());
    assert!(compiled.faults.is_empty(), "{}", shown(&compiled.faults));
    let found: Vec<(&str, &str, Option<&str>)> = (compiled.warnings.iter())
        .map(|fault| (fault.code.as_str(), fault.pointer.as_str(), fault.help.as_deref()))
        .collect();
    let (passed, returned) = (
        "/0/triggers/0/action/parameters/mergeOptions/includeVariables/0",
        "/1/nodes/1/config/variableCallback/includeVariables/1",
    );
    assert_eq!(
        found,
        [
            ("UNKNOWN_NAME", passed, Some("did you mean `secret`?")),
            ("UNKNOWN_NAME", returned, Some("did you mean `seen`?"))
        ]
    );
    // A trigger alone may watch any workflow.
    let compiled = build(one.to_string());
    let of_names = compiled
        .warnings
        .iter()
        .filter(|fault| fault.code == FaultCode::UnknownName);
    assert_eq!(of_names.count(), 0, "{}", shown(&compiled.warnings));
}
