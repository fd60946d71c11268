//! `INVALID_TEMPLATE` as a warning: a placeholder in another notation, `${input.x}`, `{input.x}` or `{% if input.x %}`, which a
//! template prints as it is.

use serde_json::Value;

use super::{Analysis, Flow, WorkflowSet};
use crate::definition::json::Step;
use crate::definition::{ContextOperation, FaultCode, NodeConfig, Origin, Replacement, TriggerAction};
use crate::graph::diagnostics::{child, pointer};
use crate::script::FIXED_NAMES;

/// Roots of a path in single braces. Other words in braces may be part of a format that a prompt describes.
const ROOTS: [&str; 5] = ["event", "input", "nodes", "output", "variables"];

/// A placeholder in another notation.
#[derive(Debug, PartialEq)]
struct Foreign {
    /// The placeholder as written.
    text: String,
    help: String,
}

/// Reports each template of a node with such a placeholder for a name of the workflow.
pub(super) fn report(flow: &Flow<'_>, found: &mut Analysis) {
    let is_known = |name: &str| {
        FIXED_NAMES.contains(&name)
            || flow.graph.by_id.contains_key(name)
            || flow.definition.variables.iter().any(|variable| variable.name == name)
    };
    for (place, node) in flow.definition.nodes.iter().enumerate() {
        found.work += 1;
        for (pointer, text) in templates(&node.config, &pointer!["nodes", place, "config"]) {
            check(flow.origin, &pointer, text, is_known, found);
        }
    }
}

/// Reports each notification of a trigger with such a placeholder.
pub(super) fn report_triggers(set: &WorkflowSet<'_>, found: &mut Analysis) {
    for placed in set.every_trigger() {
        if let TriggerAction::SendNotification { message, .. } = &placed.trigger.action {
            let pointer = placed.pointer(["action", "parameters", "message"]);
            check(
                placed.origin,
                &pointer,
                message,
                |name| FIXED_NAMES.contains(&name),
                found,
            );
        }
    }
}

fn check(origin: &Origin, pointer: &[Step], text: &str, is_known: impl Fn(&str) -> bool, found: &mut Analysis) {
    if let Some(Foreign { text, help }) = foreign(text, is_known) {
        let message = format!("`{text}` is text in a template: it is not replaced by a value");
        let fault = origin.fault(FaultCode::InvalidTemplate, pointer, message);
        found.warnings.push(fault.with_help(help));
    }
}

/// Returns the templates of a node, with their pointers.
fn templates<'c>(config: &'c NodeConfig, pointer: &[Step]) -> Vec<(Vec<Step>, &'c str)> {
    let mut found = Vec::new();
    let text = |key: &str, text: &'c Option<String>| text.as_deref().map(|text| (child(pointer, key), text));
    match config {
        NodeConfig::Llm(llm) => {
            found.extend(text("prompt", &llm.prompt));
            found.extend(text("system", &llm.system));
            strings(llm.parts.as_ref(), child(pointer, "parts"), &mut found);
        }
        NodeConfig::UserInteraction(ask) => {
            found.push((child(pointer, "question"), ask.question.as_str()));
            found.extend(text("assignee", &ask.assignee));
        }
        NodeConfig::ContextProcessor(operation) => {
            let (key, messages) = match operation {
                ContextOperation::Insert(insert) => ("messages", &insert.messages[..]),
                ContextOperation::Replace(replace) => match &replace.replacement {
                    Replacement::Messages(messages) => ("replacement", &messages[..]),
                    Replacement::Text(text) => {
                        found.push((child(pointer, "replacement"), text.as_str()));
                        ("replacement", &[][..])
                    }
                },
                ContextOperation::Pin(pin) => {
                    strings(Some(&pin.value), child(pointer, "value"), &mut found);
                    return found;
                }
                ContextOperation::Truncate(_)
                | ContextOperation::Clear(_)
                | ContextOperation::Filter(_)
                | ContextOperation::Compress(_) => return found,
            };
            let pointer = |place| child(&child(&child(pointer, key), place), "content");
            let texts = messages.iter().enumerate();
            found.extend(texts.map(|(place, message)| (pointer(place), message.content.as_str())));
        }
        NodeConfig::Tool(tool) => values(tool.arguments.as_ref(), child(pointer, "arguments"), &mut found),
        NodeConfig::Subgraph(call) => values(call.input.as_ref(), child(pointer, "input"), &mut found),
        NodeConfig::Map(map) => values(map.input.as_ref(), child(pointer, "input"), &mut found),
        NodeConfig::Code(code) => values(code.input.as_ref(), child(pointer, "input"), &mut found),
        NodeConfig::Script(script) => values(script.input.as_ref(), child(pointer, "input"), &mut found),
        NodeConfig::Start
        | NodeConfig::End(_)
        | NodeConfig::Variable(_)
        | NodeConfig::Route(_)
        | NodeConfig::Fork(_)
        | NodeConfig::Join(_)
        | NodeConfig::Wait(_)
        | NodeConfig::LoopStart(_)
        | NodeConfig::LoopEnd(_)
        | NodeConfig::StartFromTrigger
        | NodeConfig::ContinueFromTrigger(_) => {}
    }
    found
}

/// Adds the templates of an input. Text is an expression.
fn values<'c>(value: Option<&'c Value>, pointer: Vec<Step>, found: &mut Vec<(Vec<Step>, &'c str)>) {
    strings(value.filter(|value| !value.is_string()), pointer, found);
}

fn strings<'c>(value: Option<&'c Value>, pointer: Vec<Step>, found: &mut Vec<(Vec<Step>, &'c str)>) {
    match value {
        Some(Value::String(text)) => found.push((pointer, text)),
        Some(Value::Array(items)) => {
            for (place, item) in items.iter().enumerate() {
                strings(Some(item), child(&pointer, place), found);
            }
        }
        Some(Value::Object(members)) => {
            for (key, item) in members {
                strings(Some(item), child(&pointer, key.as_str()), found);
            }
        }
        Some(Value::Null | Value::Bool(_) | Value::Number(_)) | None => {}
    }
}

/// Returns the first placeholder in another notation.
fn foreign(template: &str, is_known: impl Fn(&str) -> bool) -> Option<Foreign> {
    // The text of a raw block is printed as it is on purpose.
    if template.contains("{{{{") {
        return None;
    }
    template.match_indices('{').find_map(|(at, _)| {
        let (before, rest) = (&template[..at], &template[at + 1..]);
        if before.ends_with(['{', '\\']) || rest.starts_with('{') {
            return None;
        }
        let (inside, _) = rest.split_once('}')?;
        if let Some(tag) = inside.strip_prefix('%') {
            let mut words = tag.split(|sign: char| !is_part(sign));
            return words.any(|word| ROOTS.contains(&word)).then(|| Foreign {
                text: format!("{{{inside}}}"),
                help: "write `{{#if PATH}}...{{/if}}`, `{{#each PATH}}...{{/each}}` or `{{PATH}}`".to_owned(),
            });
        }
        let path = inside.trim();
        let root = path.split(|sign: char| !is_part(sign)).next().unwrap_or_default();
        let (mark, is_root) = if before.ends_with('$') {
            ("$", is_known(root))
        } else {
            ("", ROOTS.contains(&root))
        };
        let is_path = path.chars().all(|sign| is_part(sign) || ".[]'\"".contains(sign));
        (is_root && is_path).then(|| Foreign {
            text: format!("{mark}{{{path}}}"),
            help: format!("write `{{{{{path}}}}}`"),
        })
    })
}

fn is_part(sign: char) -> bool {
    sign.is_alphanumeric() || "_$-".contains(sign)
}

#[cfg(test)]
mod tests {
    use super::foreign;

    #[test]
    fn only_placeholders_of_known_names_are_found() {
        for (template, text) in [
            ("Hi ${input.x}", Some("${input.x}")),
            ("${HOME} and ${ask.content}", Some("${ask.content}")),
            ("${nodes['left-one'].content}", Some("${nodes['left-one'].content}")),
            ("Hi {input.x}, {{input.y}}", Some("{input.x}")),
            ("{{input.y}} { nodes['a-b'].content }", Some("{nodes['a-b'].content}")),
            ("Text: {output}", Some("{output}")),
            ("{% if input.vip %}Hello{% endif %}", Some("{% if input.vip %}")),
            ("export PATH=${HOME}/bin", None),
            ("{{input.x}} costs $5", None),
            ("{{{input.x}}}", None),
            ("${input.x", None),
            ("${input.a + 1}", None),
            ("Reply as {\"input\": {\"x\": 1}}, {name} or {ask.content}", None),
            ("{input: 1} {inputs.x} { output: 2 }", None),
            ("{% raw %} \\{input.x}", None),
            ("{{{{raw}}}}{input.x}{{{{/raw}}}}", None),
        ] {
            let is_known = |name: &str| ["input", "nodes", "ask"].contains(&name);
            let found = foreign(template, is_known).map(|foreign| foreign.text);
            assert_eq!(found.as_deref(), text, "{template}");
        }
    }
}
