//! FORK and JOIN without lists: they are read from the edges.

use pirn_definition::definition::NodeConfig;
use serde_json::{Value, json};

use crate::definitions::fixtures::{build, flow, idle, loaded, node, shown};

/// The lists of every FORK and JOIN, by node.
fn lists(file: &Value) -> Vec<(String, Vec<String>)> {
    let compiled = build(file.to_string());
    assert!(compiled.faults.is_empty(), "{}", shown(&compiled.faults));
    assert!(compiled.warnings.is_empty(), "{}", shown(&compiled.warnings));
    let nodes = &loaded(file.to_string()).workflows[0].value.nodes;
    let list = |config: &NodeConfig| match config {
        NodeConfig::Fork(fork) => Some([fork.fork_path_ids.clone(), fork.child_node_ids.clone()].concat()),
        NodeConfig::Join(join) => Some(join.fork_path_ids.clone()),
        _ => None,
    };
    nodes
        .iter()
        .filter_map(|node| Some((node.id.clone(), list(&node.config)?)))
        .collect()
}

fn join(id: &str) -> Value {
    json!({"id": id, "type": "JOIN", "config": {"joinStrategy": "ALL_COMPLETED"}})
}

fn owned(id: &str, list: &[&str]) -> (String, Vec<String>) {
    (id.to_owned(), list.iter().map(|word| (*word).to_owned()).collect())
}

#[test]
fn a_fork_takes_its_children_from_its_edges_and_a_join_its_paths_from_its_fork() {
    let nodes = json!([
        node("s", "START"),
        node("F", "FORK"),
        idle("a"),
        idle("b"),
        join("J"),
        node("e", "END")
    ]);
    let file = flow(&nodes, &["s>F", "F>a", "F>b", "a>J", "b>J", "J>e"]);
    assert_eq!(
        lists(&file),
        [owned("F", &["a", "b", "a", "b"]), owned("J", &["a", "b"])]
    );
}

#[test]
fn given_fork_fields_are_unchanged() {
    let mut nodes = json!([
        node("s", "START"),
        node("F", "FORK"),
        idle("a"),
        idle("b"),
        join("J"),
        node("e", "END")
    ]);
    nodes[1]["config"] = json!({"forkPathIds": ["left", "right"]});
    let file = flow(&nodes, &["s>F", "F>a", "F>b", "a>J", "b>J", "J>e"]);
    assert_eq!(
        lists(&file),
        [owned("F", &["left", "right", "a", "b"]), owned("J", &["left", "right"])]
    );
}

#[test]
fn nested_and_consecutive_forks_are_paired_with_their_joins() {
    let nodes = json!([
        node("s", "START"),
        node("F", "FORK"),
        node("G", "FORK"),
        idle("a"),
        idle("b"),
        join("K"),
        idle("c"),
        join("J"),
        node("H", "FORK"),
        idle("d"),
        join("L"),
        node("e", "END")
    ]);
    let file = flow(
        &nodes,
        &[
            "s>F", "F>G", "F>c", "G>a", "G>b", "a>K", "b>K", "K>J", "c>J", "J>H", "H>d", "d>L", "L>e",
        ],
    );
    let found = lists(&file);
    assert!(found.contains(&owned("J", &["G", "c"])), "{found:?}");
    assert!(found.contains(&owned("K", &["a", "b"])), "{found:?}");
    assert!(found.contains(&owned("L", &["d"])), "{found:?}");
}

#[test]
fn a_fork_without_edges_and_a_join_without_a_fork_are_faults() {
    let nodes = json!([node("s", "START"), node("F", "FORK"), join("J"), node("e", "END")]);
    let compiled = build(flow(&nodes, &["s>F", "J>e"]).to_string());
    let codes: Vec<&str> = compiled.faults.iter().map(|fault| fault.code.as_str()).collect();
    assert!(codes.contains(&"INVALID_FORK_PATH_IDS"), "{codes:?}");
}
