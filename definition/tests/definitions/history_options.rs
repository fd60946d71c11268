//! Selections of messages: cases C01 to C18.

use serde_json::{Value, json};

use super::fixtures::{build, cases, codes, shown};

fn triggered(parameters: &Value) -> Value {
    json!({"workflows": [{"id": "workflow-123", "nodes": [{"id": "s", "type": "START_FROM_TRIGGER"},
            {"id": "c", "type": "CONTINUE_FROM_TRIGGER"}], "edges": [{"from": "s", "to": "c"}]},
            {"id": "w", "nodes": [{"id": "s", "type": "START_FROM_TRIGGER"},
            {"id": "c", "type": "CONTINUE_FROM_TRIGGER"}], "edges": [{"from": "s", "to": "c"}]}],
           "triggers": [{"id": "t", "condition": {"eventType": "NODE_COMPLETED"},
            "action": {"type": "EXECUTE_TRIGGERED_SUBGRAPH", "parameters": parameters}}]})
}

#[test]
fn the_validity_of_history_selections_matches_the_cases() {
    let rows = cases("history-option-validate.jsonl");
    assert!(rows.len() >= 15);
    for row in rows {
        let id = row["id"].as_str().unwrap_or_default();
        let compiled = build(triggered(&row["input"]).to_string());
        let ok = row["expect"]["ok"] == true;
        assert_eq!(compiled.faults.is_empty(), ok, "{id}:\n{}", shown(&compiled.faults));
        if ok {
            continue;
        }
        if row["expect"]["field"] == "triggeredWorkflowId" {
            assert!(
                compiled.faults[0].pointer.ends_with("/triggeredWorkflowId"),
                "{id}: {}",
                compiled.faults[0]
            );
        } else {
            assert_eq!(codes(&compiled), ["INVALID_HISTORY_OPTIONS"], "{id}");
        }
    }
}

#[test]
fn invalid_selections_are_reported_with_their_location() {
    let at = "/triggers/0/action/parameters/mergeOptions/includeConversationHistory";
    for (selection, pointer) in [
        (json!({"lastN": -1}), "/lastN"),
        (json!({"lastN": "5"}), "/lastN"),
        (json!({"lastNByRole": {"role": "user"}}), "/lastNByRole"),
        (
            json!({"lastNByRole": {"role": "nobody", "count": 1}}),
            "/lastNByRole/role",
        ),
        (json!({"range": {"start": -1, "end": 2}}), "/range/start"),
        (json!({"range": {"start": 2, "end": 1}}), "/range"),
        (json!({}), ""),
        (json!("all of it"), ""),
        (json!([1]), ""),
    ] {
        let options = json!({"triggeredWorkflowId": "w", "mergeOptions": {"includeConversationHistory": selection}});
        let compiled = build(triggered(&options).to_string());
        assert_eq!(
            codes(&compiled),
            ["INVALID_HISTORY_OPTIONS"],
            "{selection}:\n{}",
            shown(&compiled.faults)
        );
        assert_eq!(compiled.faults[0].pointer, format!("{at}{pointer}"), "{selection}");
    }
}

#[test]
fn several_history_options_are_a_warning() {
    let selection = json!({"byRole": "USER", "lastN": 3});
    let options = json!({"triggeredWorkflowId": "w", "mergeOptions": {"includeConversationHistory": selection}});
    let compiled = build(triggered(&options).to_string());
    assert!(compiled.faults.is_empty(), "{}", shown(&compiled.faults));
    assert_eq!(compiled.warnings[0].code.as_str(), "AMBIGUOUS_HISTORY_OPTIONS");
}
