//! A workflow and its parts.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value};

use super::Loader;
use super::advice;
use super::fork::resolve_forks;
use super::node::{normalise_node, read_node};
use super::script::insert_scripts;
use super::skills::insert_skills;
use super::trigger::read_trigger;
use crate::definition::fault::FaultCode;
use crate::definition::json::{Json, Member, Tree};
use crate::definition::origin::{LoadGaps, Located, Origin};
use crate::definition::{
    EdgeDefinition, NodeDefinition, TriggerDefinition, VariableDefinition, WorkflowConfig, WorkflowDefinition,
};

/// Reads a workflow; unreadable parts are reported and omitted.
pub(super) fn read_workflow(loader: &mut Loader, mut tree: Tree) {
    if !tree.is_object() {
        loader.fault_in(
            FaultCode::InvalidValue,
            &tree,
            format!("expected a workflow, found {}", tree.kind()),
        );
        loader.out.unreadable.push(String::new());
        return;
    }
    let before = loader.out.faults.len();
    loader.gaps.clear();
    let mut holes = LoadGaps::default();
    insert_skills(loader, &mut tree);
    insert_scripts(loader, &mut tree);

    holes.nodes = loader.is_repeated(&tree, &["nodes"]);
    holes.transitions = loader.is_repeated(&tree, &["edges"]);
    let lacks_variables = loader.is_repeated(&tree, &["variables"]);
    let taken = ["nodes", "edges", "variables", "triggers", "config"].map(|key| take_given(&mut tree, key));
    let head = loader.read::<Head>(&mut tree, &[]);
    let [nodes, edges, variables, triggers, mut config] = taken;
    let mut nodes = check_list(loader, &tree, "nodes", nodes, true);
    let mut edges = check_list(loader, &tree, "edges", edges, true);
    let has_variables = variables.is_some();
    let mut variables = check_list(loader, &tree, "variables", variables, false);
    holes.variables = lacks_variables || (has_variables && variables.is_none());
    let mut triggers = check_list(loader, &tree, "triggers", triggers, false);

    holes.transitions |= edges.is_none();
    holes.nodes |= nodes.is_none();
    let read_edges = read_each(&mut edges, |edge| {
        if loader.is_full() {
            holes.transitions = true;
            return None;
        }
        let before = loader.out.faults.len();
        let is_unclear = loader.is_repeated(edge, EDGE_ENDS);
        let read = loader.read::<EdgeDefinition>(edge, &["edges"]);
        let read = read.filter(|_| !is_unclear);
        holes.transitions |= read.is_none() || loader.out.faults.len() > before;
        read
    });
    if let Some(nodes) = nodes.as_mut().and_then(items_mut) {
        for node in nodes.iter_mut() {
            if loader.is_full() {
                break;
            }
            normalise_node(loader, node);
        }
        let before = loader.out.faults.len();
        resolve_forks(loader, nodes, &read_edges);
        holes.transitions |= loader.out.faults.len() > before;
    }
    let mut place = 0;
    let read_nodes: Vec<NodeDefinition> = read_each(&mut nodes, |node| {
        if loader.is_full() {
            holes.nodes = true;
            return None;
        }
        let read = read_node(loader, node, place, &mut holes);
        place += usize::from(read.is_some());
        read
    });
    let read_variables = read_each(&mut variables, |tree| {
        if loader.is_full() {
            return None;
        }
        let read = loader.read::<VariableDefinition>(tree, &["variables"]);
        holes.variables |= read.is_none();
        read
    });
    let read_triggers: Vec<TriggerDefinition> = read_each(&mut triggers, |tree| {
        if loader.is_full() {
            return None;
        }
        read_trigger(loader, tree)
    });
    let read_config = config
        .as_mut()
        .and_then(|member| loader.read::<WorkflowConfig>(&mut member.value, &["config"]));

    let Some(head) = head else {
        let id = tree.get("id").and_then(Tree::as_text).unwrap_or_default();
        loader.out.unreadable.push(id.to_owned());
        return;
    };
    let workflow = WorkflowDefinition {
        id: head.id,
        name: head.name,
        version: head.version,
        description: head.description,
        metadata: head.metadata,
        input_schema: head.input_schema,
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
    holes.incomplete = std::mem::take(&mut loader.gaps);
    let origin = Origin::new(&loader.source, tree, holes);
    loader.out.workflows.push(Located {
        value: workflow,
        origin,
    });
}

/// A workflow without its lists and its config.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    id: String,
    name: Option<String>,
    version: Option<String>,
    description: Option<String>,
    metadata: Option<Map<String, Value>>,
    #[serde(rename = "inputSchema")]
    input_schema: Option<Map<String, Value>>,
    #[serde(rename = "nodes")]
    _nodes: Option<IgnoredAny>,
    #[serde(rename = "edges")]
    _edges: Option<IgnoredAny>,
    #[serde(rename = "variables")]
    _variables: Option<IgnoredAny>,
    #[serde(rename = "triggers")]
    _triggers: Option<IgnoredAny>,
    #[serde(rename = "config")]
    _config: Option<IgnoredAny>,
}

/// Names of the ends of an edge.
const EDGE_ENDS: &[&str] = &["from", "to", "sourceNodeId", "targetNodeId"];

/// Removes a member; a `null` member counts as absent.
fn take_given(tree: &mut Tree, key: &str) -> Option<Member> {
    tree.take(key)
        .filter(|member| !matches!(member.value.value, Json::Null))
}

fn check_list(
    loader: &mut Loader,
    tree: &Tree,
    key: &'static str,
    member: Option<Member>,
    needed: bool,
) -> Option<Member> {
    let Some(member) = member else {
        let echo = loader.reported.contains(&(tree.span.start, key));
        if needed && !echo {
            list_fault(
                loader,
                FaultCode::MissingField,
                tree,
                key,
                format!("`{key}` is missing"),
            );
        }
        return None;
    };
    if member.value.as_list().is_none() {
        let message = format!("`{key}`: expected a list, found {}", member.value.kind());
        list_fault(loader, FaultCode::InvalidValue, &member.value, key, message);
        return None;
    }
    Some(member)
}

/// Reports a list that is missing or is no list; the help shows its form.
fn list_fault(loader: &mut Loader, code: FaultCode, tree: &Tree, key: &str, message: String) {
    let fault = loader.source.fault_in(code, tree, message);
    loader.out.faults.push(match advice::of_list(key) {
        Some(form) => fault.with_help(form),
        None => fault,
    });
}

/// Reads every item. Unreadable items are removed from the list, so that its indices match those of the result.
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
