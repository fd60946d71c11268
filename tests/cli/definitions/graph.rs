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
        dot.stdout.starts_with("digraph \"compression-workflow: "),
        "{}",
        dot.stdout
    );
}

#[test]
fn all_workflows_of_all_files_are_one_drawing() {
    let files = ["../examples/support-fork.json", "../examples/topic-of.json"];
    let demo = ["../examples/support-desk/workflow.json"];
    for files in [&files[..], &demo[..]] {
        let mermaid = pirn(&[&["graph"], files].concat()).stdout;
        assert_eq!(mermaid.matches("flowchart").count(), 1, "{mermaid}");
        assert!(mermaid.contains("  subgraph w1["), "{mermaid}");
        let dot = pirn(&[&["graph", "--format", "dot"], files].concat()).stdout;
        assert_eq!(dot.matches("digraph").count(), 1, "{dot}");
    }
    let drawn = pirn(&[&["graph"], &demo[..]].concat()).stdout;
    for part in [
        "JOIN SUCCESS_COUNT_THRESHOLD 2, 30 s",
        "TRIGGER on TOKEN_LIMIT_EXCEEDED",
        "-.->|\"starts\"|",
    ] {
        assert!(drawn.contains(part), "{part}: {drawn}");
    }
}

#[test]
fn a_drawing_as_svg_is_one_document_with_every_node() {
    let svg = pirn(&["graph", "../examples/support-desk/workflow.json", "--format", "svg"]);
    assert_eq!(svg.code, Some(0), "{}", svg.stderr);
    assert_eq!(
        (svg.stdout.matches("<svg").count(), svg.stdout.matches("</svg>").count()),
        (1, 1)
    );
    for node in ["look-into-it", "reviewed", "conversation-too-long", "summarize"] {
        assert!(svg.stdout.contains(node), "{node}");
    }
}

#[test]
fn a_drawing_as_html_is_one_page_with_the_warnings() {
    let file = br#"{"id": "endless", "nodes": [{"id": "s", "type": "START"}, {"id": "<b>", "type": "CODE", "config": {"code": "return 1"}},
        {"id": "e", "type": "END"}], "edges": [{"from": "s", "to": "<b>"}, {"from": "<b>", "to": "<b>"}, {"from": "<b>", "to": "e", "condition": "output > 0"}]}"#;
    let html = pirn_with(file, &["graph", "--format", "html", "-"]);
    assert_eq!(html.code, Some(0), "{}", html.stderr);
    assert!(html.stdout.starts_with("<!doctype html>"), "{}", html.stdout);
    for part in [
        "<title>endless</title>",
        "<svg",
        "data-node=\"&lt;b&gt;\"",
        "warning: ",
        "LOOP_WITHOUT_EXIT",
        "</html>",
    ] {
        assert!(html.stdout.contains(part), "{part}: {}", html.stdout);
    }
    for part in ["<script", "http://localhost", "<b>"] {
        assert!(!html.stdout.contains(part), "{part}: {}", html.stdout);
    }
}

#[test]
fn a_workflow_that_cannot_be_drawn_exits_1_and_an_unreadable_file_2() {
    assert_eq!(pirn_with(b"{", &["graph", "-"]).code, Some(1));
    assert_eq!(pirn(&["graph", "seeds/003-trigger.json"]).code, Some(1));
    let other = pirn(&["graph", "seeds/003-compression-workflow.json", "--workflow", "other"]);
    assert_eq!(other.code, Some(1));
    assert!(other.stderr.contains("has compression-workflow"), "{}", other.stderr);
    let empty = pirn_with(b"[]", &["graph", "-"]);
    assert_eq!((empty.code, &*empty.stderr), (Some(1), "pirn: - has no workflow\n"));
    let near = pirn(&[
        "graph",
        "seeds/003-compression-workflow.json",
        "--workflow",
        "compresion-workflow",
    ]);
    assert!(
        near.stderr.contains("did you mean compression-workflow?"),
        "{}",
        near.stderr
    );
    assert_eq!(pirn(&["graph", "nowhere.json"]).code, Some(2));
    assert_eq!(
        pirn(&["graph", "seeds/003-trigger.json", "--format", "png"]).code,
        Some(2)
    );
}

#[test]
fn assigned_variables_of_a_map_and_their_reducers_are_drawn() {
    let bundle = br#"{"workflows": [
        {"id": "main", "variables": [{"name": "total", "value": 0, "reduce": "sum"}, {"name": "best", "value": 0, "reduce": "a > b ? a : b"}],
         "nodes": [{"id": "s", "type": "START"}, {"id": "map", "type": "MAP", "config": {"items": "[1]", "subgraphId": "one", "assign": ["total", "best", "rest"]}},
            {"id": "f", "type": "FORK", "config": {}}, {"id": "a", "type": "WAIT", "config": {"seconds": 1}}, {"id": "b", "type": "WAIT", "config": {"seconds": 1}},
            {"id": "j", "type": "JOIN", "config": {"joinStrategy": "ALL_COMPLETED", "mergeVariables": "all"}}, {"id": "e", "type": "END"}],
         "edges": [{"from": "s", "to": "map"}, {"from": "map", "to": "f"}, {"from": "f", "to": "a"}, {"from": "f", "to": "b"}, {"from": "a", "to": "j"},
            {"from": "b", "to": "j"}, {"from": "j", "to": "e"}]},
        {"id": "one", "nodes": [{"id": "s", "type": "START"}, {"id": "e", "type": "END"}], "edges": [{"from": "s", "to": "e"}]}],
        "triggers": [{"id": "nightly", "type": "SCHEDULE", "schedule": {"cron": "0 3 * * *", "timezone": "Europe/Berlin"},
            "action": {"type": "START_WORKFLOW", "parameters": {"workflowId": "one"}}}]}"#;
    let drawn = pirn_with(bundle, &["graph", "--format", "dot", "-"]).stdout;
    for part in [
        "merges total by sum, best by a > b ? a : b, rest",
        "merges total by sum, best by a > b ? a : b\"",
        "SCHEDULE 0 3 * * * Europe/Berlin: START_WORKFLOW",
    ] {
        assert!(drawn.contains(part), "{part}: {drawn}");
    }
}

#[test]
fn pictures_of_the_concepts_are_what_the_command_draws() {
    let script = std::fs::read_to_string(crate::command::root().join("docs/pictures/draw")).expect("readable");
    let line = script
        .lines()
        .find_map(|line| line.strip_prefix("for picture in "))
        .expect("the list");
    let pictures: Vec<&str> = line.trim_end_matches("; do").split(' ').collect();
    assert!(pictures.len() >= 5, "{pictures:?}");
    for picture in pictures {
        let (name, example) = picture.split_once(':').expect("a name and an example");
        let file = crate::command::root().join(format!("docs/pictures/{name}.svg"));
        let drawn = pirn(&["graph", &format!("../examples/{example}.json"), "--format", "svg"]);
        let is_same = std::fs::read_to_string(&file).is_ok_and(|stored| stored == drawn.stdout);
        assert!(is_same, "{name}.svg differs: run docs/pictures/draw");
    }
}
