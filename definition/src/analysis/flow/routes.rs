//! `UNREACHABLE_ROUTE`: a route or an edge that no run takes, because an earlier one is always true or has an equal condition, or
//! because its condition is never true.

use std::collections::BTreeSet;

use crate::analysis::facts::conditions::{Truth, is_steady, truth_of};
use crate::analysis::{Analysis, Flow};
use crate::definition::json::Step;
use crate::definition::{EdgeDefinition, FaultCode, NodeExits, RouteConfig};
use crate::graph::diagnostics::pointer;
use crate::graph::{Node, NodeKind};

/// Reports each such route.
pub(in crate::analysis) fn report(flow: &Flow<'_>, found: &mut Analysis) {
    let definition = flow.definition;
    let mut edges: Vec<Vec<usize>> = vec![Vec::new(); definition.nodes.len()];
    found.work += definition.edges.len() as u64;
    if flow.graph.nodes.iter().any(chooses) {
        for (place, edge) in definition.edges.iter().enumerate() {
            if let Some(source) = leaves(flow, edge) {
                edges[source].push(place);
            }
        }
    }
    for (place, node) in definition.nodes.iter().enumerate() {
        match node.config.exits() {
            NodeExits::Routes(route) => routes(flow, place, route, found),
            NodeExits::Paths(_) => {}
            NodeExits::Edges => edges_of(flow, &mut edges[place], found),
        }
    }
}

/// True if the node has a choice of edges. An edge without a condition is always taken.
fn chooses(node: &Node) -> bool {
    match node.edges.as_slice() {
        // a ROUTE has its transitions in `routes`
        [] => matches!(node.kind, NodeKind::Route { .. }),
        [edge] => edge.condition.is_some(),
        [..] => true,
    }
}

/// Returns the source node of an edge; `None` if threads do not follow edges there.
fn leaves(flow: &Flow<'_>, edge: &EdgeDefinition) -> Option<usize> {
    let node = |id: &str| flow.graph.by_id.get(id).copied();
    let target = flow.graph.node(node(&edge.target_node_id)?);
    let is_declaration = matches!(target.kind, NodeKind::Subgraph { .. }) && target.edges.is_empty();
    (!is_declaration).then(|| node(&edge.source_node_id).map(|source| source as usize))?
}

fn routes(flow: &Flow<'_>, place: usize, route: &RouteConfig, found: &mut Analysis) {
    let mut order: Vec<usize> = (0..route.routes.len()).collect();
    order.sort_by(|a, b| route.routes[*b].priority.total_cmp(&route.routes[*a].priority));
    let id = &flow.definition.nodes[place].id;
    let tried = order.into_iter().map(|index| {
        let pointer = pointer!["nodes", place, "config", "routes", index];
        (Some(route.routes[index].condition.as_str()), pointer)
    });
    never_taken(flow, id, "route", tried, found);
}

fn edges_of(flow: &Flow<'_>, order: &mut [usize], found: &mut Analysis) {
    let edges = &flow.definition.edges;
    order.sort_by(|a, b| edges[*b].weight.total_cmp(&edges[*a].weight));
    let Some(first) = order.first() else { return };
    let id = &edges[*first].source_node_id;
    let tried = order
        .iter()
        .map(|edge| (edges[*edge].condition.as_deref(), pointer!["edges", *edge]));
    never_taken(flow, id, "edge", tried, found);
}

fn never_taken<'t>(
    flow: &Flow<'_>,
    id: &str,
    word: &str,
    tried: impl Iterator<Item = (Option<&'t str>, Vec<Step>)>,
    found: &mut Analysis,
) {
    let mut stopped = false;
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    for (condition, pointer) in tried {
        found.work += 1;
        let truth = truth_of(condition);
        let text = condition.map(str::trim).filter(|text| is_steady(text));
        let why = if stopped {
            "an earlier condition is always true"
        } else if truth == Truth::Never {
            "its condition is never true"
        } else if text.is_some_and(|text| !seen.insert(text)) {
            "an earlier one has an identical condition"
        } else {
            stopped = truth == Truth::Always;
            continue;
        };
        let message = format!("this {word} out of `{id}` is never taken: {why}");
        let help = match (word, stopped && condition.is_none()) {
            ("edge", true) => {
                "a thread follows one edge: give each a `condition`, or start several branches with FORK and JOIN"
            }
            ("edge", false) => "remove it, or change the order: highest `weight` first, then as listed",
            _ => "remove it, or change the order: highest `priority` first, then as listed",
        };
        let fault = flow.origin.fault(FaultCode::UnreachableRoute, &pointer, message);
        found.warnings.push(fault.with_help(help));
    }
}
