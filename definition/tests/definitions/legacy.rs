//! Format without fork path ids (seed 001 section 6): cases A29, A31.

use pirn_definition::definition::{FaultCode, NodeConfig};
use serde_json::{Value, json};

use super::fixtures::{build, flow, idle, loaded, node, shown};

fn file(fork: &Value, join: &Value, children: &[&str]) -> Value {
    let mut nodes = vec![
        node("s", "START"),
        json!({"id": "F", "type": "FORK", "config": fork}),
        json!({"id": "J", "type": "JOIN", "config": join}),
        node("e", "END"),
    ];
    let mut edges = vec!["s>F".to_owned(), "J>e".to_owned()];
    for child in children {
        nodes.push(idle(child));
        edges.extend([format!("F>{child}"), format!("{child}>J")]);
    }
    let edges: Vec<&str> = edges.iter().map(String::as_str).collect();
    flow(&Value::Array(nodes), &edges)
}

/// The paths and children of the FORK, and the paths of the JOIN, as loaded.
fn lists(file: &Value) -> (Vec<String>, Vec<String>, Vec<String>) {
    let loaded = loaded(file.to_string());
    assert!(loaded.faults.is_empty(), "{}", shown(&loaded.faults));
    let nodes = &loaded.workflows[0].value.nodes;
    let NodeConfig::Fork(fork) = &nodes[1].config else {
        panic!("a FORK")
    };
    let NodeConfig::Join(join) = &nodes[2].config else {
        panic!("a JOIN")
    };
    (
        fork.fork_path_ids.clone(),
        fork.child_node_ids.clone(),
        join.fork_path_ids.clone(),
    )
}

fn warned(file: &Value) -> usize {
    let compiled = build(file.to_string());
    assert!(compiled.faults.is_empty(), "{}", shown(&compiled.faults));
    compiled
        .warnings
        .iter()
        .filter(|fault| fault.code == FaultCode::LegacyForm)
        .count()
}

fn strings(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

#[test]
fn a29_a_single_child_has_the_fork_id_as_its_path_id() {
    let file = file(
        &json!({"forkId": "f", "forkStrategy": "serial", "childNodeIds": ["c1"]}),
        &json!({"joinId": "f", "joinStrategy": "ALL_COMPLETED"}),
        &["c1"],
    );
    assert_eq!(lists(&file), (strings(&["f"]), strings(&["c1"]), strings(&["f"])));
    assert_eq!(warned(&file), 2);
}

#[test]
fn several_children_get_numbered_paths_and_missing_children_come_from_the_edges() {
    let file = file(
        &json!({"forkId": "f", "forkStrategy": "PARALLEL"}),
        &json!({"forkId": "f", "joinStrategy": "ALL_COMPLETED"}),
        &["c1", "c2", "c3"],
    );
    let paths = strings(&["f#0", "f#1", "f#2"]);
    assert_eq!(lists(&file), (paths.clone(), strings(&["c1", "c2", "c3"]), paths));
    assert_eq!(warned(&file), 2);
}

#[test]
fn a31_the_new_form_has_precedence_over_the_old_form() {
    let file = file(
        &json!({"forkId": "old", "forkPathIds": ["p1"], "childNodeIds": ["c1"], "forkStrategy": "serial"}),
        &json!({"joinId": "old", "forkPathIds": ["p1"], "joinStrategy": "ALL_COMPLETED"}),
        &["c1"],
    );
    assert_eq!(lists(&file), (strings(&["p1"]), strings(&["c1"]), strings(&["p1"])));
    assert_eq!(warned(&file), 2);
}

#[test]
fn a_join_in_the_old_form_is_paired_with_a_fork_in_the_new_form() {
    let file = file(
        &json!({"forkId": "old", "forkPathIds": ["p1"], "childNodeIds": ["c1"]}),
        &json!({"joinId": "old", "joinStrategy": "ALL_COMPLETED"}),
        &["c1"],
    );
    assert_eq!(lists(&file).2, strings(&["p1"]));
}

#[test]
fn a_fork_whose_own_id_has_a_wrong_type_is_the_only_fault() {
    let mut file = file(
        &json!({"forkId": "f"}),
        &json!({"joinId": "f", "joinStrategy": "ALL_COMPLETED"}),
        &["c1", "c2"],
    );
    file["nodes"][1]["id"] = json!(5);
    let faults = build(file.to_string()).faults;
    let pointers: Vec<_> = faults.iter().map(|fault| &*fault.pointer).collect();
    assert_eq!(pointers, ["/nodes/1/id"], "{}", shown(&faults));
}
