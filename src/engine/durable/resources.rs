//! Determines the tools and model profiles that a run's workflows name and the engine lacks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use pirn_actors::journal::Graphs;
use pirn_actors::ports::{Models, Tools};
use pirn_definition::definition::{ToolEntry, TriggerAction, workflow_of_tool};
use pirn_definition::graph::{Graph, NodeKind};

/// An engine's tools and models, to determine which resources of a run it lacks.
pub(crate) struct Resources {
    tools: Arc<dyn Tools>,
    models: Arc<dyn Models>,
    /// Results for the graphs of the last request, by the run's workflow.
    last: Mutex<Option<(Graphs, ByWorkflow)>>,
}

type ByWorkflow = BTreeMap<Arc<str>, Arc<[String]>>;

impl Resources {
    pub(crate) fn new(tools: Arc<dyn Tools>, models: Arc<dyn Models>) -> Self {
        Self {
            tools,
            models,
            last: Mutex::new(None),
        }
    }

    /// Returns the names that a run of this workflow may call and this engine lacks: `tool NAME`, `profile ID`.
    pub(super) fn missing(&self, graphs: &Graphs, workflow_id: &str) -> Arc<[String]> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        // Every start and resume calls this, and the scan visits all nodes of the workflow, so results are cached for the current
        // graphs.
        let known = last.take().filter(|(of, _)| Arc::ptr_eq(of, graphs));
        let (_, by_workflow) = last.insert(known.unwrap_or_else(|| (Arc::clone(graphs), ByWorkflow::new())));
        if let Some(missing) = by_workflow.get(workflow_id) {
            return Arc::clone(missing);
        }
        let missing: Arc<[String]> = self.look(graphs, workflow_id).into();
        by_workflow.insert(workflow_id.into(), Arc::clone(&missing));
        missing
    }

    fn look(&self, graphs: &Graphs, workflow_id: &str) -> Vec<String> {
        // A resumed run may use profiles of its stored definition that the engine does not have.
        let own = self.models.of_run(graphs);
        let models = own.as_ref().unwrap_or(&self.models);
        let mut missing = BTreeSet::new();
        for graph in reachable(graphs, workflow_id) {
            for node in &graph.nodes {
                let (tools, profile) = match &node.kind {
                    NodeKind::Llm(llm) => (&llm.tools[..], llm.profile_id.as_ref()),
                    NodeKind::Orchestration(script) => (&script.tools[..], script.profile_id.as_ref()),
                    NodeKind::Tool { name, .. } => (std::slice::from_ref(name), None),
                    // Other nodes call nothing that is registered by name, or the compiler has checked their function.
                    _ => continue,
                };
                let tools = tools
                    .iter()
                    // The compiler has checked the workflows that models call.
                    .filter(|name| workflow_of_tool(name).is_none())
                    .map(|name| Arc::from(ToolEntry::name_in(name)))
                    .filter(|name: &Arc<str>| self.tools.specs(std::slice::from_ref(name)).is_empty());
                missing.extend(tools.map(|name| format!("tool {name}")));
                // An undefined profile has an empty provider.
                let profile = profile.filter(|id| models.choose(Some(id)).0.provider.is_empty());
                missing.extend(profile.map(|id| format!("profile {id}")));
            }
        }
        missing.into_iter().collect()
    }
}

/// Returns the workflow with those that it calls or that its triggers run inside the run.
fn reachable<'g>(graphs: &'g Graphs, workflow_id: &str) -> Vec<&'g Arc<Graph>> {
    let mut seen = BTreeSet::new();
    let mut left = vec![workflow_id.to_owned()];
    let mut found = Vec::new();
    while let Some(id) = left.pop() {
        // Several nodes and triggers may refer to one workflow, which is visited once.
        let Some(graph) = graphs.get(&id).filter(|_| !seen.contains(&id)) else {
            continue;
        };
        seen.insert(id);
        found.push(graph);
        left.extend(
            graph
                .nodes
                .iter()
                .flat_map(|node| match &node.kind {
                    NodeKind::Llm(llm) => llm.tools.iter().filter_map(|tool| workflow_of_tool(tool)).collect(),
                    _ => Vec::new(),
                })
                .map(str::to_owned),
        );
        left.extend(graph.nodes.iter().filter_map(|node| match &node.kind {
            NodeKind::Subgraph { workflow_id, .. } => Some(workflow_id.to_string()),
            NodeKind::Map(map) => Some(map.workflow_id.to_string()),
            _ => None,
        }));
        left.extend(graph.triggers.iter().filter_map(|trigger| match &trigger.action {
            TriggerAction::ExecuteTriggeredSubgraph(run) => Some(run.triggered_workflow_id.clone()),
            _ => None,
        }));
    }
    found
}
