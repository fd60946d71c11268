//! Names to indices, and every way from a node to a node: edges, routes, `onError`, the paths of a FORK.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::model::NodeIx;
use super::site::{Site, at};
use crate::definition::json::Step;
use crate::definition::{FaultCode, NodeConfig, NodeDefinition, WayOut, WorkflowDefinition};

/// The nodes by name and the ways between them.
#[derive(Debug)]
pub(super) struct Ways {
    pub(super) by_id: BTreeMap<Arc<str>, NodeIx>,
    /// Indices of the node's edges in the definition, in list order.
    pub(super) edges: Vec<Vec<usize>>,
    /// Where each edge of the definition leads; none for one that leads nowhere.
    pub(super) targets: Vec<Option<NodeIx>>,
    /// Where the thread may go next, within its own path.
    pub(super) next: Vec<Vec<NodeIx>>,
    /// Where the paths of a FORK start.
    pub(super) children: Vec<Vec<NodeIx>>,
    /// SUBGRAPH nodes that only declare a triggered sub-workflow.
    pub(super) declares: Vec<bool>,
}

/// Whether a node names a workflow that is known to be a normal one.
pub(super) type NamesNormal<'a> = &'a dyn Fn(&NodeDefinition) -> bool;

impl Ways {
    /// Resolves every name; each that leads nowhere is a fault.
    pub(super) fn of(definition: &WorkflowDefinition, names_normal: NamesNormal<'_>, site: &mut Site<'_>) -> Self {
        let count = definition.nodes.len();
        let mut ways = Self {
            by_id: index(definition, site),
            edges: vec![Vec::new(); count],
            targets: Vec::new(),
            next: vec![Vec::new(); count],
            children: vec![Vec::new(); count],
            declares: vec![false; count],
        };
        let holes = site.origin.holes();
        let reports_unknown = !holes.nodes;
        let targets = ways.edges_of(definition, reports_unknown, site);
        for (place, node) in definition.nodes.iter().enumerate() {
            ways.declares[place] = matches!(node.config, NodeConfig::Subgraph(_))
                && ways.edges[place].is_empty()
                && !holes.ways
                && !names_normal(node);
        }
        for place in 0..count {
            let drawn: Vec<NodeIx> = ways.edges[place].iter().filter_map(|edge| targets[*edge]).collect();
            ways.ways_of(definition, place, drawn, reports_unknown, site);
        }
        ways.drop_ways_into_declarations(definition, &targets, site);
        ways.targets = targets;
        ways
    }

    /// The node of that name.
    pub(super) fn find(&self, id: &str) -> Option<NodeIx> {
        self.by_id.get(id).copied()
    }

    fn edges_of(
        &mut self,
        definition: &WorkflowDefinition,
        reports_unknown: bool,
        site: &mut Site<'_>,
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
                    unknown(site, &at!["edges", place, key], id);
                }
            }
            if !edge.weight.is_finite() {
                let message = format!("{} is no weight", edge.weight);
                site.fault(FaultCode::InvalidValue, &at!["edges", place, "weight"], message);
            }
            match (source, target) {
                (Some(source), Some(target)) => {
                    let source_node = &definition.nodes[source as usize];
                    if allowed(
                        source_node,
                        &definition.nodes[target as usize],
                        &|| at!["edges", place],
                        site,
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

    fn ways_of(
        &mut self,
        definition: &WorkflowDefinition,
        place: usize,
        drawn: Vec<NodeIx>,
        reports_unknown: bool,
        site: &mut Site<'_>,
    ) {
        let node = &definition.nodes[place];
        let mut target = |id: &str, way: &dyn Fn() -> Vec<Step>| -> Option<NodeIx> {
            match self.find(id) {
                Some(found) => allowed(node, &definition.nodes[found as usize], way, site).then_some(found),
                None if reports_unknown => {
                    unknown(site, &way(), id);
                    None
                }
                None => None,
            }
        };
        let mut children = Vec::new();
        let mut next = match node.config.way_out() {
            WayOut::Routes(route) => {
                let mut next = Vec::new();
                for (index, route) in route.routes.iter().enumerate() {
                    let way = || at!["nodes", place, "config", "routes", index, "targetNodeId"];
                    next.extend(target(&route.target_node_id, &way));
                }
                if let Some(id) = &route.default_target_node_id {
                    let way = || at!["nodes", place, "config", "defaultTargetNodeId"];
                    next.extend(target(id, &way));
                }
                next
            }
            WayOut::Paths(fork) => {
                // a drawn edge is no way of the parent's; where it fits no path, it is walked as one all the same
                children.extend(
                    fork.child_node_ids
                        .iter()
                        .filter_map(|id| self.by_id.get(id.as_str()).copied()),
                );
                children.extend(drawn);
                Vec::new()
            }
            WayOut::Edges => drawn,
        };
        if let Some(on_error) = &node.on_error {
            let way = || at!["nodes", place, "onError", "targetNodeId"];
            next.extend(target(&on_error.target_node_id, &way));
        }
        self.next[place] = next;
        self.children[place] = children;
    }

    fn drop_ways_into_declarations(
        &mut self,
        definition: &WorkflowDefinition,
        targets: &[Option<NodeIx>],
        site: &mut Site<'_>,
    ) {
        if !self.declares.contains(&true) {
            return;
        }
        for (place, target) in targets.iter().enumerate() {
            if let Some(target) = target.filter(|target| self.declares[*target as usize]) {
                let id = &definition.nodes[target as usize].id;
                let message = format!("`{id}` declares a triggered sub-workflow: no thread takes the edge to it");
                site.warn(FaultCode::IgnoredEdge, &at!["edges", place], message);
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

fn index(definition: &WorkflowDefinition, site: &mut Site<'_>) -> BTreeMap<Arc<str>, NodeIx> {
    let mut by_id: BTreeMap<Arc<str>, NodeIx> = BTreeMap::new();
    for (place, node) in definition.nodes.iter().enumerate() {
        if node.id.is_empty() {
            site.fault(
                FaultCode::InvalidValue,
                &at!["nodes", place, "id"],
                "a node needs an id that is not empty",
            );
        }
        match by_id.entry(Arc::from(node.id.as_str())) {
            std::collections::btree_map::Entry::Vacant(slot) => {
                slot.insert(place as NodeIx);
            }
            std::collections::btree_map::Entry::Occupied(_) => {
                let message = format!("another node is called `{}` too", node.id);
                site.fault(FaultCode::DuplicateNodeId, &at!["nodes", place, "id"], message);
            }
        }
    }
    by_id
}

fn unknown(site: &mut Site<'_>, way: &[Step], id: &str) {
    site.fault(
        FaultCode::UnknownNodeReference,
        way,
        format!("no node is called `{id}`"),
    );
}

fn allowed(source: &NodeDefinition, target: &NodeDefinition, way: &dyn Fn() -> Vec<Step>, site: &mut Site<'_>) -> bool {
    let message = if matches!(source.config, NodeConfig::End(_) | NodeConfig::ContinueFromTrigger(_)) {
        format!("`{}` is a {}: nothing follows it", source.id, source.config.type_name())
    } else if is_start(&target.config) {
        format!(
            "`{}` is a {}: nothing leads to it",
            target.id,
            target.config.type_name()
        )
    } else {
        return true;
    };
    site.fault(FaultCode::InvalidEdge, &way(), message);
    false
}

pub(super) fn is_start(config: &NodeConfig) -> bool {
    matches!(config, NodeConfig::Start | NodeConfig::StartFromTrigger)
}
