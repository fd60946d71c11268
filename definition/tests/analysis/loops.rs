//! Loops without exit and routes never taken, against every truth of every condition and explicit reachability.

use std::collections::{BTreeMap, BTreeSet};

use pirn_definition::definition::FaultCode;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::fixtures::{analyse_json, pointers};

/// An edge: source, target, index of its condition in `CONDITIONS`, weight.
type EdgeSpec = (usize, usize, usize, u8);

const CONDITIONS: [Option<&str>; 5] = [None, Some("true"), Some("0"), Some("a"), Some("b")];

fn holds(condition: usize, a: bool, b: bool) -> bool {
    match condition {
        0 | 1 => true,
        2 => false,
        3 => a,
        _ => b,
    }
}

/// Returns the edge taken for these values of `a` and `b`: the one with the highest weight whose condition is true, then list
/// order.
fn taken(edges: &[EdgeSpec], from: usize, a: bool, b: bool) -> Option<usize> {
    let mut best: Option<usize> = None;
    for (place, (source, _, condition, weight)) in edges.iter().enumerate() {
        let is_better = best.is_none_or(|best| *weight > edges[best].3);
        if *source == from && holds(*condition, a, b) && is_better {
            best = Some(place);
        }
    }
    best
}

fn reach(next: &BTreeMap<usize, BTreeSet<usize>>, from: usize) -> BTreeSet<usize> {
    let mut found = BTreeSet::new();
    let mut open = vec![from];
    while let Some(node) = open.pop() {
        for to in next.get(&node).into_iter().flatten() {
            if found.insert(*to) {
                open.push(*to);
            }
        }
    }
    found
}

proptest! {
    #[test]
    fn loop_and_route_warnings_match_trying_every_condition_value(
        count in 2_usize..7,
        along in prop::collection::vec((0..5_usize, 0..3_u8), 6),
        more in prop::collection::vec((0..6_usize, 1..7_usize, 0..5_usize, 0..3_u8), 0..8),
        failing in prop::collection::vec((0..6_usize, 1..7_usize), 0..2),
    ) {
        // Node 0 is START, the last is END. Each node has an edge to the next, so that every graph is valid.
        let end = count;
        let mut edges: Vec<EdgeSpec> =
            (0..count).map(|node| (node, node + 1, along[node % 6].0, along[node % 6].1)).collect();
        edges.extend(more.into_iter().filter(|(from, to, ..)| *from < end && *to <= end));
        let failing: BTreeMap<usize, usize> =
            failing.into_iter().filter(|(from, to)| *from > 0 && *from < end && *to <= end).collect();
        let nodes: Vec<Value> = (0..=end).map(|node| {
            let mut written = match node {
                0 => json!({"id": "0", "type": "START"}),
                node if node == end => json!({"id": node.to_string(), "type": "END"}),
                node => json!({"id": node.to_string(), "type": "CODE", "config": {"code": "return 1"}}),
            };
            if let Some(to) = failing.get(&node) {
                written["onError"] = json!({"targetNodeId": to.to_string()});
            }
            written
        }).collect();
        let written: Vec<Value> = edges.iter().map(|(from, to, condition, weight)| {
            let mut edge = json!({"from": from.to_string(), "to": to.to_string(), "weight": weight});
            if let Some(text) = CONDITIONS[*condition] {
                edge["condition"] = json!(text);
            }
            edge
        }).collect();
        let (_, analysis) = analyse_json(&json!({"id": "w", "nodes": nodes, "edges": written}));

        let mut used = BTreeSet::new();
        let mut next: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
        for node in 0..end {
            for (a, b) in [(false, false), (false, true), (true, false), (true, true)] {
                if let Some(edge) = taken(&edges, node, a, b) {
                    used.insert(edge);
                    next.entry(node).or_default().insert(edges[edge].1);
                }
            }
        }
        let unused: BTreeSet<String> = (0..edges.len())
            // `a` after `not a` is a contradiction between two expressions, which no warning promises to find
            .filter(|edge| !used.contains(edge)).map(|edge| format!("/edges/{edge}")).collect();
        let reported: BTreeSet<String> = pointers(&analysis, &[FaultCode::UnreachableRoute]).into_iter().collect();
        prop_assert_eq!(reported, unused, "{:?}", &edges);

        for (node, to) in &failing {
            next.entry(*node).or_default().insert(*to);
        }
        let mut entered = reach(&next, 0);
        entered.insert(0);
        let dead: BTreeSet<usize> =
            entered.into_iter().filter(|node| *node != end && !reach(&next, *node).contains(&end)).collect();
        let closed = |node: &usize| reach(&next, *node).iter().all(|to| reach(&next, *to).contains(node));
        let turning: Vec<usize> =
            dead.into_iter().filter(|node| !reach(&next, *node).is_empty() && closed(node)).collect();
        let firsts: BTreeSet<String> = turning.iter()
            .filter(|node| turning.iter().all(|other| other >= node || !reach(&next, *other).contains(node)))
            .map(|node| format!("/nodes/{node}")).collect();
        let loops: BTreeSet<String> = pointers(&analysis, &[FaultCode::LoopWithoutExit]).into_iter().collect();
        prop_assert_eq!(loops, firsts, "{:?} {:?}", &edges, &failing);
    }
}

#[test]
fn a_loop_in_a_branch_is_found_and_a_declared_sub_workflow_is_not_an_edge() {
    let file = json!([{"id": "w", "nodes": [
        {"id": "s", "type": "START"},
        {"id": "f", "type": "FORK", "config": {"forkPathIds": ["a", "b"], "childNodeIds": ["one", "two"]}},
        {"id": "one", "type": "CODE", "config": {"code": "return 1"}},
        {"id": "two", "type": "CODE", "config": {"code": "return 1"}},
        {"id": "j", "type": "JOIN", "config": {"forkPathIds": ["a", "b"], "joinStrategy": "ANY_COMPLETED"}},
        {"id": "e", "type": "END"}],
      "edges": [{"from": "s", "to": "f"}, {"from": "f", "to": "one"}, {"from": "f", "to": "two"},
        {"from": "one", "to": "one", "weight": 1}, {"from": "one", "to": "j"}, {"from": "two", "to": "j"},
        {"from": "j", "to": "e"}]}]);
    let (_, analysis) = analyse_json(&file);
    assert_eq!(pointers(&analysis, &[FaultCode::LoopWithoutExit]), ["/0/nodes/2"]);
    assert_eq!(pointers(&analysis, &[FaultCode::UnreachableRoute]), ["/0/edges/4"]);
}
