//! Names that the scripts of a workflow can use.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::compile_context::CompileContext;
use super::model::{NodeIx, Snippet};
use super::syntax::Syntax;
use super::text_fault::TextFault;
use crate::definition::{
    FaultCode, Located, NodeConfig, TriggerAction, TriggerDefinition, WorkflowDefinition, nearest,
};
use crate::script::{FIXED_NAMES, FreeName, JS_GLOBALS, instead_of};

/// Names that a snippet may use in addition to JavaScript's globals and [`FIXED_NAMES`]. The default accepts any name.
#[derive(Clone, Copy, Default)]
pub(super) struct KnownNames<'a>(Option<Sources<'a>>);

#[derive(Clone, Copy)]
struct Sources<'a> {
    variables: Option<&'a BTreeSet<Arc<str>>>,
    nodes: Option<&'a BTreeMap<Arc<str>, NodeIx>>,
}

impl<'a> KnownNames<'a> {
    /// Returns the names in the scope of a workflow's nodes.
    pub(super) fn of_workflow(variables: &'a BTreeSet<Arc<str>>, nodes: &'a BTreeMap<Arc<str>, NodeIx>) -> Self {
        Self(Some(Sources {
            variables: Some(variables),
            nodes: Some(nodes),
        }))
    }

    /// Returns the names in the scope of a trigger, which has no variables or nodes.
    pub(super) fn of_trigger() -> Self {
        Self(Some(Sources {
            variables: None,
            nodes: None,
        }))
    }

    /// Returns a fault for each unknown name of a snippet that parses.
    pub(super) fn unknown_in(&self, text: &Snippet, syntax: &dyn Syntax) -> Vec<TextFault> {
        let Some(sources) = &self.0 else {
            return Vec::new();
        };
        let free = syntax.free_names(text).into_iter();
        let unknown = free.filter(|free| !sources.have(&free.name));
        unknown.map(|free| sources.fault(free)).collect()
    }
}

impl Sources<'_> {
    fn have(&self, name: &str) -> bool {
        FIXED_NAMES.contains(&name)
            || JS_GLOBALS.binary_search(&name).is_ok()
            || self.variables.is_some_and(|names| names.contains(name))
            || self.nodes.is_some_and(|nodes| nodes.contains_key(name))
    }

    fn fault(&self, free: FreeName) -> TextFault {
        let variables = self.variables.into_iter().flatten();
        let nodes = self.nodes.into_iter().flat_map(BTreeMap::keys);
        let known = variables.chain(nodes).map(AsRef::as_ref);
        TextFault {
            code: FaultCode::UnknownName,
            message: format!("unknown name `{}`", free.name),
            help: Some(name_advice(&free.name, known, free.is_assigned)),
            at: Some(free.at),
            name: Some(free.name),
        }
    }
}

/// Returns advice for an unknown name: a replacement, the most similar known name, or how to declare it.
pub fn name_advice<'n>(name: &str, known: impl Iterator<Item = &'n str>, is_assigned: bool) -> String {
    if let Some(instead) = instead_of(name) {
        return instead.to_owned();
    }
    let known = known.chain(FIXED_NAMES).chain(JS_GLOBALS.iter().copied());
    match nearest(name, known) {
        Some(near) => format!("did you mean `{near}`?"),
        None if is_assigned => format!("declare it: `let {name} = ...`; return the values that other nodes need"),
        None => "a bare name is a variable or the id of a node: declare it in `variables`, or write `input.` before it"
            .to_owned(),
    }
}

/// Returns the names of all variables that these workflows and triggers, and the registered workflows, may assign.
pub(super) fn variable_names(
    workflows: &[Located<WorkflowDefinition>],
    triggers: &[Located<TriggerDefinition>],
    context: &CompileContext<'_>,
) -> BTreeSet<Arc<str>> {
    let registered = context.registered.iter().flat_map(|graph| graph.variable_names.iter());
    let mut names: BTreeSet<Arc<str>> = registered.cloned().collect();
    let workflows = || workflows.iter().map(|workflow| &workflow.value);
    let declared = workflows().flat_map(|workflow| &workflow.variables);
    names.extend(declared.map(|variable| Arc::from(variable.name.as_str())));
    let nodes = workflows().flat_map(|workflow| &workflow.nodes);
    names.extend(nodes.filter_map(|node| assigned(&node.config)).map(Arc::from));
    let inner = workflows().flat_map(|workflow| &workflow.triggers);
    let triggers = inner.chain(triggers.iter().map(|trigger| &trigger.value));
    names.extend(triggers.filter_map(|trigger| match &trigger.action {
        TriggerAction::SetVariable { variable_name, .. } => Some(Arc::from(variable_name.as_str())),
        _other => None,
    }));
    names
}

/// Returns the variable that a node assigns.
fn assigned(config: &NodeConfig) -> Option<&str> {
    match config {
        NodeConfig::Variable(variable) => Some(&variable.variable_name),
        NodeConfig::Tool(tool) => tool.assign_to.as_deref(),
        NodeConfig::UserInteraction(question) => question.assign_to.as_deref(),
        NodeConfig::LoopStart(node) => node.data_source.as_ref()?.variable_name.as_deref(),
        NodeConfig::Start
        | NodeConfig::End(_)
        | NodeConfig::Llm(_)
        | NodeConfig::Code(_)
        | NodeConfig::Route(_)
        | NodeConfig::Fork(_)
        | NodeConfig::Join(_)
        | NodeConfig::Map(_)
        | NodeConfig::Subgraph(_)
        | NodeConfig::ContextProcessor(_)
        | NodeConfig::Wait(_)
        | NodeConfig::LoopEnd(_)
        | NodeConfig::StartFromTrigger
        | NodeConfig::ContinueFromTrigger(_) => None,
    }
}
