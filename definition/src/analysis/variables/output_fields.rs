//! `UNKNOWN_NAME` as a warning: a field of `output` that the output of the previous node never has.

use std::collections::BTreeMap;

use crate::analysis::facts::flow_facts::FlowFacts;
use crate::analysis::facts::reads::{reads, snippets_of};
use crate::analysis::{Analysis, Flow};
use crate::definition::FaultCode;
use crate::definition::json::Step;
use crate::graph::diagnostics::pointer;
use crate::graph::{Graph, NodeIx, NodeKind, SnippetIx, unknown_field};

/// Maximum number of nodes that pass an output on, such as ROUTE, between a node and the one whose output it reads.
const MAX_PASSED: usize = 4;

/// Reports each such field in the conditions of a node's edges, and in the nodes that follow one node only.
pub(in crate::analysis) fn report(flow: &Flow<'_>, facts: &FlowFacts, found: &mut Analysis) {
    let graph = flow.graph;
    let numbers = edge_numbers(flow);
    for (place, node) in graph.nodes.iter().enumerate() {
        found.work += 1 + node.edges.len() as u64;
        for edge in &node.edges {
            let number = numbers.get(&(place as NodeIx, edge.target));
            if let (Some(text), Some(number)) = (edge.condition, number) {
                let pointer = pointer!["edges", *number, "condition"];
                check(flow, place as NodeIx, text, &pointer, found);
            }
        }
    }
    let previous = previous(graph, facts);
    for (place, node) in graph.nodes.iter().enumerate() {
        found.work += 1;
        let mut before = previous[place];
        for _ in 0..MAX_PASSED {
            let passes = |ix: &NodeIx| {
                let kind = &graph.node(*ix).kind;
                matches!(
                    kind,
                    NodeKind::Route { .. } | NodeKind::Context(_) | NodeKind::WaitTime(_)
                )
            };
            match before {
                Previous::One(ix) if passes(&ix) => before = previous[ix as usize],
                Previous::One(_) | Previous::Unknown => break,
            }
        }
        if let Previous::One(before) = before {
            for (key, text) in snippets_of(node) {
                check(flow, before, text, &pointer!["nodes", place, "config", key], found);
            }
        }
    }
}

/// Returns the numbers of the edges with a condition, by their source and target.
fn edge_numbers(flow: &Flow<'_>) -> BTreeMap<(NodeIx, NodeIx), usize> {
    let edges = flow.definition.edges.iter().enumerate();
    let conditional = edges.filter(|(_, edge)| edge.condition.is_some());
    let node = |id: &str| flow.graph.by_id.get(id).copied();
    conditional
        .filter_map(|(number, edge)| Some(((node(&edge.source_node_id)?, node(&edge.target_node_id)?), number)))
        .collect()
}

/// The node from which a node is entered.
#[derive(Clone, Copy, PartialEq)]
enum Previous {
    One(NodeIx),
    /// Several nodes, or none.
    Unknown,
}

/// Returns the only node from which each node is entered.
fn previous(graph: &Graph, facts: &FlowFacts) -> Vec<Previous> {
    let mut sources: Vec<Vec<NodeIx>> = vec![Vec::new(); graph.nodes.len()];
    for source in 0..graph.nodes.len() as NodeIx {
        let targets = facts.taken(source).map(|transition| transition.to);
        let children = match graph.node(source).kind {
            NodeKind::Fork(fork) => graph.fork(fork).paths.as_slice(),
            _ => &[],
        };
        for target in targets.chain(children.iter().map(|path| path.child)) {
            if !sources[target as usize].contains(&source) && sources[target as usize].len() < 2 {
                sources[target as usize].push(source);
            }
        }
    }
    let only = |sources: Vec<NodeIx>| match sources[..] {
        [one] => Previous::One(one),
        _ => Previous::Unknown,
    };
    sources.into_iter().map(only).collect()
}

/// Reports the unknown fields of `output` in a snippet that is evaluated after this node.
fn check(flow: &Flow<'_>, before: NodeIx, text: SnippetIx, pointer: &[Step], found: &mut Analysis) {
    let Some(before) = flow.definition.nodes.get(before as usize) else {
        return;
    };
    let is_hidden = |name: &str| flow.graph.variable_names.contains(name);
    let reads = reads(flow.graph, text).into_iter();
    for field in reads
        .filter(|read| read.is_output() && !is_hidden(&read.name))
        .filter_map(|read| read.member)
    {
        if let Some((message, help)) = unknown_field(&before.config, &before.id, &field) {
            let fault = flow.origin.fault(FaultCode::UnknownName, pointer, message);
            found.warnings.push(fault.with_help(help));
        }
    }
}
