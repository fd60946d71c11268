//! Triggered sub-workflows: cases G13 to G25.

use serde_json::{Value, json};

use crate::definitions::fixtures::{build, codes_of, flow, fork, idle, join, node, shown};

#[test]
fn g19_g20_g21_g22_a_triggered_workflow_has_exactly_one_trigger_start_and_end() {
    let first = node("first", "START_FROM_TRIGGER");
    let last = node("last", "CONTINUE_FROM_TRIGGER");
    let code = ["INVALID_TRIGGERED_WORKFLOW"];
    assert!(codes_of(&flow(&json!([first, last]), &["first>last"])).is_empty());
    assert!(codes_of(&flow(&json!([first, idle("a"), last]), &["first>a", "a>last"])).is_empty());
    let with_start = json!([first, last, node("s", "START")]);
    assert_eq!(codes_of(&flow(&with_start, &["first>last", "s>last"])), code, "G19");
    let with_end = json!([first, last, node("e", "END")]);
    assert_eq!(codes_of(&flow(&with_end, &["first>last", "first>e"])), code, "G20");
    assert_eq!(codes_of(&flow(&json!([last, idle("v")]), &["v>last"])), code, "G21");
    assert_eq!(codes_of(&flow(&json!([first, idle("v")]), &["first>v"])), code, "G22");
    let two = json!([first, node("also", "START_FROM_TRIGGER"), last]);
    assert_eq!(codes_of(&flow(&two, &["first>last", "also>last"])), code);
    let two = json!([first, node("also", "CONTINUE_FROM_TRIGGER"), last]);
    assert_eq!(codes_of(&flow(&two, &["first>last", "first>also"])), code);
}

#[test]
fn every_node_of_a_triggered_workflow_is_on_a_path_from_start_to_end() {
    let nodes = json!([
        node("first", "START_FROM_TRIGGER"),
        idle("a"),
        node("last", "CONTINUE_FROM_TRIGGER")
    ]);
    let code = ["INVALID_TRIGGERED_WORKFLOW"];
    assert_eq!(codes_of(&flow(&nodes, &["first>last"])), code, "unreachable");
    assert_eq!(codes_of(&flow(&nodes, &["first>last", "first>a"])), code, "a dead end");
}

#[test]
fn g25_continue_from_trigger_has_no_outgoing_edge() {
    let nodes = json!([
        node("first", "START_FROM_TRIGGER"),
        idle("a"),
        node("last", "CONTINUE_FROM_TRIGGER")
    ]);
    assert_eq!(
        codes_of(&flow(&nodes, &["first>a", "a>last", "last>a"])),
        ["INVALID_EDGE"],
        "G25"
    );
}

#[test]
fn a_triggered_workflow_may_fork() {
    let nodes = json!([
        node("first", "START_FROM_TRIGGER"),
        fork("f", &["p", "q"], &["a", "b"]),
        idle("a"),
        idle("b"),
        join("j", &["p", "q"]),
        node("last", "CONTINUE_FROM_TRIGGER")
    ]);
    let edges = ["first>f", "f>a", "f>b", "a>j", "b>j", "j>last"];
    assert!(codes_of(&flow(&nodes, &edges)).is_empty());
}

fn with_config(word: &str, config: &Value) -> Vec<&'static str> {
    let mut nodes = json!([
        node("first", "START_FROM_TRIGGER"),
        node("last", "CONTINUE_FROM_TRIGGER")
    ]);
    let place = usize::from(word == "CONTINUE_FROM_TRIGGER");
    nodes[place]["config"] = config.clone();
    codes_of(&flow(&nodes, &["first>last"]))
}

#[test]
fn g13_g14_g15_invalid_callbacks_are_faults() {
    let last = "CONTINUE_FROM_TRIGGER";
    let both = json!({"variableCallback": {"includeAll": true, "includeVariables": ["var1"]}});
    assert_eq!(with_config(last, &both), ["INVALID_CALLBACK"], "G13");
    assert_eq!(
        with_config(last, &json!({"someConfig": "value"})),
        ["UNKNOWN_FIELD"],
        "G14"
    );
    let role = json!({"conversationHistoryCallback": {"byRole": "invalid_role"}});
    assert_eq!(with_config(last, &role), ["INVALID_HISTORY_OPTIONS"], "G15");
    for (config, wanted) in [
        (json!({"variableCallback": {}}), "INVALID_CALLBACK"),
        (
            json!({"variableCallback": {"includeVariables": "all"}}),
            "INVALID_CALLBACK",
        ),
        (json!({"variableCallback": 5}), "INVALID_CALLBACK"),
        (
            json!({"conversationHistoryCallback": {"mode": "prepend", "lastN": 1}}),
            "INVALID_CALLBACK",
        ),
        (
            json!({"conversationHistoryCallback": {"mode": "append"}}),
            "INVALID_HISTORY_OPTIONS",
        ),
        (
            json!({"conversationHistoryCallback": {"lastN": 1.5}}),
            "INVALID_HISTORY_OPTIONS",
        ),
        (
            json!({"conversationHistoryCallback": {"lastM": 1, "byRole": "user"}}),
            "UNKNOWN_FIELD",
        ),
    ] {
        assert_eq!(with_config(last, &config), [wanted], "{config}");
    }
    for config in [
        json!({}),
        json!({"variableCallback": {"includeAll": true}}),
        json!({"conversationHistoryCallback": {"mode": "REPLACE", "rangeByRole": {"role": "Tool", "start": 0, "end": 2}}}),
    ] {
        assert!(with_config(last, &config).is_empty(), "{config}");
    }
}

#[test]
fn g17_start_from_trigger_has_no_config() {
    let config = json!({"subgraphId": "x", "async": false});
    assert_eq!(with_config("START_FROM_TRIGGER", &config), ["UNKNOWN_FIELD"], "G17");
    assert!(with_config("START_FROM_TRIGGER", &json!({})).is_empty());
}

#[test]
fn the_graph_of_a_triggered_workflow_is_marked_as_triggered() {
    let nodes = json!([
        node("first", "start_from_trigger"),
        node("last", "continue_from_trigger")
    ]);
    let compiled = build(flow(&nodes, &["first>last"]).to_string());
    assert!(compiled.faults.is_empty(), "{}", shown(&compiled.faults));
    assert!(compiled.graphs[0].triggered);
    assert_eq!(compiled.graphs[0].start, 0);
}
