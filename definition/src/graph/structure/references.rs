//! References between workflows: unknown names, cycles of calls, and the nesting depth of calls.

use std::collections::BTreeMap;

use super::adjacency::Adjacency;
use super::regions::Depths;
use crate::definition::json::Step;
use crate::definition::{
    FaultCode, Located, NodeConfig, NodeDefinition, WorkflowDefinition, nearest, workflow_of_tool,
};
use crate::graph::compile_context::CompileContext;
use crate::graph::diagnostics::{Diagnostics, pointer};
use crate::graph::model::Node;

/// Default of `config.maxDepth`.
const DEFAULT_MAX_DEPTH: u32 = 10;

/// The kind of workflow that an id names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::graph) enum WorkflowKind {
    Normal,
    Triggered,
    /// The workflow exists, but could not be read.
    Unreadable,
}

/// All workflows that may be referenced.
pub(in crate::graph) struct WorkflowNames<'a>(BTreeMap<&'a str, WorkflowKind>);

impl<'a> WorkflowNames<'a> {
    pub(in crate::graph) fn of(workflows: &'a [Located<WorkflowDefinition>], context: &CompileContext<'a>) -> Self {
        let mut names = BTreeMap::new();
        for graph in context.registered {
            let known = if graph.triggered {
                WorkflowKind::Triggered
            } else {
                WorkflowKind::Normal
            };
            names.insert(&*graph.workflow_id, known);
        }
        for id in context.unreadable {
            names.insert(id.as_str(), WorkflowKind::Unreadable);
        }
        for workflow in workflows {
            let unclear = workflow.origin.holes().nodes;
            let known = match (is_triggered(&workflow.value), unclear) {
                (true, _) => WorkflowKind::Triggered,
                (false, false) => WorkflowKind::Normal,
                (false, true) => WorkflowKind::Unreadable,
            };
            names.insert(workflow.value.id.as_str(), known);
        }
        Self(names)
    }

    pub(in crate::graph) fn find(&self, id: &str) -> Option<WorkflowKind> {
        self.0.get(id).copied()
    }

    /// Returns true if the workflow exists, or if the id of some workflow could not be read.
    pub(in crate::graph) fn may_exist(&self, id: &str) -> bool {
        self.0.contains_key(id) || self.0.contains_key("")
    }

    pub(in crate::graph) fn calls_normal(&self, node: &NodeDefinition) -> bool {
        node.config
            .as_subgraph()
            .is_some_and(|subgraph| self.find(&subgraph.subgraph_id) == Some(WorkflowKind::Normal))
    }

    /// Reports an unknown name, or one of the wrong kind of workflow.
    pub(in crate::graph) fn check(
        &self,
        id: &str,
        wanted: WorkflowKind,
        pointer: &[Step],
        report: &mut Diagnostics<'_>,
    ) {
        match (self.find(id), wanted) {
            _ if id.is_empty() => report.fault(FaultCode::MissingField, pointer, "the id of a workflow is missing"),
            (None, _) if self.may_exist(id) => {}
            (None, _) => {
                let message = format!("unknown workflow `{id}`");
                let help = match nearest(id, self.0.keys().copied()) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => "give the file that defines it too".to_owned(),
                };
                report.fault_with_help(FaultCode::UnknownWorkflowReference, pointer, message, &help);
            }
            (Some(WorkflowKind::Normal), WorkflowKind::Triggered) => {
                let message = format!("`{id}` is not a triggered sub-workflow: it has no START_FROM_TRIGGER");
                report.fault(FaultCode::InvalidTriggeredWorkflow, pointer, message);
            }
            (Some(WorkflowKind::Triggered), WorkflowKind::Normal) => {
                let message = format!("`{id}` is a triggered sub-workflow: only a trigger can run it");
                report.fault(FaultCode::InvalidTriggeredWorkflow, pointer, message);
            }
            (Some(WorkflowKind::Normal | WorkflowKind::Triggered | WorkflowKind::Unreadable), _) => {}
        }
    }
}

/// True if a workflow is meant as a triggered one.
pub(in crate::graph) fn is_triggered(workflow: &WorkflowDefinition) -> bool {
    workflow.nodes.iter().any(|node| {
        matches!(
            node.config,
            NodeConfig::StartFromTrigger | NodeConfig::ContinueFromTrigger(_)
        )
    })
}

/// Reports faulty references in the SUBGRAPH and MAP nodes of a workflow.
pub(in crate::graph) fn check_subgraphs(
    definition: &WorkflowDefinition,
    adjacency: &Adjacency,
    names: &WorkflowNames<'_>,
    placeholders: &[usize],
    report: &mut Diagnostics<'_>,
) {
    for (place, node) in definition.nodes.iter().enumerate() {
        if placeholders.binary_search(&place).is_ok() {
            continue;
        }
        let mut check_tool = |number: usize, tool: &str| {
            if let Some(id) = workflow_of_tool(tool) {
                let pointer = pointer!["nodes", place, "config", "tools", number];
                names.check(id, WorkflowKind::Normal, &pointer, report);
            }
        };
        match &node.config {
            NodeConfig::Llm(llm) => (0..)
                .zip(&llm.tools)
                .for_each(|(number, tool)| check_tool(number, tool)),
            NodeConfig::Script(script) => (0..)
                .zip(&script.tools)
                .for_each(|(number, tool)| check_tool(number, tool)),
            _other => {}
        }
        let pointer = pointer!["nodes", place, "config", "subgraphId"];
        let subgraph = match &node.config {
            NodeConfig::Subgraph(subgraph) => subgraph,
            NodeConfig::Map(map) => {
                names.check(&map.subgraph_id, WorkflowKind::Normal, &pointer, report);
                continue;
            }
            _ => continue,
        };
        let holes = report.origin.holes();
        if adjacency.edges[place].is_empty() && !holes.transitions && !holes.nodes {
            if names.calls_normal(node) {
                let id = &subgraph.subgraph_id;
                let message = format!(
                    "`{}` has no outgoing edge, so it declares a triggered sub-workflow; `{id}` has no START_FROM_TRIGGER",
                    node.id
                );
                let help = "add an edge to call it, or name a workflow with START_FROM_TRIGGER";
                report.fault_with_help(FaultCode::InvalidTriggeredWorkflow, &pointer, message, help);
            } else {
                names.check(&subgraph.subgraph_id, WorkflowKind::Triggered, &pointer, report);
            }
        } else {
            names.check(&subgraph.subgraph_id, WorkflowKind::Normal, &pointer, report);
        }
    }
}

/// Calls of a workflow: the node, the number of forks around it, and the called workflow.
pub(in crate::graph) struct Calls {
    pub(in crate::graph) forks: u32,
    pub(super) calls: Vec<(usize, u32, String)>,
}

impl Calls {
    pub(in crate::graph) fn of(definition: &WorkflowDefinition, adjacency: &Adjacency, depths: &Depths) -> Self {
        let mut calls = Vec::new();
        for (place, node) in definition.nodes.iter().enumerate() {
            let called = match &node.config {
                NodeConfig::Subgraph(subgraph) if !adjacency.declares[place] => &subgraph.subgraph_id,
                NodeConfig::Map(map) => &map.subgraph_id,
                _ => continue,
            };
            calls.push((place, depths[place].unwrap_or_default(), called.clone()));
        }
        Self {
            forks: depths.iter().flatten().copied().max().unwrap_or_default(),
            calls,
        }
    }
}

/// Reports cycles of calls, and nesting deeper than `config.maxDepth`.
pub(in crate::graph) fn check_calls(
    workflows: &[Located<WorkflowDefinition>],
    calls: &[Calls],
    context: &CompileContext<'_>,
    reports: &mut [Diagnostics<'_>],
) {
    let by_id: BTreeMap<&str, usize> = workflows
        .iter()
        .enumerate()
        .rev()
        .map(|(place, workflow)| (workflow.value.id.as_str(), place))
        .collect();
    let registered = registered_depths(context);
    let mut depth: Vec<Option<u32>> = vec![None; workflows.len()];
    let mut on_stack = vec![false; workflows.len()];
    for start in 0..workflows.len() {
        let mut stack: Vec<(usize, usize)> = Vec::new();
        if depth[start].is_none() {
            stack.push((start, 0));
            on_stack[start] = true;
        }
        while let Some((place, tried)) = stack.last_mut() {
            let place = *place;
            let Some((node, _, target)) = calls[place].calls.get(*tried) else {
                stack.pop();
                on_stack[place] = false;
                let found = nesting(&calls[place], &by_id, &depth, &registered);
                depth[place] = Some(found);
                let allowed = workflows[place].value.config.max_depth.unwrap_or(DEFAULT_MAX_DEPTH);
                if found > allowed {
                    let message =
                        format!("forks and called sub-workflows nest {found} deep; `config.maxDepth` allows {allowed}");
                    reports[place].fault(FaultCode::LimitExceeded, &[], message);
                }
                continue;
            };
            *tried += 1;
            let Some(next) = by_id.get(target.as_str()).copied() else {
                continue;
            };
            if on_stack[next] {
                let from = stack.iter().position(|(on, _)| *on == next).unwrap_or_default();
                let mut cycle: Vec<&str> = stack[from..]
                    .iter()
                    .map(|(on, _)| workflows[*on].value.id.as_str())
                    .collect();
                cycle.push(target);
                let message = format!("sub-workflows call each other in a cycle: {}", cycle.join(" -> "));
                reports[place].fault(
                    FaultCode::SubgraphCycle,
                    &pointer!["nodes", *node, "config", "subgraphId"],
                    message,
                );
            } else if depth[next].is_none() {
                stack.push((next, 0));
                on_stack[next] = true;
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

/// Returns a lower bound of the nesting depth of the registered workflows' calls. These workflows are compiled, so free of
/// cycles.
fn registered_depths<'a>(context: &CompileContext<'a>) -> BTreeMap<&'a str, u32> {
    let mut depths: BTreeMap<&str, u32> = context
        .registered
        .iter()
        .map(|graph| (&*graph.workflow_id, 0))
        .collect();
    // each workflow was registered after those it calls, so one pass in order suffices
    for graph in context.registered {
        let called = graph.nodes.iter().filter_map(Node::calls);
        let inner = called
            .filter_map(|id| depths.get(&**id))
            .map(|inner| inner.saturating_add(1))
            .max();
        depths.insert(&graph.workflow_id, inner.unwrap_or_default());
    }
    depths
}
