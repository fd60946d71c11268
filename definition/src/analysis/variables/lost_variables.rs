//! `MISSING_FIELD` as a warning: a JOIN without `mergeVariables`, although a branch assigns a variable for the nodes after it.

use std::collections::{BTreeMap, BTreeSet};

use crate::analysis::facts::flow_facts::FlowFacts;
use crate::analysis::facts::reads::{reads, snippets_of, words_of_json};
use crate::analysis::{Analysis, Flow, is_stated};
use crate::definition::{FaultCode, MergeVariables, VariableScope};
use crate::graph::diagnostics::pointer;
use crate::graph::{Fork, Graph, NodeIx, NodeKind};

/// Reports each variable that a node of a branch assigns, that no branch of the fork reads, and that other nodes read. The branch's copy
/// ends with the branch, so that nothing ever reads the assigned value.
pub(in crate::analysis) fn report(flow: &Flow<'_>, facts: &FlowFacts, found: &mut Analysis) {
    let graph = flow.graph;
    if (0..graph.nodes.len() as NodeIx).all(|node| assigned(graph, node).is_none()) {
        return;
    }
    let mut of_triggers = None;
    let mut readers = None;
    for fork in &graph.forks {
        let stated = pointer!["nodes", fork.join_node as usize, "config", "mergeVariables"];
        if fork.join.merge_variables != MergeVariables::None || is_stated(flow.origin, &stated) {
            continue;
        }
        let region = region(facts, fork, found);
        // The copies of an inner fork make the value readable in more places.
        let has_fork = |node: &NodeIx| matches!(graph.node(*node).kind, NodeKind::Fork(_) | NodeKind::Map(_));
        let assigning = region.iter().filter_map(|node| Some((*node, assigned(graph, *node)?)));
        let assigning: Vec<(NodeIx, &str)> = assigning.collect();
        if assigning.is_empty() || region.iter().any(has_fork) {
            continue;
        }
        let used: BTreeSet<String> = region.iter().flat_map(|node| words(flow, *node)).collect();
        found.work += region.len() as u64;
        let of_triggers = of_triggers.get_or_insert_with(|| {
            let triggers = serde_json::to_string(&flow.definition.triggers).unwrap_or_default();
            words_of_json(triggers).collect::<BTreeSet<_>>()
        });
        let readers = readers.get_or_insert_with(|| Readers::of(graph));
        for (node, name) in assigning {
            if used.contains(name) || of_triggers.contains(name) {
                continue;
            }
            let Some(reader) = readers.outside(name, &region) else {
                continue;
            };
            let id = |node: NodeIx| &graph.node(node).id;
            let message = format!(
                "`mergeVariables` is missing: the value that `{}` assigns to `{name}` is dropped with its branch, so that `{}` does not \
                 read it",
                id(node),
                id(reader)
            );
            let pointer = pointer!["nodes", fork.join_node as usize, "config"];
            let fault = flow.origin.fault(FaultCode::MissingField, &pointer, message);
            found.warnings.push(fault.with_help(
                "add `\"mergeVariables\": \"all\"`, or read the outputs of the branches in `output.outputs` of the JOIN",
            ));
        }
    }
}

/// Returns the variable of the thread that a node assigns.
fn assigned(graph: &Graph, node: NodeIx) -> Option<&str> {
    match &graph.node(node).kind {
        NodeKind::Variable { name, scope, .. } if *scope == VariableScope::Thread => Some(name),
        NodeKind::Tool { assign_to, .. } => assign_to.as_deref(),
        NodeKind::UserInteraction(question) => question.assign_to.as_deref(),
        _ => None,
    }
}

/// Returns the nodes of the branches of a fork, without those of inner forks.
fn region(facts: &FlowFacts, fork: &Fork, found: &mut Analysis) -> BTreeSet<NodeIx> {
    let mut region = BTreeSet::new();
    let mut stack: Vec<NodeIx> = fork.paths.iter().map(|path| path.child).collect();
    while let Some(node) = stack.pop() {
        found.work += 1;
        if node != fork.join_node && region.insert(node) {
            stack.extend(facts.taken(node).map(|transition| transition.to));
        }
    }
    region
}

/// Returns the words of a node and of its edges, without the variable that it assigns: `x = x + 1` does not use `x`.
fn words(flow: &Flow<'_>, node: NodeIx) -> BTreeSet<String> {
    let definition = serde_json::to_string(&flow.definition.nodes[node as usize]).unwrap_or_default();
    let mut words: BTreeSet<String> = words_of_json(definition).collect();
    if let Some(own) = assigned(flow.graph, node) {
        words.remove(own);
    }
    let conditions = flow.graph.node(node).edges.iter().filter_map(|edge| edge.condition);
    words.extend(conditions.flat_map(|text| words_of_json(flow.graph.snippet(text).source.to_string())));
    words
}

/// The first nodes that read each name.
struct Readers(BTreeMap<String, Vec<NodeIx>>);

impl Readers {
    fn of(graph: &Graph) -> Self {
        let mut readers: BTreeMap<String, Vec<NodeIx>> = BTreeMap::new();
        for place in 0..graph.nodes.len() as NodeIx {
            let node = graph.node(place);
            let conditions = node.edges.iter().filter_map(|edge| edge.condition);
            let texts = snippets_of(node).into_iter().map(|(_, text)| text).chain(conditions);
            for read in texts.flat_map(|text| reads(graph, text)) {
                let name = match read.member {
                    Some(member) if read.name == "variables" => member,
                    _ => read.name,
                };
                let places = readers.entry(name).or_default();
                if places.last() != Some(&place) {
                    places.push(place);
                }
            }
        }
        Self(readers)
    }

    /// Returns the first node outside of a region that reads a name.
    fn outside(&self, name: &str, region: &BTreeSet<NodeIx>) -> Option<NodeIx> {
        let places = self.0.get(name)?;
        places.iter().copied().find(|place| !region.contains(place))
    }
}
