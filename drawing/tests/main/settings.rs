//! Texts and shapes of boxes.

use pirn_definition::definition::{Loaded, SourceFile};
use pirn_drawing::{Drawing, svg};
use serde_json::{Value, json};

use crate::examples::drawn;

fn draw(file: &Value) -> Drawing {
    drawn(&Loaded::of(&[SourceFile::new("settings", file.to_string())]))
}

fn with(mut value: Value, more: &[(&str, Value)]) -> Value {
    for (key, item) in more {
        value[*key] = item.clone();
    }
    value
}

#[test]
fn the_tooltip_of_a_node_lists_the_settings_that_differ_from_the_default() {
    let map = json!({"items": "[1]", "subgraphId": "w", "joinStrategy": "ALL_COMPLETED"});
    let join = json!({"forkPathIds": ["a", "b"], "joinStrategy": "ANY_COMPLETED"});
    let cases = [
        ("END", json!({"output": "1"}), "END 1"),
        (
            "VARIABLE",
            json!({"variableName": "v", "expression": "1"}),
            "VARIABLE v = 1",
        ),
        ("LLM", json!({"prompt": "p"}), "LLM"),
        (
            "LLM",
            json!({"profileId": "p", "prompt": "p", "tools": ["a"]}),
            "LLM p, 1 tool",
        ),
        ("LLM", json!({"prompt": "p", "tools": ["a", "b"]}), "LLM 2 tools"),
        ("CODE", json!({"function": "f"}), "CODE f"),
        ("JOIN", join.clone(), "JOIN ANY_COMPLETED"),
        (
            "JOIN",
            with(join.clone(), &[("timeout", json!(0))]),
            "JOIN ANY_COMPLETED",
        ),
        (
            "JOIN",
            with(
                join,
                &[
                    ("timeout", json!(0.5)),
                    ("onDecided", json!("detach")),
                    ("mergeVariables", json!("all")),
                ],
            ),
            "JOIN ANY_COMPLETED, 0.5 s, others detached, merges sum by add, most by a > b",
        ),
        ("MAP", map.clone(), "MAP w, ALL_COMPLETED"),
        (
            "MAP",
            with(map, &[("concurrency", json!(3)), ("assign", json!(["plain", "sum"]))]),
            "MAP w, ALL_COMPLETED, 3 at once, merges plain, sum by add",
        ),
        ("WAIT", json!({"seconds": 2}), "WAIT 2 s"),
        (
            "WAIT",
            json!({"event": "e", "timeout": 1.5}),
            "WAIT for e, at most 1.5 s",
        ),
        ("TOOL", json!({"tool": "t"}), "TOOL t"),
        ("TOOL", json!({"tool": "t", "assignTo": "v"}), "TOOL v = t"),
        (
            "USER_INTERACTION",
            json!({"question": "q", "timeoutMs": 0}),
            "USER_INTERACTION q",
        ),
        (
            "USER_INTERACTION",
            json!({"question": "q", "timeoutMs": 1500}),
            "USER_INTERACTION q, 1500 ms",
        ),
        (
            "LOOP_START",
            json!({"loopId": "l", "maxIterations": 4}),
            "LOOP_START l, at most 4",
        ),
        (
            "LOOP_END",
            json!({"loopId": "l", "breakCondition": "x > 1"}),
            "LOOP_END l, until x > 1",
        ),
        (
            "CONTEXT_PROCESSOR",
            json!({"operation": "insert", "messages": [{"role": "user", "content": "c"}]}),
            "CONTEXT_PROCESSOR insert 1 message",
        ),
    ];
    let variables = json!([{"name": "plain"}, {"name": "sum", "reduce": "add"}, {"name": "most", "reduce": "a > b"}]);
    for (kind, config, expected) in cases {
        let node = json!({"id": "n", "type": kind, "config": config, "timeoutMs": 3000, "retry": {"maxAttempts": 2}});
        let plain = json!({"id": "n", "type": kind, "config": config, "retry": {"maxAttempts": 1}});
        for (node, more) in [(node, ["2 attempts", "3 s"].as_slice()), (plain, &[])] {
            let file = json!({"id": "one", "nodes": [node], "edges": [], "variables": variables});
            let separator = if expected == kind { " " } else { ", " };
            let words = [&[expected.to_owned()], [more.join(", ")].as_slice()].concat();
            let words: Vec<String> = words.into_iter().filter(|word| !word.is_empty()).collect();
            assert_eq!(draw(&file).nodes[0].title, format!("n\n{}", words.join(separator)));
        }
    }
}

#[test]
fn the_shape_of_a_box_shows_the_type_of_its_node() {
    let shapes = [
        ("START", "terminal"),
        ("ROUTE", "route"),
        ("FORK", "fork"),
        ("SUBGRAPH", "call"),
        ("MAP", "call"),
        ("LOOP_END", "iteration"),
        ("START_FROM_TRIGGER", "event"),
        ("USER_INTERACTION", "person"),
        ("CODE", "work"),
    ];
    for (kind, class) in shapes {
        let node = json!({"id": "n", "type": "CODE", "config": {"code": "1"}});
        let mut drawing = draw(&json!({"id": "one", "nodes": [node], "edges": []}));
        drawing.nodes[0].node_type = kind.to_owned();
        let picture = svg(&drawing);
        assert!(
            picture.contains(&format!("class=\"node {class}\"")),
            "{kind}: {picture}"
        );
        let borders = picture.matches("class=\"inner\"").count();
        assert_eq!(borders, usize::from(class == "call"), "{kind}: {picture}");
    }
}

#[test]
fn an_edge_is_a_path_with_rounded_bends_before_its_tip() {
    let node = |id: &str| json!({"id": id, "type": "CODE", "config": {"code": "1"}});
    let mut drawing = draw(&json!({"id": "one", "nodes": [node("a"), node("b")], "edges": [{"from": "a", "to": "b"}]}));
    drawing.edges[0].points = vec![[0, 0], [0, 40], [100, 40], [100, 50]];
    let picture = svg(&drawing);
    let path = "M0 0L0 34Q0 40 6 40L95 40Q100 40 100 45L100 46";
    assert!(picture.contains(&format!("<path d=\"{path}\"/>")), "{picture}");
    assert!(
        picture.contains("<path class=\"tip\" d=\"M100 50L104 42L96 42Z\"/>"),
        "{picture}"
    );
}

/// Returns true if two segments cross at a point that is an end of neither.
fn cross(one: [[i32; 2]; 2], other: [[i32; 2]; 2]) -> bool {
    let within = |value: i32, ends: [i32; 2]| ends[0].min(ends[1]) < value && value < ends[0].max(ends[1]);
    let across = |level: [[i32; 2]; 2], upright: [[i32; 2]; 2]| {
        level[0][1] == level[1][1]
            && upright[0][0] == upright[1][0]
            && within(upright[0][0], [level[0][0], level[1][0]])
            && within(level[0][1], [upright[0][1], upright[1][1]])
    };
    across(one, other) || across(other, one)
}

#[test]
fn boxes_are_ordered_so_that_edges_do_not_cross() {
    let ids = ["r", "a0", "a1", "a2", "a3", "b0", "b1", "b2", "b3", "e"];
    let nodes = ids.map(|id| json!({"id": id, "type": "CODE", "config": {"code": "1"}}));
    let edge = |from: &str, to: &str| json!({"from": from, "to": to});
    let edges: Vec<Value> = (0..4)
        .flat_map(|at| {
            let [a, b] = [format!("a{at}"), format!("b{}", 3 - at)];
            [edge("r", &a), edge(&a, &b), edge(&b, "e")]
        })
        .collect();
    let drawing = draw(&json!({"id": "one", "nodes": nodes, "edges": edges}));
    let segments: Vec<[[i32; 2]; 2]> = drawing
        .edges
        .iter()
        .flat_map(|edge| edge.points.windows(2).map(|pair| [pair[0], pair[1]]))
        .collect();
    let crossings = segments
        .iter()
        .enumerate()
        .flat_map(|(at, one)| segments[at + 1..].iter().filter(|other| cross(*one, **other)));
    assert_eq!(crossings.count(), 0, "{:?}", drawing.edges);
}
