//! Names that the scripts of a workflow can use.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use super::text_fault::{COMPARE, TextFault};
use crate::definition::{
    FaultCode, Located, NodeConfig, TriggerAction, TriggerDefinition, WorkflowDefinition, nearest,
};
use crate::event_type::{EVENT_FIELDS, EventType, is_kept};
use crate::graph::compile_context::CompileContext;
use crate::graph::model::{NodeIx, Snippet, SnippetKind};
use crate::graph::syntax::Syntax;
use crate::script::{FIXED_NAMES, FreeName, HOST_NAMES, JS_GLOBALS, Member, field_of, instead_of};

/// Names that a snippet may use in addition to JavaScript's globals and [`FIXED_NAMES`]. The default accepts any name.
#[derive(Clone, Copy, Default)]
pub(in crate::graph) struct KnownNames<'a>(Option<Sources<'a>>);

#[derive(Clone, Copy)]
struct Sources<'a> {
    /// Names that are in every scope of this kind.
    fixed: &'static [&'static str],
    variables: Option<&'a BTreeSet<Arc<str>>>,
    nodes: Option<WorkflowNodes<'a>>,
    /// Fields of `event`; `None` if they are not known.
    event: Option<&'a [&'a str]>,
}

/// The nodes of a workflow: their indices by id, and their definitions by index.
#[derive(Clone, Copy)]
struct WorkflowNodes<'a> {
    by_id: &'a BTreeMap<Arc<str>, NodeIx>,
    definition: &'a WorkflowDefinition,
}

/// Field that replaces the output of a node that failed and has `onError`.
const ERROR: &str = "error";

/// Returns the kind of a node and the fields that its output can have; `None` if the definition does not determine them.
fn output_fields(config: &NodeConfig) -> Option<(&'static str, Vec<&'static str>)> {
    let (of, fields): (_, &[&str]) = match config {
        NodeConfig::Llm(_) => ("LLM node", &["content", "finishReason", "usage"]),
        NodeConfig::Join(_) => (
            "JOIN",
            &[
                "outputs",
                "completed",
                "failed",
                "cancelled",
                "strategy",
                "childThreadIds",
            ],
        ),
        NodeConfig::Map(_) => ("MAP", &["results", "completed", "failed", "cancelled"]),
        // After a timeout that leads to another node, the output is that of the previous node.
        NodeConfig::UserInteraction(question) if question.timeout_target().is_none() => {
            ("USER_INTERACTION", &["answer", "by", "at"])
        }
        NodeConfig::Wait(wait) => {
            let word = wait.event.as_deref()?;
            let event = EventType::ALL.iter().find(|known| known.as_str() == word);
            let own = event.unwrap_or(&EventType::Custom).fields();
            return Some(("WAIT", [own, &EVENT_FIELDS, &[ERROR]].concat()));
        }
        NodeConfig::Start
        | NodeConfig::End(_)
        | NodeConfig::Variable(_)
        | NodeConfig::Code(_)
        | NodeConfig::Script(_)
        | NodeConfig::Route(_)
        | NodeConfig::Fork(_)
        | NodeConfig::Subgraph(_)
        | NodeConfig::ContextProcessor(_)
        | NodeConfig::Tool(_)
        | NodeConfig::UserInteraction(_)
        | NodeConfig::LoopStart(_)
        | NodeConfig::LoopEnd(_)
        | NodeConfig::StartFromTrigger
        | NodeConfig::ContinueFromTrigger(_) => return None,
    };
    Some((of, [fields, &[ERROR]].concat()))
}

impl<'a> KnownNames<'a> {
    /// Returns the names in the scope of a workflow's nodes.
    pub(in crate::graph) fn of_workflow(
        variables: &'a BTreeSet<Arc<str>>,
        by_id: &'a BTreeMap<Arc<str>, NodeIx>,
        definition: &'a WorkflowDefinition,
    ) -> Self {
        Self(Some(Sources {
            fixed: &FIXED_NAMES,
            variables: Some(variables),
            nodes: Some(WorkflowNodes { by_id, definition }),
            event: None,
        }))
    }

    /// Returns the names in the scope of a trigger, which has no variables or nodes; `event` lists the fields of its event.
    pub(in crate::graph) fn of_trigger(event: &'a [&'a str]) -> Self {
        Self(Some(Sources {
            fixed: &FIXED_NAMES,
            variables: None,
            nodes: None,
            event: Some(event),
        }))
    }

    /// Returns a fault or a warning for each unknown name of a snippet that parses.
    pub(super) fn unknown_in(&self, text: &Snippet, syntax: &dyn Syntax) -> Vec<TextFault> {
        let Some(sources) = self.0.map(|sources| sources.for_kind(text.kind)) else {
            return Vec::new();
        };
        let mut faults = Vec::new();
        // End of the last reported name: each part of a name with a hyphen is a free name too.
        let mut reported = 0;
        for free in syntax.free_names(text) {
            if free.at.start < reported {
                continue;
            }
            faults.extend(sources.wrong_members(text, &free));
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
                faults.push(sources.fault(free, text.kind));
            }
        }
        faults
    }
}

impl WorkflowNodes<'_> {
    /// Returns the fault of `nodes.MEMBER`, if there is no such node, or of its field. Without the check both are `undefined`,
    /// which becomes null in an output.
    fn fault(&self, text: &Snippet, member: &Member) -> Option<TextFault> {
        let id = &text.source[member.at.clone()];
        let Some(place) = self.by_id.get(id) else {
            let near = nearest(id, self.by_id.keys().map(AsRef::as_ref));
            return Some(TextFault {
                code: FaultCode::UnknownName,
                message: format!("unknown node `{id}`"),
                help: near.map(|near| format!("did you mean `{near}`?")),
                at: Some(member.at.clone()),
                name: Some(id.to_owned()),
                is_warning: false,
            });
        };
        self.wrong_field(text, (id, *place), member.field.as_ref()?)
    }

    /// Returns the fault of a field that the output of a node never has, or the warning about a field of a text.
    fn wrong_field(&self, text: &Snippet, (id, place): (&str, NodeIx), at: &Range<usize>) -> Option<TextFault> {
        let config = &self.definition.nodes.get(place as usize)?.config;
        let field = &text.source[at.clone()];
        if matches!(config, NodeConfig::Llm(_)) && field == "content" {
            return field_of_text(text, id, at);
        }
        if let NodeConfig::Join(join) = config
            && field == "outputs"
        {
            return unknown_path(text, (id, &join.fork_path_ids), at);
        }
        let (message, help) = unknown_field(config, id, field)?;
        Some(TextFault {
            code: FaultCode::UnknownName,
            message,
            help: Some(help),
            at: Some(at.clone()),
            name: Some(id.to_owned()),
            is_warning: false,
        })
    }
}

/// Returns a message and advice for a field that the output of a node never has; `None` if it may have the field.
pub(crate) fn unknown_field(config: &NodeConfig, id: &str, field: &str) -> Option<(String, String)> {
    let (of, fields) = output_fields(config)?;
    if fields.contains(&field) {
        return None;
    }
    let near = nearest(field, fields.iter().copied()).map(|near| format!("did you mean `{near}`? "));
    let paths = match config {
        NodeConfig::Join(join) if !join.fork_path_ids.is_empty() => {
            format!(
                "; the output of a path is in `outputs`, such as `nodes['{id}'].outputs['{}']`",
                join.fork_path_ids[0]
            )
        }
        NodeConfig::Wait(wait) if wait.event.as_deref().is_some_and(is_kept) => {
            format!("; the payload of the event is in `data`, such as `nodes['{id}'].data.{field}`")
        }
        _other => String::new(),
    };
    let message = format!("the output of the {of} `{id}` has no field `{field}`");
    let help = format!("{}its fields are {}{paths}", near.unwrap_or_default(), quoted(&fields));
    Some((message, help))
}

/// Returns the warning about a path in the `outputs` of a JOIN that its fork does not have.
fn unknown_path(text: &Snippet, (id, paths): (&str, &[String]), outputs: &Range<usize>) -> Option<TextFault> {
    let at = field_of(&text.source, outputs)?;
    let path = &text.source[at.clone()];
    if paths.is_empty() || paths.iter().any(|known| known == path) {
        return None;
    }
    let near = nearest(path, paths.iter().map(String::as_str)).map(|near| format!("did you mean `{near}`? "));
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    Some(TextFault {
        code: FaultCode::UnknownName,
        message: format!("the `outputs` of the JOIN `{id}` have no path `{path}`"),
        help: Some(format!("{}its paths are {}", near.unwrap_or_default(), quoted(&paths))),
        at: Some(at),
        name: Some(id.to_owned()),
        is_warning: true,
    })
}

/// Returns the warning about a field of the `content` of an LLM node: a reply is text, even with `responseFormat`.
fn field_of_text(text: &Snippet, id: &str, content: &Range<usize>) -> Option<TextFault> {
    let at = field_of(&text.source, content)?;
    let field = &text.source[at.clone()];
    let help = match text.kind {
        _ if field == "length" => return None,
        SnippetKind::Template => {
            format!(
                "assign `JSON.parse(nodes['{id}'].content)` to a variable by a VARIABLE node, and write its name here"
            )
        }
        SnippetKind::Expression | SnippetKind::Code | SnippetKind::Workflow => {
            format!("parse the text: `JSON.parse(nodes['{id}'].content).{field}`")
        }
    };
    Some(TextFault {
        code: FaultCode::UnknownName,
        message: format!("the `content` of the LLM node `{id}` is text, which has no field `{field}`"),
        help: Some(help),
        at: Some(at),
        name: Some(id.to_owned()),
        is_warning: true,
    })
}

/// Returns the warning about a member of `variables` that nothing assigns, unless a default follows.
fn unknown_variable(source: &str, member: &Member, names: &BTreeSet<Arc<str>>) -> Option<TextFault> {
    let at = member.read(source)?;
    let name = &source[at.clone()];
    let rest = source[at.end..].trim_start_matches(['"', '\'', ']', ' ']);
    if names.contains(name) || rest.starts_with("??") || rest.starts_with("||") {
        return None;
    }
    let near = nearest(name, names.iter().map(AsRef::as_ref));
    Some(TextFault {
        code: FaultCode::UnknownName,
        message: format!("unknown variable `{name}`: nothing in any workflow assigns it"),
        help: near.map(|near| format!("did you mean `{near}`?")),
        at: Some(at.clone()),
        name: Some(name.to_owned()),
        is_warning: true,
    })
}

impl Sources<'_> {
    /// Returns the sources of the names in a snippet of this kind.
    fn for_kind(self, kind: SnippetKind) -> Self {
        if kind != SnippetKind::Workflow {
            return self;
        }
        // The scope of a script workflow has the host functions and `args`, and neither variables nor nodes.
        Self {
            fixed: &HOST_NAMES,
            variables: None,
            nodes: None,
            event: None,
        }
    }

    fn have(&self, name: &str) -> bool {
        self.fixed.contains(&name)
            || JS_GLOBALS.binary_search(&name).is_ok()
            || self.variables.is_some_and(|names| names.contains(name))
            || self.nodes.is_some_and(|nodes| nodes.by_id.contains_key(name))
    }

    /// Returns the faults of the members of a name: of `nodes`, of the bare id of a node, and of `event`.
    fn wrong_members(&self, text: &Snippet, free: &FreeName) -> Vec<TextFault> {
        let source = &text.source;
        // Members of other names than `nodes` are not recorded in templates, where each tag is a separate name.
        let first = free.members.is_empty().then(|| Member::after(source, free.at.end));
        let members = free.members.iter().cloned().chain(first.flatten());
        if free.name == "nodes" {
            let nodes = self.nodes.into_iter();
            return nodes
                .flat_map(|nodes| members.clone().filter_map(move |member| nodes.fault(text, &member)))
                .collect();
        }
        if free.name == "variables" {
            // CODE may assign the members that it reads.
            let is_read_only = matches!(text.kind, SnippetKind::Expression | SnippetKind::Template);
            let names = self.variables.into_iter().filter(|_| is_read_only);
            return names
                .flat_map(|names| {
                    members
                        .clone()
                        .filter_map(|member| unknown_variable(source, &member, names))
                })
                .collect();
        }
        if free.name == "event" {
            let event = self.event.into_iter();
            return event
                .flat_map(|known| {
                    members
                        .clone()
                        .filter_map(|member| unknown_event_field(source, &member, known))
                })
                .collect();
        }
        let is_variable = self.variables.is_some_and(|names| names.contains(free.name.as_str()));
        let is_other = is_variable
            || self.fixed.contains(&free.name.as_str())
            || JS_GLOBALS.binary_search(&free.name.as_str()).is_ok();
        let Some((nodes, place)) = self
            .nodes
            .filter(|_| !is_other)
            .and_then(|nodes| Some((nodes, *nodes.by_id.get(free.name.as_str())?)))
        else {
            return Vec::new();
        };
        members
            .filter_map(|member| nodes.wrong_field(text, (&free.name, place), member.read(source)?))
            .collect()
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
            is_warning: false,
        })
    }

    fn fault(&self, free: FreeName, kind: SnippetKind) -> TextFault {
        let variables = self.variables.into_iter().flatten();
        let nodes = self.nodes.into_iter().flat_map(|nodes| nodes.by_id.keys());
        let known = variables.chain(nodes).map(AsRef::as_ref);
        let help = if free.is_assigned && kind == SnippetKind::Expression {
            format!("{}; {COMPARE}", name_advice(&free.name, known, kind, false))
        } else {
            name_advice(&free.name, known, kind, free.is_assigned)
        };
        TextFault {
            code: FaultCode::UnknownName,
            message: format!("unknown name `{}`", free.name),
            help: Some(help),
            at: Some(free.at),
            name: Some(free.name),
            is_warning: false,
        }
    }
}

fn quoted(names: &[&str]) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    names.join(", ")
}

/// Returns the warning about a field that the event of a trigger never has.
fn unknown_event_field(source: &str, member: &Member, known: &[&str]) -> Option<TextFault> {
    let at = member.read(source)?;
    let field = &source[at.clone()];
    if known.contains(&field) {
        return None;
    }
    let near = nearest(field, known.iter().copied());
    let help = near.map_or_else(
        || format!("its fields are {}", quoted(known)),
        |near| format!("did you mean `event.{near}`?"),
    );
    Some(TextFault {
        code: FaultCode::UnknownName,
        message: format!("the event of this trigger has no field `{field}`"),
        help: Some(help),
        at: Some(at.clone()),
        name: Some(field.to_owned()),
        is_warning: true,
    })
}

/// Returns the fault of `Date.now`, which throws whenever a script calls it.
fn clock_fault(source: &str, member: &Member) -> Option<TextFault> {
    (&source[member.at.clone()] == "now").then(|| TextFault {
        code: FaultCode::UnknownName,
        message: "`Date.now` does not exist in scripts, because a repeated run must have the same result".to_owned(),
        help: Some("there is no clock here: pass the time as input".to_owned()),
        at: Some(member.at.clone()),
        name: Some("Date.now".to_owned()),
        is_warning: false,
    })
}

/// Returns advice for an undeclared name in a snippet of the given kind: a replacement, the most similar name in its scope, or how to
/// declare it. `declared` are the variables and nodes, which a script workflow does not read.
pub fn name_advice<'n>(
    name: &str,
    declared: impl Iterator<Item = &'n str>,
    kind: SnippetKind,
    is_assigned: bool,
) -> String {
    let is_workflow = kind == SnippetKind::Workflow;
    if let Some(instead) = instead_of(name, is_workflow) {
        return instead.to_owned();
    }
    let fixed: &[&str] = if is_workflow { &HOST_NAMES } else { &FIXED_NAMES };
    let in_scope = declared.filter(|_| !is_workflow).chain(fixed.iter().copied());
    match nearest(name, in_scope.chain(JS_GLOBALS.iter().copied())) {
        Some(near) => format!("did you mean `{near}`?"),
        None if is_assigned => format!("declare it: `let {name} = ...`; return the values that other nodes need"),
        None if is_workflow => {
            format!("declare it with `const` or `let`; a field of the input is `args.{name}`")
        }
        None => {
            let declare =
                "a bare name is a variable or the id of a node: declare it in `variables`, or write `input.` before it";
            match kind {
                SnippetKind::Expression => format!("{declare}; a text has quotes: `'{name}'`"),
                SnippetKind::Template | SnippetKind::Code | SnippetKind::Workflow => declare.to_owned(),
            }
        }
    }
}

/// Returns the names of all variables that these workflows and triggers, and the registered workflows, may assign.
pub(in crate::graph) fn variable_names(
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::definition::{SourceFile, load};
    use crate::graph::{CompileContext, Snippet, SnippetKind, Syntax, SyntaxFault, compile_loaded};
    use crate::script::{FreeName, Path, free_names};

    /// Finds names without a parser: of a template, those of a text that is one tag.
    struct Names;

    impl Syntax for Names {
        fn expression(&self, text: &str) -> Result<(), SyntaxFault> {
            let message = "invalid left side".to_owned();
            if text.contains("+ 1 =") {
                Err(SyntaxFault { message, at: None })
            } else {
                Ok(())
            }
        }
        fn template(&self, _: &str) -> Result<(), SyntaxFault> {
            Ok(())
        }
        fn script(&self, _: &str) -> Result<(), SyntaxFault> {
            Ok(())
        }
        fn free_names(&self, text: &Snippet) -> Vec<FreeName> {
            let tag = text.source.strip_prefix("{{").and_then(|rest| rest.strip_suffix("}}"));
            let Some(path) = tag.and_then(Path::of_template) else {
                let is_template = text.kind == SnippetKind::Template;
                return if is_template {
                    Vec::new()
                } else {
                    free_names(&text.source)
                };
            };
            let start = 2;
            let name = path.root().to_string();
            let at = start..start + name.len();
            vec![FreeName {
                name,
                at,
                is_assigned: false,
                members: Vec::new(),
            }]
        }
    }

    /// Returns the messages and help texts of the faults, then those of the warnings.
    fn findings(flow: &Value) -> [Vec<(String, String)>; 2] {
        let loaded = load(&SourceFile::new("w.json", flow.to_string()));
        let context = CompileContext {
            syntax: &Names,
            ..CompileContext::default()
        };
        let compiled = compile_loaded(&loaded, &context);
        [compiled.faults, compiled.warnings].map(|found| {
            let told = found.into_iter();
            told.map(|fault| (fault.message, fault.help.unwrap_or_default()))
                .collect()
        })
    }

    /// A workflow that waits, asks a person and a model, and then evaluates an expression, a prompt and a trigger's expression.
    fn flow(expression: &str, prompt: &str, event: &str) -> Value {
        json!({"id": "w", "variables": [{"name": "ask", "value": {}}],
            "nodes": [
                {"id": "s", "type": "START"},
                {"id": "w", "type": "WAIT", "config": {"event": "paid"}},
                {"id": "q", "type": "USER_INTERACTION", "config": {"question": "Go?"}},
                {"id": "l", "type": "USER_INTERACTION", "config": {"question": "Go?", "timeoutMs": 5, "onTimeout": {"targetNodeId": "e"}}},
                {"id": "ask", "type": "LLM", "config": {"prompt": "hi"}},
                {"id": "m-1", "type": "LLM", "config": {"prompt": prompt, "responseFormat": {"type": "object"}}},
                {"id": "e", "type": "END", "config": {"output": expression}}],
            "edges": [{"from": "s", "to": "w"}, {"from": "w", "to": "q"}, {"from": "q", "to": "l"}, {"from": "l", "to": "ask"},
                {"from": "ask", "to": "m-1"}, {"from": "m-1", "to": "e"}],
            "triggers": [{"id": "t", "condition": {"eventType": "NODE_FAILED", "expression": event},
                "action": {"type": "STOP_THREAD"}}]})
    }

    #[test]
    fn an_unknown_field_of_a_known_output_is_a_fault() {
        for (expression, message, help) in [
            (
                "nodes.q.answr",
                "the output of the USER_INTERACTION `q` has no field `answr`",
                "did you mean `answer`? its fields are",
            ),
            (
                "q.answr == 1",
                "the output of the USER_INTERACTION `q` has no field `answr`",
                "`answer`, `by`, `at`, `error`",
            ),
            (
                "nodes.w.amount",
                "the output of the WAIT `w` has no field `amount`",
                "such as `nodes['w'].data.amount`",
            ),
            (
                "nodes['m-1'].text",
                "the output of the LLM node `m-1` has no field `text`",
                "its fields are `content`",
            ),
        ] {
            let [faults, warnings] = findings(&flow(expression, "hi", "true"));
            assert_eq!((faults.len(), warnings), (1, vec![]), "{expression}: {faults:?}");
            assert!(faults[0].0 == message && faults[0].1.contains(help), "{faults:?}");
        }
        let [faults, _] = findings(&flow("1", "{{q.answr}}", "true"));
        assert!(faults[0].0.ends_with("no field `answr`"), "{faults:?}");
    }

    #[test]
    fn a_script_workflow_has_its_own_scope_and_advice() {
        let script = |code: &str| {
            json!({"id": "w", "variables": [{"name": "question", "value": 0}],
                "nodes": [{"id": "s", "type": "START"}, {"id": "m-1", "type": "SCRIPT", "config": {"code": code}}, {"id": "e", "type": "END"}],
                "edges": [{"from": "s", "to": "m-1"}, {"from": "m-1", "to": "e"}]})
        };
        for (code, help) in [
            ("return await agnet('hi')", "did you mean `agent`?"),
            ("return input.question", "the input is `args`"),
            (
                "return nodes.s",
                "a script has no graph: keep values in `const` and `let`",
            ),
            (
                "return variables.question",
                "a script has no graph: keep values in `const` and `let`",
            ),
            (
                "return question + 1",
                "declare it with `const` or `let`; a field of the input is `args.question`",
            ),
            (
                "setTimeout(r => 1, 5)",
                "a script has no timers: wait with `await sleep(milliseconds)`",
            ),
        ] {
            let [faults, warnings] = findings(&script(code));
            let helps: Vec<&str> = faults.iter().map(|(_, help)| help.as_str()).collect();
            assert_eq!((helps, warnings), (vec![help], vec![]), "{code}");
        }
        let fine = "log(Date.now()); return [args.x, await event('paid'), tools.search, JSON.stringify(budget)]";
        assert_eq!(findings(&script(fine)), [vec![], vec![]]);
    }

    #[test]
    fn a_field_that_may_exist_is_no_finding() {
        for expression in [
            "nodes.q.answer + nodes.q.by + q.at + q?.error",
            "nodes.w.data.amount + nodes.w.eventName",
            "q.hasOwnProperty('x')",
            "[1].map(q => q.x)",
            "ask.anything",
            "nodes.l.answr",
            "nodes['m-1'].content.length + nodes['m-1'].content.trim() + nodes['m-1'].usage.total",
            "JSON.parse(nodes['m-1'].content).ok",
        ] {
            assert_eq!(
                findings(&flow(expression, "hi", "true")),
                [vec![], vec![]],
                "{expression}"
            );
        }
        assert_eq!(findings(&flow("1", "{{q.answer}}", "true")), [vec![], vec![]]);
    }

    #[test]
    fn a_field_of_a_replys_text_is_a_warning() {
        let [faults, warnings] = findings(&flow("nodes['m-1'].content.ok", "hi", "true"));
        assert_eq!(faults, []);
        assert_eq!(
            warnings[0].0,
            "the `content` of the LLM node `m-1` is text, which has no field `ok`"
        );
        assert!(
            warnings[0].1.contains("`JSON.parse(nodes['m-1'].content).ok`"),
            "{warnings:?}"
        );
    }

    #[test]
    fn an_unknown_field_of_an_event_is_a_warning() {
        let [faults, warnings] = findings(&flow("1", "hi", "event.node == 'x' && event.data.a"));
        assert_eq!(faults, []);
        assert_eq!(warnings[0].1, "did you mean `event.nodeId`?");
        assert!(
            warnings[1].1.starts_with("its fields are `nodeId`, `nodeType`"),
            "{warnings:?}"
        );
        let fine =
            "event.nodeId == 'x' && event.attempt > 1 && event.error.code && event.workflowId && event.toString()";
        assert_eq!(findings(&flow("1", "hi", fine)), [vec![], vec![]]);
    }

    #[test]
    fn an_assignment_that_is_no_expression_has_advice() {
        for (expression, advice) in [
            ("input.a + 1 = 2", true),
            ("status = 'ok'", true),
            ("status == 'ok'", false),
        ] {
            let [faults, _] = findings(&flow(expression, "hi", "true"));
            assert_eq!(faults[0].1.contains("use `==` to compare"), advice, "{faults:?}");
        }
    }
}
