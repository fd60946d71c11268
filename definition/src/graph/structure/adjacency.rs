//! Node ids as indices, and the transitions between nodes: edges, routes, `onError`, and the paths of a FORK.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::definition::json::Step;
use crate::definition::{FaultCode, NodeConfig, NodeDefinition, NodeExits, WorkflowDefinition};
use crate::graph::diagnostics::{Diagnostics, pointer};
use crate::graph::model::NodeIx;

/// The nodes by id, and the transitions between them.
#[derive(Debug)]
pub(in crate::graph) struct Adjacency {
    pub(in crate::graph) by_id: BTreeMap<Arc<str>, NodeIx>,
    /// Indices of the node's edges in the definition, in list order.
    pub(in crate::graph) edges: Vec<Vec<usize>>,
    /// Target of each edge of the definition; `None` if its target does not exist.
    pub(in crate::graph) targets: Vec<Option<NodeIx>>,
    /// Nodes that the thread may enter next, within its own path.
    pub(super) next: Vec<Vec<NodeIx>>,
    /// The first nodes of a FORK's paths, or of a LOOP_START's iterations.
    pub(super) children: Vec<Vec<NodeIx>>,
    /// SUBGRAPH nodes that only declare a triggered sub-workflow.
    pub(super) declares: Vec<bool>,
}

/// Advice about an edge that a ROUTE does not follow.
pub(super) const ADD_ROUTE: &str = "add a route to this node, or make it the `defaultTargetNodeId`";

/// Returns the reason for which a ROUTE does not follow its edges.
pub(super) fn follows_routes(id: &str) -> String {
    format!("the ROUTE `{id}` follows its `routes` and `defaultTargetNodeId`, not its edges")
}

/// Predicate for nodes that call a normal workflow.
pub(super) type CallsNormal<'a> = &'a dyn Fn(&NodeDefinition) -> bool;

impl Adjacency {
    /// Resolves every name; each unknown name is a fault.
    pub(in crate::graph) fn of(
        definition: &WorkflowDefinition,
        calls_normal: CallsNormal<'_>,
        report: &mut Diagnostics<'_>,
    ) -> Self {
        let count = definition.nodes.len();
        let mut adjacency = Self {
            by_id: index(definition, report),
            edges: vec![Vec::new(); count],
            targets: Vec::new(),
            next: vec![Vec::new(); count],
            children: vec![Vec::new(); count],
            declares: vec![false; count],
        };
        let holes = report.origin.holes();
        let reports_unknown = !holes.nodes;
        let targets = adjacency.edges_of(definition, reports_unknown, report);
        for (place, node) in definition.nodes.iter().enumerate() {
            adjacency.declares[place] = matches!(node.config, NodeConfig::Subgraph(_))
                && adjacency.edges[place].is_empty()
                && !holes.transitions
                && !calls_normal(node);
        }
        for place in 0..count {
            let drawn: Vec<NodeIx> = adjacency.edges[place]
                .iter()
                .filter_map(|edge| targets[*edge])
                .collect();
            adjacency.transitions_of(definition, place, drawn, reports_unknown, report);
            if !holes.transitions {
                adjacency.report_drawn(definition, place, report);
            }
        }
        adjacency.drop_transitions_into_declarations(definition, &targets, report);
        adjacency.targets = targets;
        adjacency
    }

    /// Returns the node with this id.
    pub(in crate::graph) fn find(&self, id: &str) -> Option<NodeIx> {
        self.by_id.get(id).copied()
    }

    /// Returns the ids of all nodes.
    pub(super) fn ids(&self) -> impl Iterator<Item = &str> + Clone {
        self.by_id.keys().map(|id| &**id)
    }

    fn unknown(&self, report: &mut Diagnostics<'_>, pointer: &[Step], id: &str) {
        report.unknown_node(FaultCode::UnknownNodeReference, pointer, id, self.ids());
    }

    fn edges_of(
        &mut self,
        definition: &WorkflowDefinition,
        reports_unknown: bool,
        report: &mut Diagnostics<'_>,
    ) -> Vec<Option<NodeIx>> {
        let mut targets = Vec::with_capacity(definition.edges.len());
        for (place, edge) in definition.edges.iter().enumerate() {
            let source = self.find(&edge.source_node_id);
            let target = self.find(&edge.target_node_id);
            for (found, id, key) in [
                (source, &edge.source_node_id, "sourceNodeId"),
                (target, &edge.target_node_id, "targetNodeId"),
            ] {
                if found.is_none() && reports_unknown {
                    self.unknown(report, &pointer!["edges", place, key], id);
                }
            }
            if !edge.weight.is_finite() {
                let message = format!("invalid weight {}: expected a finite number", edge.weight);
                report.fault(FaultCode::InvalidValue, &pointer!["edges", place, "weight"], message);
            }
            match (source, target) {
                (Some(source), Some(target)) => {
                    let source_node = &definition.nodes[source as usize];
                    if allowed(
                        source_node,
                        &definition.nodes[target as usize],
                        &|| pointer!["edges", place],
                        report,
                    ) {
                        self.edges[source as usize].push(place);
                        targets.push(Some(target));
                    } else {
                        targets.push(None);
                    }
                }
                (None, _) | (_, None) => targets.push(None),
            }
        }
        targets
    }

    fn transitions_of(
        &mut self,
        definition: &WorkflowDefinition,
        place: usize,
        drawn: Vec<NodeIx>,
        reports_unknown: bool,
        report: &mut Diagnostics<'_>,
    ) {
        let node = &definition.nodes[place];
        let mut target = |id: &str, pointer: &dyn Fn() -> Vec<Step>| -> Option<NodeIx> {
            match self.find(id) {
                Some(found) => allowed(node, &definition.nodes[found as usize], pointer, report).then_some(found),
                None if reports_unknown => {
                    self.unknown(report, &pointer(), id);
                    None
                }
                None => None,
            }
        };
        let mut children = Vec::new();
        let mut next = match node.config.exits() {
            NodeExits::Routes(route) => {
                let mut next = Vec::new();
                for (index, route) in route.routes.iter().enumerate() {
                    let pointer = || pointer!["nodes", place, "config", "routes", index, "targetNodeId"];
                    next.extend(target(&route.target_node_id, &pointer));
                }
                if let Some(id) = &route.default_target_node_id {
                    let pointer = || pointer!["nodes", place, "config", "defaultTargetNodeId"];
                    next.extend(target(id, &pointer));
                }
                next
            }
            NodeExits::Paths(fork) => {
                // a FORK's edge is not a transition of the parent; one that matches no path is treated as one
                children.extend(
                    fork.child_node_ids
                        .iter()
                        .filter_map(|id| self.by_id.get(id.as_str()).copied()),
                );
                children.extend(drawn);
                Vec::new()
            }
            // the iterations are traversed like branches, one after another
            NodeExits::Edges if matches!(node.config, NodeConfig::LoopStart(_)) => {
                children.extend(drawn);
                Vec::new()
            }
            NodeExits::Edges => drawn,
        };
        if let NodeConfig::UserInteraction(interaction) = &node.config
            && let Some(id) = interaction.timeout_target()
        {
            let pointer = || pointer!["nodes", place, "config", "onTimeout", "targetNodeId"];
            next.extend(target(id, &pointer));
        }
        if let Some(on_error) = &node.on_error {
            let pointer = || pointer!["nodes", place, "onError", "targetNodeId"];
            next.extend(target(&on_error.target_node_id, &pointer));
        }
        self.next[place] = next;
        self.children[place] = children;
    }

    /// Warns of each edge of a ROUTE with `routes` that leads to a node without a route. The other edges are drawings of its routes.
    fn report_drawn(&self, definition: &WorkflowDefinition, place: usize, report: &mut Diagnostics<'_>) {
        let node = &definition.nodes[place];
        if !matches!(node.config.exits(), NodeExits::Routes(_)) {
            return;
        }
        let followed: BTreeSet<NodeIx> = self.next[place].iter().copied().collect();
        for edge in &self.edges[place] {
            let id = &definition.edges[*edge].target_node_id;
            if self.find(id).is_some_and(|target| !followed.contains(&target)) {
                let message = format!("{}: the edge to `{id}` is never followed", follows_routes(&node.id));
                report.warn_with_help(FaultCode::IgnoredEdge, &pointer!["edges", *edge], message, ADD_ROUTE);
            }
        }
    }

    /// Returns the nodes to which a ROUTE with routes has an edge, with one such ROUTE each.
    pub(super) fn drawn<'d>(&self, definition: &'d WorkflowDefinition) -> BTreeMap<&'d str, &'d str> {
        let mut drawn = BTreeMap::new();
        for (node, edges) in definition.nodes.iter().zip(&self.edges) {
            if matches!(node.config.exits(), NodeExits::Routes(_)) {
                let targets = edges.iter().map(|edge| definition.edges[*edge].target_node_id.as_str());
                drawn.extend(targets.map(|target| (target, node.id.as_str())));
            }
        }
        drawn
    }

    fn drop_transitions_into_declarations(
        &mut self,
        definition: &WorkflowDefinition,
        targets: &[Option<NodeIx>],
        report: &mut Diagnostics<'_>,
    ) {
        if !self.declares.contains(&true) {
            return;
        }
        for (place, target) in targets.iter().enumerate() {
            if let Some(target) = target.filter(|target| self.declares[*target as usize]) {
                let id = &definition.nodes[target as usize].id;
                let message = format!("`{id}` declares a triggered sub-workflow: the edge to it is never followed");
                report.warn(FaultCode::IgnoredEdge, &pointer!["edges", place], message);
            }
        }
        for (place, next) in self.next.iter_mut().enumerate() {
            next.retain(|target| !self.declares[*target as usize]);
            if self.declares[place] {
                next.clear();
            }
        }
        for edges in &mut self.edges {
            edges.retain(|edge| targets[*edge].is_some_and(|target| !self.declares[target as usize]));
        }
    }
}

fn index(definition: &WorkflowDefinition, report: &mut Diagnostics<'_>) -> BTreeMap<Arc<str>, NodeIx> {
    let mut by_id: BTreeMap<Arc<str>, NodeIx> = BTreeMap::new();
    for (place, node) in definition.nodes.iter().enumerate() {
        if node.id.is_empty() {
            report.fault(
                FaultCode::InvalidValue,
                &pointer!["nodes", place, "id"],
                "a node needs an id that is not empty",
            );
        }
        match by_id.entry(Arc::from(node.id.as_str())) {
            std::collections::btree_map::Entry::Vacant(slot) => {
                slot.insert(place as NodeIx);
            }
            std::collections::btree_map::Entry::Occupied(_) => {
                let message = format!("another node has the id `{}`", node.id);
                report.fault(FaultCode::DuplicateNodeId, &pointer!["nodes", place, "id"], message);
            }
        }
    }
    by_id
}

fn allowed(
    source: &NodeDefinition,
    target: &NodeDefinition,
    pointer: &dyn Fn() -> Vec<Step>,
    report: &mut Diagnostics<'_>,
) -> bool {
    let message = if matches!(source.config, NodeConfig::End(_) | NodeConfig::ContinueFromTrigger(_)) {
        format!(
            "`{}` is a {}: it cannot have outgoing edges",
            source.id,
            source.config.type_name()
        )
    } else if is_start(&target.config) {
        format!(
            "`{}` is a {}: it cannot have incoming edges",
            target.id,
            target.config.type_name()
        )
    } else {
        return true;
    };
    report.fault(FaultCode::InvalidEdge, &pointer(), message);
    false
}

pub(super) fn is_start(config: &NodeConfig) -> bool {
    matches!(config, NodeConfig::Start | NodeConfig::StartFromTrigger)
}
