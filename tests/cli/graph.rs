//! `pirn graph`.

use crate::command::{pirn, pirn_with};

#[test]
fn a_workflow_is_drawn_in_both_formats() {
    let file = "seeds/003-compression-workflow.json";
    let mermaid = pirn(&["graph", file]);
    assert_eq!(mermaid.code, Some(0), "{}", mermaid.stderr);
    assert!(mermaid.stdout.starts_with("flowchart TD\n"), "{}", mermaid.stdout);
    let dot = pirn(&["graph", file, "--format", "dot"]);
    assert!(
        dot.stdout.starts_with("digraph \"compression-workflow\" {"),
        "{}",
        dot.stdout
    );
}

#[test]
fn what_cannot_be_drawn_exits_1_and_what_cannot_be_read_2() {
    assert_eq!(pirn_with(b"{", &["graph", "-"]).code, Some(1));
    assert_eq!(pirn(&["graph", "seeds/003-trigger.json"]).code, Some(1));
    let other = pirn(&["graph", "seeds/003-compression-workflow.json", "--workflow", "other"]);
    assert_eq!(other.code, Some(1));
    assert!(other.stderr.contains("has compression-workflow"), "{}", other.stderr);
    let empty = pirn_with(b"[]", &["graph", "-"]);
    assert_eq!((empty.code, &*empty.stderr), (Some(1), "pirn: - has no workflow\n"));
    assert_eq!(pirn(&["graph", "nowhere.json"]).code, Some(2));
    assert_eq!(
        pirn(&["graph", "seeds/003-trigger.json", "--format", "png"]).code,
        Some(2)
    );
}
