//! A workflow and its parts.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::Loader;
use super::fork::resolve_forks;
use super::node::{normalise_node, read_node};
use super::shape::WORKFLOW;
use super::trigger::read_trigger;
use crate::definition::fault::FaultCode;
use crate::definition::json::{Json, Member, Tree};
use crate::definition::origin::{Holes, Located, Origin};
use crate::definition::{
    EdgeDefinition, NodeDefinition, TriggerDefinition, VariableDefinition, WorkflowConfig, WorkflowDefinition,
};

/// Reads a workflow; what cannot be read is left out and reported.
pub(super) fn read_workflow(loader: &mut Loader, mut tree: Tree) {
    if !tree.is_object() {
        loader.fault_in(
            FaultCode::InvalidValue,
            &tree,
            format!("expected a workflow, found {}", tree.kind()),
        );
        return;
    }
    let before = loader.out.faults.len();
    loader.normalise(&WORKFLOW, &mut tree);
    let mut holes = Holes::default();

    let mut nodes = take_list(loader, &mut tree, "nodes", true);
    let mut edges = take_list(loader, &mut tree, "edges", true);
    let mut variables = take_list(loader, &mut tree, "variables", false);
    let mut triggers = take_list(loader, &mut tree, "triggers", false);
    let mut config = tree.take("config");
    let head = loader.read::<Head>(&mut tree, &[]);

    holes.transitions |= edges.is_none();
    holes.nodes |= nodes.is_none();
    let read_edges = read_each(&mut edges, |edge| {
        let before = loader.out.faults.len();
        let read = loader.read::<EdgeDefinition>(edge, &["edges"]);
        holes.transitions |= read.is_none() || loader.out.faults.len() > before;
        read
    });
    if let Some(nodes) = nodes.as_mut().and_then(items_mut) {
        for node in nodes.iter_mut() {
            normalise_node(loader, node, &mut holes);
        }
        resolve_forks(loader, nodes, &read_edges);
    }
    let mut place = 0;
    let read_nodes: Vec<NodeDefinition> = read_each(&mut nodes, |node| {
        let read = read_node(loader, node, place, &mut holes);
        place += usize::from(read.is_some());
        read
    });
    let read_variables = read_each(&mut variables, |tree| {
        loader.read::<VariableDefinition>(tree, &["variables"])
    });
    let read_triggers: Vec<TriggerDefinition> = read_each(&mut triggers, |tree| read_trigger(loader, tree));
    let read_config = config
        .as_mut()
        .and_then(|member| loader.read::<WorkflowConfig>(&mut member.value, &["config"]));

    let Some(head) = head else {
        if let Some(id) = tree.get("id").and_then(Tree::as_text) {
            loader.out.unreadable.push(id.to_owned());
        }
        return;
    };
    let workflow = WorkflowDefinition {
        id: head.id,
        name: head.name,
        version: head.version,
        description: head.description,
        metadata: head.metadata,
        variables: read_variables,
        nodes: read_nodes,
        edges: read_edges,
        triggers: read_triggers,
        config: read_config.unwrap_or_default(),
    };
    if let Some(members) = tree.members_mut() {
        members.extend([nodes, edges, variables, triggers, config].into_iter().flatten());
    }
    holes.faulty = loader.out.faults.len() > before;
    let origin = Origin::new(&loader.source, tree, holes);
    loader.out.workflows.push(Located {
        value: workflow,
        origin,
    });
}

/// What a workflow says of itself.
#[derive(Deserialize)]
struct Head {
    id: String,
    name: Option<String>,
    version: Option<String>,
    description: Option<String>,
    metadata: Option<Map<String, Value>>,
}

fn take_list(loader: &mut Loader, tree: &mut Tree, key: &str, needed: bool) -> Option<Member> {
    let Some(member) = tree.take(key) else {
        let echo = loader
            .reported
            .iter()
            .any(|(object, field)| *object == tree.span.start && *field == key);
        if needed && !echo {
            loader.fault_in(FaultCode::MissingField, tree, format!("`{key}` is missing"));
        }
        return None;
    };
    if member.value.as_list().is_none() {
        let message = format!("`{key}`: expected a list, found {}", member.value.kind());
        loader.fault_in(FaultCode::InvalidValue, &member.value, message);
        return None;
    }
    Some(member)
}

/// Reads every item; items that cannot be read leave the list, so that places keep fitting.
fn read_each<T>(member: &mut Option<Member>, mut read: impl FnMut(&mut Tree) -> Option<T>) -> Vec<T> {
    let mut found = Vec::new();
    if let Some(items) = member.as_mut().and_then(items_mut) {
        found.reserve_exact(items.len());
        items.retain_mut(|item| match read(item) {
            Some(value) => {
                found.push(value);
                true
            }
            None => false,
        });
    }
    found
}

fn items_mut(member: &mut Member) -> Option<&mut Vec<Tree>> {
    match &mut member.value.value {
        Json::List(items) => Some(items),
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::Text(_) | Json::Object(_) => None,
    }
}
