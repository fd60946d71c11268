//! Names and members that the snippets of a node read, as far as they are found without a parser.

use crate::graph::{Graph, Node, NodeKind, Snippet, SnippetIx, SnippetKind, ValueSpec};
use crate::script::{Path, Step, free_names};

/// A name that a snippet reads.
#[derive(Debug, PartialEq)]
pub(in crate::analysis) struct Read {
    pub(in crate::analysis) name: String,
    /// The member that is read of the name.
    pub(in crate::analysis) member: Option<String>,
}

impl Read {
    /// True if the name is the output of the previous node.
    pub(in crate::analysis) fn is_output(&self) -> bool {
        matches!(&*self.name, "output" | "result")
    }
}

/// Returns the snippets of a node in which `output` is the output of the previous node, with their keys in its config.
pub(in crate::analysis) fn snippets_of(node: &Node) -> Vec<(&'static str, SnippetIx)> {
    let value = |key, value: &ValueSpec| match value {
        ValueSpec::Expression(text) | ValueSpec::Template(text) => Some((key, *text)),
        ValueSpec::Literal(_) | ValueSpec::List(_) | ValueSpec::Object(_) => None,
    };
    match &node.kind {
        NodeKind::End { output } => output.iter().map(|text| ("output", *text)).collect(),
        NodeKind::Variable { expression, .. } => vec![("expression", *expression)],
        NodeKind::Llm(llm) => {
            let texts = [("prompt", llm.prompt), ("system", llm.system)].into_iter();
            texts.filter_map(|(key, text)| Some((key, text?))).collect()
        }
        NodeKind::Script { code, input } => {
            let input = input.as_ref().and_then(|input| value("input", input));
            [("code", *code)].into_iter().chain(input).collect()
        }
        NodeKind::Route { routes, .. } => routes.iter().map(|(condition, _)| ("routes", *condition)).collect(),
        NodeKind::Subgraph { input, .. } | NodeKind::Function { input, .. } => {
            input.iter().filter_map(|input| value("input", input)).collect()
        }
        NodeKind::Map(map) => value("items", &map.items).into_iter().collect(),
        NodeKind::Tool { arguments, .. } => value("arguments", arguments).into_iter().collect(),
        NodeKind::UserInteraction(question) => vec![("question", question.question)],
        NodeKind::Orchestration(script) => script.input.iter().filter_map(|input| value("input", input)).collect(),
        NodeKind::Start
        | NodeKind::StartFromTrigger
        | NodeKind::Fork(_)
        | NodeKind::Join(_)
        | NodeKind::Context(_)
        | NodeKind::WaitTime(_)
        | NodeKind::WaitEvent { .. }
        | NodeKind::LoopStart(_)
        | NodeKind::LoopEnd { .. }
        | NodeKind::ContinueFromTrigger(_) => Vec::new(),
    }
}

/// Returns the names that the snippet at `ix` reads.
pub(in crate::analysis) fn reads(graph: &Graph, ix: SnippetIx) -> Vec<Read> {
    reads_of(graph.snippet(ix))
}

/// Returns the names that a snippet reads. Members that are called are omitted, and so are members in the blocks and helpers of a
/// template, which may be absent.
pub(in crate::analysis) fn reads_of(snippet: &Snippet) -> Vec<Read> {
    let source = &*snippet.source;
    let mut found = in_tags(source);
    match snippet.kind {
        SnippetKind::Template => {}
        SnippetKind::Expression | SnippetKind::Code => {
            for free in free_names(source) {
                let members = free.members.iter().filter_map(|member| member.read(source));
                found.extend(members.map(|at| Read {
                    name: free.name.clone(),
                    member: Some(source[at.clone()].to_owned()),
                }));
                let name = free.name;
                found.push(Read { name, member: None });
            }
        }
        // The nodes and variables of the workflow are not in the scope of a SCRIPT.
        SnippetKind::Workflow => found.clear(),
    }
    found
}

/// Returns the names that the tags `{{path}}` of a text read.
fn in_tags(text: &str) -> Vec<Read> {
    let mut depth = 0_usize;
    let mut found = Vec::new();
    let tags = text.split("{{").skip(1);
    for inside in tags.filter_map(|rest| rest.split_once("}}").map(|(inside, _)| inside.trim())) {
        match inside.chars().next() {
            Some('#' | '^') => depth += 1,
            Some('/') => depth = depth.saturating_sub(1),
            _ => {}
        }
        let is_plain = depth == 0 && !inside.contains(char::is_whitespace);
        for path in inside.split_whitespace().filter_map(Path::of_template) {
            let member = match path.steps().first() {
                Some(Step::Key(key)) if is_plain || &**path.root() == "nodes" => Some(key.to_string()),
                Some(Step::Key(_) | Step::Index(_)) | None => None,
            };
            found.push(Read {
                name: path.root().to_string(),
                member,
            });
        }
    }
    found
}

/// Returns the words of a JSON text: its keys, and the words in its strings.
pub(in crate::analysis) fn words_of_json(text: String) -> impl Iterator<Item = String> {
    let is_part = |sign: char| sign.is_alphanumeric() || matches!(sign, '_' | '$');
    // An escape such as `\n` ends with a letter, which is no part of the next word.
    let text = ["\\n", "\\r", "\\t"]
        .iter()
        .fold(text, |text, escape| text.replace(escape, " "));
    let words = text.split(|sign: char| !is_part(sign)).filter(|word| !word.is_empty());
    words.map(str::to_owned).collect::<Vec<_>>().into_iter()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn names_and_members_are_found_in_each_kind_of_snippet() {
        for (kind, source, expected) in [
            (
                SnippetKind::Expression,
                "output.a + b",
                &["output.a", "output", "b"][..],
            ),
            (
                SnippetKind::Expression,
                "output.trim() == '{{input.x}}'",
                &["input.x", "output"],
            ),
            (SnippetKind::Code, "const a = nodes.b; return a", &["nodes.b", "nodes"]),
            (SnippetKind::Template, "The sum is {{ output.a }}", &["output.a"]),
            (
                SnippetKind::Template,
                "{{#if output.a}}{{output.b}}{{/if}}{{json nodes.c}}",
                &["output", "output", "json", "nodes.c"],
            ),
            (SnippetKind::Workflow, "return output.a", &[]),
        ] {
            let source: Arc<str> = source.into();
            let found = reads_of(&Snippet { kind, source });
            let found: Vec<String> = found
                .into_iter()
                .map(|read| {
                    read.member
                        .map_or(read.name.clone(), |member| format!("{}.{member}", read.name))
                })
                .collect();
            assert_eq!(found, expected);
        }
    }
}
