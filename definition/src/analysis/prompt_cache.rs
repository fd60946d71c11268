//! `UNCACHEABLE_PROMPT`: the system prompt, which is the start of a request, contains a value that changes each time, so a
//! provider's prompt cache cannot serve the rest.

use super::{Analysis, Flow};
use crate::definition::FaultCode;
use crate::graph::NodeKind;
use crate::graph::diagnostics::pointer;

/// Names of values that differ between runs, without punctuation and in lower case.
const ALWAYS_NEW: [&str; 15] = [
    "clock",
    "currentdate",
    "currentdatetime",
    "currenttime",
    "guid",
    "nonce",
    "now",
    "random",
    "requestid",
    "runid",
    "threadid",
    "timestamp",
    "today",
    "traceid",
    "uuid",
];

/// Reports each LLM node with such a name in its system prompt.
pub(super) fn report(flow: &Flow<'_>, found: &mut Analysis) {
    for (place, node) in flow.graph.nodes.iter().enumerate() {
        found.work += 1;
        let NodeKind::Llm(llm) = &node.kind else { continue };
        let Some(system) = llm.system else { continue };
        let Some(path) = shown_anew(&flow.graph.snippet(system).source) else {
            continue;
        };
        let message = format!(
            "the system prompt contains `{path}`, which differs in each run: the provider's prompt cache cannot be used after it"
        );
        let pointer = pointer!["nodes", place, "config", "system"];
        let fault = flow.origin.fault(FaultCode::UncacheablePrompt, &pointer, message);
        let help = "move it to the end: to `prompt` or to the pinned context";
        found.warnings.push(fault.with_help(help));
    }
}

/// Returns the first path of a template that ends with one of [`ALWAYS_NEW`].
fn shown_anew(template: &str) -> Option<&str> {
    let expressions = template.split("{{").skip(1);
    let expressions = expressions.filter_map(|after| after.split_once("}}").map(|(expression, _)| expression));
    let is_part = |sign: char| sign.is_alphanumeric() || "_-.".contains(sign);
    expressions
        .flat_map(|expression| expression.split(move |sign: char| !is_part(sign)))
        .find(|path| {
            let name = path.rsplit('.').next().unwrap_or_default();
            let plain: String = name.chars().filter(|sign| sign.is_alphanumeric()).collect();
            ALWAYS_NEW.contains(&&*plain.to_lowercase())
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_or_a_run_id_in_a_template_is_found() {
        for (template, path) in [
            ("It is {{input.now}}.", Some("input.now")),
            ("{{#if input.vip}}{{variables.run_id}}{{/if}}", Some("variables.run_id")),
            ("{{json clock.Current-Time}}", Some("clock.Current-Time")),
            ("{{nodes.start.runId}}", Some("nodes.start.runId")),
            ("now {{input.name}} today", None),
            ("{{now.name}} {{snow}}", None),
            ("{{ open", None),
        ] {
            assert_eq!(shown_anew(template), path, "{template}");
        }
    }
}
