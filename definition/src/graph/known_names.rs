//! Names that the scripts of a workflow can use.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use super::compile_context::CompileContext;
use super::model::{NodeIx, Snippet, SnippetKind};
use super::syntax::Syntax;
use super::text_fault::TextFault;
use crate::definition::{
    FaultCode, Located, NodeConfig, TriggerAction, TriggerDefinition, WorkflowDefinition, nearest,
};
use crate::script::{FIXED_NAMES, FreeName, JS_GLOBALS, Member, instead_of};

/// Names that a snippet may use in addition to JavaScript's globals and [`FIXED_NAMES`]. The default accepts any name.
#[derive(Clone, Copy, Default)]
pub(super) struct KnownNames<'a>(Option<Sources<'a>>);

#[derive(Clone, Copy)]
struct Sources<'a> {
    variables: Option<&'a BTreeSet<Arc<str>>>,
    nodes: Option<WorkflowNodes<'a>>,
}

/// The nodes of a workflow: their indices by id, and their definitions by index.
#[derive(Clone, Copy)]
struct WorkflowNodes<'a> {
    by_id: &'a BTreeMap<Arc<str>, NodeIx>,
    definition: &'a WorkflowDefinition,
}

/// Fields of the output of an LLM node. The last one replaces the others if the node failed and has `onError`.
const LLM_OUTPUT: [&str; 4] = ["content", "finishReason", "usage", "error"];

/// Fields of the output of a MAP. The last one replaces the others if the node failed and has `onError`.
const MAP_OUTPUT: [&str; 5] = ["results", "completed", "failed", "cancelled", "error"];

/// Fields of the output of a JOIN. The last one replaces the others if the node failed and has `onError`.
const JOIN_OUTPUT: [&str; 7] = [
    "outputs",
    "completed",
    "failed",
    "cancelled",
    "strategy",
    "childThreadIds",
    "error",
];

impl<'a> KnownNames<'a> {
    /// Returns the names in the scope of a workflow's nodes.
    pub(super) fn of_workflow(
        variables: &'a BTreeSet<Arc<str>>,
        by_id: &'a BTreeMap<Arc<str>, NodeIx>,
        definition: &'a WorkflowDefinition,
    ) -> Self {
        Self(Some(Sources {
            variables: Some(variables),
            nodes: Some(WorkflowNodes { by_id, definition }),
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
        let mut faults = Vec::new();
        // End of the last reported name: each part of a name with a hyphen is a free name too.
        let mut reported = 0;
        for free in syntax.free_names(text) {
            if free.at.start < reported {
                continue;
            }
            if let Some(nodes) = sources.nodes.filter(|_| free.name == "nodes") {
                let wrong = free
                    .members
                    .iter()
                    .filter_map(|member| nodes.fault(&text.source, member));
                faults.extend(wrong);
            }
            // A script workflow has a recorded clock.
            if free.name == "Date" && text.kind != SnippetKind::Workflow {
                faults.extend(
                    free.members
                        .iter()
                        .filter_map(|member| clock_fault(&text.source, member)),
                );
            }
            if sources.have(&free.name) {
                continue;
            }
            if let Some(fault) = sources.hyphenated(&text.source, &free) {
                reported = fault.at.as_ref().map_or(reported, |at| at.end);
                faults.push(fault);
            } else {
                faults.push(sources.fault(free));
            }
        }
        faults
    }
}

impl WorkflowNodes<'_> {
    /// Returns the fault of `nodes.MEMBER`, if there is no such node, or of `nodes.MEMBER.FIELD`, if its output never has the field.
    /// Without the check both are `undefined`, which becomes null in an output.
    fn fault(&self, source: &str, member: &Member) -> Option<TextFault> {
        let id = &source[member.at.clone()];
        let fault = |message: String, help: Option<String>, at: &Range<usize>| TextFault {
            code: FaultCode::UnknownName,
            message,
            help,
            at: Some(at.clone()),
            name: Some(source[at.clone()].to_owned()),
        };
        let Some(place) = self.by_id.get(id) else {
            let near = nearest(id, self.by_id.keys().map(AsRef::as_ref));
            let help = near.map(|near| format!("did you mean `{near}`?"));
            return Some(fault(format!("unknown node `{id}`"), help, &member.at));
        };
        let at = member.field.as_ref()?;
        let field = &source[at.clone()];
        let node = self.definition.nodes.get(*place as usize)?;
        let (of, fields): (&str, &[&str]) = match &node.config {
            NodeConfig::Llm(_) => ("LLM node", &LLM_OUTPUT),
            NodeConfig::Join(_) => ("JOIN", &JOIN_OUTPUT),
            NodeConfig::Map(_) => ("MAP", &MAP_OUTPUT),
            _other => return None,
        };
        if fields.contains(&field) {
            return None;
        }
        let message = format!("the output of the {of} `{id}` has no field `{field}`");
        let listed: Vec<String> = fields.iter().map(|name| format!("`{name}`")).collect();
        let paths = match &node.config {
            NodeConfig::Join(join) if !join.fork_path_ids.is_empty() => {
                format!(
                    "; the output of a path is in `outputs`, such as `nodes['{id}'].outputs['{}']`",
                    join.fork_path_ids[0]
                )
            }
            _other => String::new(),
        };
        Some(fault(
            message,
            Some(format!("its fields are {}{paths}", listed.join(", "))),
            at,
        ))
    }
}

impl Sources<'_> {
    fn have(&self, name: &str) -> bool {
        FIXED_NAMES.contains(&name)
            || JS_GLOBALS.binary_search(&name).is_ok()
            || self.variables.is_some_and(|names| names.contains(name))
            || self.nodes.is_some_and(|nodes| nodes.by_id.contains_key(name))
    }

    /// Returns the fault of a bare id of a node with a hyphen, which JavaScript reads as a subtraction.
    fn hyphenated(&self, source: &str, free: &FreeName) -> Option<TextFault> {
        let is_part = |letter: char| letter.is_alphanumeric() || matches!(letter, '_' | '$' | '-');
        let before = &source[..free.at.start];
        let start = before.trim_end_matches(is_part).len();
        let rest = &source[free.at.end..];
        let end = source.len() - rest.trim_start_matches(is_part).len();
        let whole = &source[start..end];
        if !whole.contains('-') || !self.nodes?.by_id.contains_key(whole) {
            return None;
        }
        Some(TextFault {
            code: FaultCode::UnknownName,
            message: format!("`{whole}` is read as a subtraction: a hyphen is an operator"),
            help: Some(format!("write `nodes['{whole}']`")),
            at: Some(start..end),
            name: None,
        })
    }

    fn fault(&self, free: FreeName) -> TextFault {
        let variables = self.variables.into_iter().flatten();
        let nodes = self.nodes.into_iter().flat_map(|nodes| nodes.by_id.keys());
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

/// Returns the fault of `Date.now`, which throws whenever a script calls it.
fn clock_fault(source: &str, member: &Member) -> Option<TextFault> {
    (&source[member.at.clone()] == "now").then(|| TextFault {
        code: FaultCode::UnknownName,
        message: "`Date.now` does not exist in scripts, because a repeated run must have the same result".to_owned(),
        help: Some("there is no clock here: pass the time as input".to_owned()),
        at: Some(member.at.clone()),
        name: Some("Date.now".to_owned()),
    })
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
        | NodeConfig::Script(_)
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
