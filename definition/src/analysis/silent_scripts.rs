//! `INVALID_EXPRESSION` as a warning: a CODE or SCRIPT node whose script returns nothing, although its output is read.

use std::collections::BTreeSet;

use super::facts::reads::{Read, reads, reads_of, snippets_of};
use super::{Analysis, Flow};
use crate::definition::{FaultCode, NodeConfig};
use crate::graph::diagnostics::pointer;
use crate::graph::{Graph, Node, NodeKind, Snippet, SnippetIx};
use crate::script::has_effect;

/// Reports each such node.
pub(super) fn report(flow: &Flow<'_>, found: &mut Analysis) {
    let graph = flow.graph;
    let mut named: Option<BTreeSet<String>> = None;
    for (place, node) in flow.definition.nodes.iter().enumerate() {
        found.work += 1;
        let code = match &node.config {
            NodeConfig::Code(code) => code.code.as_deref(),
            NodeConfig::Script(script) => Some(&*script.code).filter(|code| !code.is_empty()),
            _ => None,
        };
        // A script that only throws or logs has no output on purpose.
        if code.is_none_or(has_effect) {
            continue;
        }
        let named = named.get_or_insert_with(|| {
            found.work += graph.snippets.len() as u64;
            graph.snippets.iter().flat_map(nodes_read).collect()
        });
        let next = graph.nodes[place].edges.iter().map(|edge| edge.target);
        let reader = next.map(|next| graph.node(next)).find(|next| reads_output(graph, next));
        let conditions = graph.nodes[place].edges.iter().filter_map(|edge| edge.condition);
        let why = match reader {
            Some(reader) => format!("`{}` reads it", reader.id),
            None if named.contains(&node.id) => "other nodes read it".to_owned(),
            None if conditions.into_iter().any(|text| names_output(graph, text)) => "an edge reads it".to_owned(),
            None => continue,
        };
        let message = format!(
            "the script of `{}` has no `return`: its output is null, and {why}",
            node.id
        );
        let pointer = pointer!["nodes", place, "config", "code"];
        let fault = flow.origin.fault(FaultCode::InvalidExpression, &pointer, message);
        found
            .warnings
            .push(fault.with_help("write `return` before the value that the node produces"));
    }
}

/// Returns the ids of the nodes that a snippet may read.
fn nodes_read(snippet: &Snippet) -> impl Iterator<Item = String> {
    let reads = reads_of(snippet).into_iter();
    reads.filter_map(|read| {
        if read.name == "nodes" {
            read.member
        } else {
            Some(read.name)
        }
    })
}

/// True if a node that follows another reads that node's output.
fn reads_output(graph: &Graph, node: &Node) -> bool {
    let is_default = matches!(
        node.kind,
        NodeKind::End { output: None } | NodeKind::Subgraph { input: None, .. }
    );
    is_default || snippets_of(node).into_iter().any(|(_, text)| names_output(graph, text))
}

fn names_output(graph: &Graph, text: SnippetIx) -> bool {
    reads(graph, text).iter().any(Read::is_output)
}
