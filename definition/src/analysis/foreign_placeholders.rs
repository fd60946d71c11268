//! `INVALID_TEMPLATE` as a warning: a placeholder in JavaScript's notation, `${input.x}`, which a template prints as it is.

use super::{Analysis, Flow};
use crate::definition::FaultCode;
use crate::graph::NodeKind;
use crate::graph::diagnostics::pointer;
use crate::script::FIXED_NAMES;

/// Reports each prompt with such a placeholder for a name of the workflow.
pub(super) fn report(flow: &Flow<'_>, found: &mut Analysis) {
    for (place, node) in flow.graph.nodes.iter().enumerate() {
        found.work += 1;
        let texts = match &node.kind {
            NodeKind::Llm(llm) => vec![("prompt", llm.prompt), ("system", llm.system)],
            NodeKind::UserInteraction(ask) => vec![("question", Some(ask.question))],
            _other => continue,
        };
        for (key, text) in texts {
            let Some(text) = text else { continue };
            let is_known = |name: &str| {
                FIXED_NAMES.contains(&name)
                    || flow.graph.by_id.contains_key(name)
                    || flow.definition.variables.iter().any(|variable| variable.name == name)
            };
            let Some(path) = placeholder(&flow.graph.snippet(text).source, is_known) else {
                continue;
            };
            let message = format!("`${{{path}}}` is text in a template: it is not replaced by a value");
            let fault = flow.origin.fault(
                FaultCode::InvalidTemplate,
                &pointer!["nodes", place, "config", key],
                message,
            );
            found.warnings.push(fault.with_help(format!("write `{{{{{path}}}}}`")));
        }
    }
}

/// Returns the path of the first `${path}` that starts with a known name.
fn placeholder(template: &str, is_known: impl Fn(&str) -> bool) -> Option<&str> {
    let inner = template.split("${").skip(1);
    let paths = inner.filter_map(|rest| rest.split_once('}').map(|(path, _)| path.trim()));
    let is_part = |sign: char| sign.is_alphanumeric() || "_$-".contains(sign);
    paths
        .filter(|path| path.chars().all(|sign| is_part(sign) || ".[]'\"".contains(sign)))
        .find(|path| is_known(path.split(|sign: char| !is_part(sign)).next().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::placeholder;

    #[test]
    fn only_placeholders_of_known_names_are_found() {
        for (template, path) in [
            ("Hi ${input.x}", Some("input.x")),
            ("${HOME} and ${ask.content}", Some("ask.content")),
            ("${nodes['left-one'].content}", Some("nodes['left-one'].content")),
            ("export PATH=${HOME}/bin", None),
            ("{{input.x}} costs $5", None),
            ("${input.x", None),
            ("${input.a + 1}", None),
        ] {
            let is_known = |name: &str| ["input", "nodes", "ask"].contains(&name);
            assert_eq!(placeholder(template, is_known), path, "{template}");
        }
    }
}
