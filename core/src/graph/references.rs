//! From workflow to workflow: what SUBGRAPH nodes and triggers name, circles of calls, and how deep calls nest.

use std::collections::BTreeMap;

use super::context::CompileContext;
use super::model::NodeKind;
use super::regions::Depths;
use super::site::{Site, at};
use super::ways::Ways;
use crate::definition::json::Step;
use crate::definition::{FaultCode, Located, NodeConfig, NodeDefinition, WorkflowDefinition};

/// Nesting a run allows where `config.maxDepth` says nothing.
const DEFAULT_MAX_DEPTH: u32 = 10;

/// What is known of a workflow by its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    Normal,
    Triggered,
    /// It exists, but could not be read.
    Unreadable,
}

/// Every workflow that may be named.
pub(super) struct Names<'a>(BTreeMap<&'a str, Known>);

impl<'a> Names<'a> {
    pub(super) fn of(workflows: &'a [Located<WorkflowDefinition>], context: &CompileContext<'a>) -> Self {
        let mut names = BTreeMap::new();
        for graph in context.registered {
            let known = if graph.triggered {
                Known::Triggered
            } else {
                Known::Normal
            };
            names.insert(&*graph.workflow_id, known);
        }
        for id in context.unreadable {
            names.insert(id.as_str(), Known::Unreadable);
        }
        for workflow in workflows {
            let unclear = workflow.origin.holes().nodes;
            let known = match (is_triggered(&workflow.value), unclear) {
                (true, _) => Known::Triggered,
                (false, false) => Known::Normal,
                (false, true) => Known::Unreadable,
            };
            names.insert(workflow.value.id.as_str(), known);
        }
        Self(names)
    }

    pub(super) fn find(&self, id: &str) -> Option<Known> {
        self.0.get(id).copied()
    }

    pub(super) fn names_normal(&self, node: &NodeDefinition) -> bool {
        node.config
            .as_subgraph()
            .is_some_and(|subgraph| self.find(&subgraph.subgraph_id) == Some(Known::Normal))
    }

    /// Reports a name that leads nowhere, or to the wrong sort of workflow.
    pub(super) fn check(&self, id: &str, wanted: Known, way: &[Step], site: &mut Site<'_>) {
        match (self.find(id), wanted) {
            _ if id.is_empty() => site.fault(FaultCode::MissingField, way, "the id of a workflow is missing"),
            (None, _) => {
                let message = format!("no workflow is called `{id}`");
                let help = "give the file that defines it too";
                site.fault_with_help(FaultCode::UnknownWorkflowReference, way, message, help);
            }
            (Some(Known::Normal), Known::Triggered) => {
                let message = format!("`{id}` is no triggered sub-workflow: it has no START_FROM_TRIGGER");
                site.fault(FaultCode::InvalidTriggeredWorkflow, way, message);
            }
            (Some(Known::Triggered), Known::Normal) => {
                let message = format!("`{id}` is a triggered sub-workflow: only a trigger can run it");
                site.fault(FaultCode::InvalidTriggeredWorkflow, way, message);
            }
            (Some(Known::Normal | Known::Triggered | Known::Unreadable), _) => {}
        }
    }
}

/// Whether a workflow is meant to be a triggered one.
pub(super) fn is_triggered(workflow: &WorkflowDefinition) -> bool {
    workflow.nodes.iter().any(|node| {
        matches!(
            node.config,
            NodeConfig::StartFromTrigger | NodeConfig::ContinueFromTrigger(_)
        )
    })
}

/// Reports what the SUBGRAPH nodes of a workflow name.
pub(super) fn check_subgraphs(
    definition: &WorkflowDefinition,
    ways: &Ways,
    names: &Names<'_>,
    stand_ins: &[usize],
    site: &mut Site<'_>,
) {
    for (place, node) in definition.nodes.iter().enumerate() {
        let NodeConfig::Subgraph(subgraph) = &node.config else {
            continue;
        };
        if stand_ins.binary_search(&place).is_ok() {
            continue;
        }
        let way = at!["nodes", place, "config", "subgraphId"];
        if ways.edges[place].is_empty() && !site.origin.holes().ways {
            if names.names_normal(node) {
                let id = &subgraph.subgraph_id;
                let message = format!(
                    "`{}` has no outgoing edge, so it declares a triggered sub-workflow; `{id}` has no START_FROM_TRIGGER",
                    node.id
                );
                let help = "add an edge to call it, or name a workflow with START_FROM_TRIGGER";
                site.fault_with_help(FaultCode::InvalidTriggeredWorkflow, &way, message, help);
            } else {
                names.check(&subgraph.subgraph_id, Known::Triggered, &way, site);
            }
        } else {
            names.check(&subgraph.subgraph_id, Known::Normal, &way, site);
        }
    }
}

/// A workflow's calls: the node, how deep in forks it stands, and the workflow it names.
pub(super) struct Calls {
    pub(super) forks: u32,
    pub(super) calls: Vec<(usize, u32, String)>,
}

impl Calls {
    pub(super) fn of(definition: &WorkflowDefinition, ways: &Ways, depths: &Depths) -> Self {
        let mut calls = Vec::new();
        for (place, node) in definition.nodes.iter().enumerate() {
            if let NodeConfig::Subgraph(subgraph) = &node.config
                && !ways.declares[place]
            {
                calls.push((place, depths[place].unwrap_or_default(), subgraph.subgraph_id.clone()));
            }
        }
        Self {
            forks: depths.iter().flatten().copied().max().unwrap_or_default(),
            calls,
        }
    }
}

/// Reports circles of calls, and nesting above `config.maxDepth`.
pub(super) fn check_calls(
    workflows: &[Located<WorkflowDefinition>],
    calls: &[Calls],
    context: &CompileContext<'_>,
    sites: &mut [Site<'_>],
) {
    let by_id: BTreeMap<&str, usize> = workflows
        .iter()
        .enumerate()
        .rev()
        .map(|(place, workflow)| (workflow.value.id.as_str(), place))
        .collect();
    let registered = registered_depths(context);
    let mut depth: Vec<Option<u32>> = vec![None; workflows.len()];
    let mut on_way = vec![false; workflows.len()];
    for start in 0..workflows.len() {
        let mut way: Vec<(usize, usize)> = Vec::new();
        if depth[start].is_none() {
            way.push((start, 0));
            on_way[start] = true;
        }
        while let Some((place, tried)) = way.last_mut() {
            let place = *place;
            let Some((node, _, target)) = calls[place].calls.get(*tried) else {
                way.pop();
                on_way[place] = false;
                let found = nesting(&calls[place], &by_id, &depth, &registered);
                depth[place] = Some(found);
                let allowed = workflows[place].value.config.max_depth.unwrap_or(DEFAULT_MAX_DEPTH);
                if found > allowed {
                    let message =
                        format!("forks and called sub-workflows nest {found} deep; `config.maxDepth` allows {allowed}");
                    sites[place].fault(FaultCode::LimitExceeded, &[], message);
                }
                continue;
            };
            *tried += 1;
            let Some(next) = by_id.get(target.as_str()).copied() else {
                continue;
            };
            if on_way[next] {
                let from = way.iter().position(|(on, _)| *on == next).unwrap_or_default();
                let mut circle: Vec<&str> = way[from..]
                    .iter()
                    .map(|(on, _)| workflows[*on].value.id.as_str())
                    .collect();
                circle.push(target);
                let message = format!("sub-workflows call each other in a circle: {}", circle.join(" -> "));
                sites[place].fault(
                    FaultCode::SubgraphCycle,
                    &at!["nodes", *node, "config", "subgraphId"],
                    message,
                );
            } else if depth[next].is_none() {
                way.push((next, 0));
                on_way[next] = true;
            }
        }
    }
}

fn nesting(
    calls: &Calls,
    by_id: &BTreeMap<&str, usize>,
    depth: &[Option<u32>],
    registered: &BTreeMap<&str, u32>,
) -> u32 {
    let called = calls.calls.iter().map(|(_, forks, target)| {
        let inner = match by_id.get(target.as_str()) {
            Some(place) => depth[*place].unwrap_or_default(),
            None => registered.get(target.as_str()).copied().unwrap_or_default(),
        };
        forks.saturating_add(1).saturating_add(inner)
    });
    called.max().unwrap_or_default().max(calls.forks)
}

/// At least how deep the calls of the registered workflows nest. They are compiled, so free of circles.
fn registered_depths<'a>(context: &CompileContext<'a>) -> BTreeMap<&'a str, u32> {
    let mut depths: BTreeMap<&str, u32> = context
        .registered
        .iter()
        .map(|graph| (&*graph.workflow_id, 0))
        .collect();
    // each was registered after those it calls, so one pass in order is enough
    for graph in context.registered {
        let called = graph.nodes.iter().filter_map(|node| match &node.kind {
            NodeKind::Subgraph { workflow_id, .. } if !node.edges.is_empty() => Some(workflow_id),
            _ => None,
        });
        let inner = called
            .filter_map(|id| depths.get(&**id))
            .map(|inner| inner.saturating_add(1))
            .max();
        depths.insert(&graph.workflow_id, inner.unwrap_or_default());
    }
    depths
}
