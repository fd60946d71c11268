//! Large workflows, and the bounds of the layout.

use std::time::{Duration, Instant};

use pirn_drawing::{Drawing, svg};
use serde_json::{Value, json};

use crate::checks::{check, used_share};
use crate::examples::drawn;
use crate::random::{Piece, file, loaded};

/// Time for a picture, in a build without optimisation and on a machine that is busy. An optimised build needs a twentieth.
const LONGEST: Duration = Duration::from_mins(1);

#[allow(clippy::disallowed_methods)] // the bound is one of real time
fn timed(name: &str, file: &Value) -> Drawing {
    let loaded = loaded(file);
    let start = Instant::now();
    let drawing = drawn(&loaded);
    let elapsed = start.elapsed();
    println!("{name}: {elapsed:?}, {} x {}", drawing.width, drawing.height);
    assert!(elapsed < LONGEST, "{name}: {elapsed:?}");
    if let Some(folder) = std::env::var_os("PIRN_DRAW_TO") {
        let file = std::path::PathBuf::from(folder).join(format!("{name}.svg"));
        std::fs::write(file, svg(&drawing)).expect("writable");
    }
    drawing
}

/// A workflow of about 300 nodes with forks, routes and loops.
fn usual() -> Value {
    let node = |at: usize| Piece::Node(at % 11, at % 2);
    let chain = |from: usize, count: usize| Piece::Sequence((from..from + count).map(node).collect());
    let part = |at: usize| {
        let fork = Piece::Fork(
            (0..2 + at % 4)
                .map(|path| chain(at + path, 1 + (at + path) % 3))
                .collect(),
            false,
        );
        let route = Piece::Route(vec![chain(at, 2), Piece::Guarded(Box::new(node(at))), chain(at, 1)]);
        Piece::Sequence(vec![node(at), fork, route, Piece::Loop(Box::new(chain(at + 1, 2)))])
    };
    file(&Piece::Sequence((0..10).map(part).collect()), &[]).0
}

/// Nodes in a chain, with more edges.
fn chain(count: usize, more: impl Fn(usize) -> Vec<usize>) -> Value {
    let nodes: Vec<Value> = (0..count)
        .map(|at| json!({"id": format!("n{at}"), "type": "CODE", "config": {"code": "1"}}))
        .collect();
    let edge = |from: usize, to: usize| json!({"from": format!("n{from}"), "to": format!("n{to}")});
    let edges: Vec<Value> = (1..count)
        .map(|at| edge(at - 1, at))
        .chain((0..count).flat_map(|from| more(from).into_iter().map(move |to| edge(from, to))))
        .collect();
    json!({"id": "chain", "nodes": nodes, "edges": edges})
}

#[test]
fn three_hundred_nodes_meet_all_rules() {
    let drawing = timed("usual-300", &usual());
    assert!((250..400).contains(&drawing.nodes.len()), "{}", drawing.nodes.len());
    check(&drawing);
    assert!(used_share(&drawing) > 0.2, "{}", used_share(&drawing));
}

#[test]
fn a_fork_of_a_thousand_is_divided_into_rows() {
    let paths = (0..1000).map(|at| Piece::Node(at % 11, 0)).collect();
    let drawing = timed("fork-1000", &file(&Piece::Fork(paths, false), &[]).0);
    assert_eq!(drawing.lanes.len(), 1000);
    check(&drawing);
    assert!(
        drawing.width < 3 * drawing.height,
        "{} x {}",
        drawing.width,
        drawing.height
    );
}

#[test]
fn ten_thousand_nodes_take_bounded_time_and_meet_all_rules() {
    check(&timed("chain-10000", &chain(10_000, |_| Vec::new())));
    // Each error leads to the last node; each node leads back to the first one; each node leads somewhere; one node leads everywhere.
    let star = (0..9_999).collect::<Vec<_>>();
    timed("errors-10000", &chain(10_000, |_| vec![9_999]));
    timed("back-10000", &chain(10_000, |_| vec![0]));
    timed("random-10000", &chain(10_000, |at| vec![at * 7_919 % 10_000]));
    timed(
        "star-10000",
        &chain(10_000, |at| if at == 0 { star.clone() } else { Vec::new() }),
    );
    let mut labelled = chain(10_000, |at| {
        (at % 50 == 0).then_some(at * 7_919 % 10_000).into_iter().collect()
    });
    for edge in labelled["edges"].as_array_mut().expect("edges") {
        edge["condition"] = "output.value > 3".into();
    }
    let labelled = timed("labels-10000", &labelled);
    assert!(labelled.edges.iter().all(|edge| edge.label.is_some()));
    check(&labelled);
    check(&timed("errors-1000", &chain(1_000, |_| vec![999])));
    check(&timed("random-1000", &chain(1_000, |at| vec![at * 7_919 % 1_000])));
    check(&timed("random-200", &chain(200, |at| vec![at * 7_919 % 200])));
}

/// Sizes at which the columns of layers are optimised, at which they are averaged, and at which the boxes are in one column.
#[test]
fn routes_of_any_size_meet_all_rules() {
    let node = |at: usize| Piece::Node(at % 11, at % 2);
    let route = |at: usize| Piece::Route((at..at + 2 + at % 3).map(node).collect());
    for count in (150..400).step_by(50) {
        let pieces = Piece::Sequence((0..count).map(route).collect());
        let drawing = timed(&format!("routes-{count}"), &file(&pieces, &[]).0);
        check(&drawing);
        let steps = drawing.edges.iter().flat_map(|edge| edge.points.windows(2));
        let aside: i64 = steps.map(|step| i64::from((step[0][0] - step[1][0]).abs())).sum();
        let mean = aside / i64::try_from(drawing.edges.len()).expect("a number");
        assert!(mean < 2_500, "{count} routes: edges go {mean} to the sides");
    }
}

#[test]
fn a_thousand_nodes_without_edges_are_packed_in_rows() {
    let nodes: Vec<Value> = (0..1_000)
        .map(|at| json!({"id": "n".repeat(1 + at % 30) + &at.to_string(), "type": "CODE", "config": {"code": "1"}}))
        .collect();
    let drawing = timed("packed-1000", &json!({"id": "packed", "nodes": nodes, "edges": []}));
    check(&drawing);
    assert!(used_share(&drawing) > 0.5, "{}", used_share(&drawing));
    assert!(
        drawing.width < 3 * drawing.height && drawing.height < 3 * drawing.width,
        "{} x {}",
        drawing.width,
        drawing.height
    );
}

#[test]
fn deep_nesting_is_drawn() {
    let mut piece = Piece::Node(1, 0);
    for at in 0..60 {
        piece = if at % 2 == 0 {
            Piece::Fork(vec![piece, Piece::Node(2, 0)], false)
        } else {
            Piece::Loop(Box::new(piece))
        };
    }
    check(&timed("deep", &file(&piece, &[]).0));
}

/// Invalid: a loop has two ends, and each start and end is that of several loops.
#[test]
fn loops_that_cross_each_other_are_drawn() {
    let node = |id: &str, kind: &str, config: Value| json!({"id": id, "type": kind, "config": config});
    let mut nodes = vec![node("s", "START", json!({}))];
    for at in 0..4 {
        nodes.push(node(
            &format!("a{at}"),
            "LOOP_START",
            json!({"loopId": format!("l{}", at / 2), "maxIterations": 2}),
        ));
        nodes.push(node(
            &format!("b{at}"),
            "LOOP_END",
            json!({"loopId": format!("l{}", at % 2)}),
        ));
    }
    let ids: Vec<String> = nodes
        .iter()
        .map(|node| node["id"].as_str().expect("an id").to_owned())
        .collect();
    for step in 1..ids.len() {
        let edges: Vec<Value> = (0..ids.len())
            .flat_map(|at| [(at, at + 1), (at, at * step)])
            .filter_map(|(from, to)| Some(json!({"from": ids[from], "to": ids.get(to)?})))
            .collect();
        check(&timed("loops", &json!({"id": "loops", "nodes": nodes, "edges": edges})));
    }
}

#[test]
fn an_empty_workflow_is_drawn() {
    let drawing = timed("empty", &json!({"id": "none", "nodes": [], "edges": []}));
    assert!(drawing.nodes.is_empty() && drawing.width > 0);
}
