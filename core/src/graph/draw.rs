//! A workflow as a drawing, for Mermaid and for Graphviz. Works on definitions, so that a broken one can be looked at.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::definition::{NodeConfig, WorkflowDefinition};

/// A Mermaid flowchart: `mermaid(&definition)` starts with `flowchart TD`.
pub fn mermaid(definition: &WorkflowDefinition) -> String {
    let mut out = String::from("flowchart TD\n");
    for (place, node) in definition.nodes.iter().enumerate() {
        let (open, close) = match shape(&node.config) {
            Shape::Terminal => ("([", "])"),
            Shape::Box => ("[", "]"),
            Shape::Diamond => ("{", "}"),
            Shape::Spread => ("[/", "\\]"),
            Shape::Gather => ("[\\", "/]"),
            Shape::Frame => ("[[", "]]"),
            Shape::Trigger => ("{{", "}}"),
        };
        let label = label(&node.id, node.name.as_deref(), &node.config);
        put(
            &mut out,
            format_args!("  n{place}{open}\"{}\"{close}\n", mermaid_text(&label)),
        );
    }
    for line in lines(definition) {
        let Line { from, to, label, style } = line;
        let arrow = match style {
            Style::Plain => "-->",
            Style::Path => "==>",
            Style::Error => "-.->",
        };
        let label = label
            .map(|label| format!("|\"{}\"|", mermaid_text(&label)))
            .unwrap_or_default();
        put(&mut out, format_args!("  n{from} {arrow}{label} n{to}\n"));
    }
    out
}

/// A Graphviz digraph: `dot(&definition)` starts with `digraph`.
pub fn dot(definition: &WorkflowDefinition) -> String {
    let mut out = format!("digraph \"{}\" {{\n  node [shape=box];\n", dot_text(&definition.id));
    for (place, node) in definition.nodes.iter().enumerate() {
        let shape = match shape(&node.config) {
            Shape::Terminal => "oval",
            Shape::Box => "box",
            Shape::Diamond => "diamond",
            Shape::Spread => "trapezium",
            Shape::Gather => "invtrapezium",
            Shape::Frame => "box3d",
            Shape::Trigger => "hexagon",
        };
        let label = label(&node.id, node.name.as_deref(), &node.config);
        put(
            &mut out,
            format_args!("  n{place} [label=\"{}\", shape={shape}];\n", dot_text(&label)),
        );
    }
    for line in lines(definition) {
        let Line { from, to, label, style } = line;
        let style = match style {
            Style::Plain => "solid",
            Style::Path => "bold",
            Style::Error => "dashed",
        };
        let label = label
            .map(|label| format!(", label=\"{}\"", dot_text(&label)))
            .unwrap_or_default();
        put(&mut out, format_args!("  n{from} -> n{to} [style={style}{label}];\n"));
    }
    out.push_str("}\n");
    out
}

enum Shape {
    Terminal,
    Box,
    Diamond,
    Spread,
    Gather,
    Frame,
    Trigger,
}

fn shape(config: &NodeConfig) -> Shape {
    match config {
        NodeConfig::Start | NodeConfig::End(_) => Shape::Terminal,
        NodeConfig::Route(_) => Shape::Diamond,
        NodeConfig::Fork(_) => Shape::Spread,
        NodeConfig::Join(_) => Shape::Gather,
        NodeConfig::Subgraph(_) => Shape::Frame,
        NodeConfig::StartFromTrigger | NodeConfig::ContinueFromTrigger(_) => Shape::Trigger,
        NodeConfig::Variable(_)
        | NodeConfig::Llm(_)
        | NodeConfig::Code(_)
        | NodeConfig::ContextProcessor(_)
        | NodeConfig::Wait(_) => Shape::Box,
    }
}

fn label(id: &str, name: Option<&str>, config: &NodeConfig) -> String {
    match name {
        Some(name) if name != id => format!("{id}: {name}\n{}", config.type_name()),
        Some(_) | None => format!("{id}\n{}", config.type_name()),
    }
}

enum Style {
    Plain,
    Path,
    Error,
}

struct Line {
    from: usize,
    to: usize,
    label: Option<String>,
    style: Style,
}

/// Every transition, in the order of the nodes; references to unknown nodes are left out.
fn lines(definition: &WorkflowDefinition) -> Vec<Line> {
    let mut places: BTreeMap<&str, usize> = BTreeMap::new();
    for (place, node) in definition.nodes.iter().enumerate() {
        places.entry(&node.id).or_insert(place);
    }
    let mut out = Vec::new();
    let mut add = |from: usize, to: &str, label: Option<String>, style: Style| {
        if let Some(to) = places.get(to).copied() {
            out.push(Line { from, to, label, style });
        }
    };
    let mut has_own_exits = vec![false; definition.nodes.len()];
    for (place, node) in definition.nodes.iter().enumerate() {
        if let NodeConfig::Route(route) = &node.config {
            has_own_exits[place] = !route.routes.is_empty() || route.default_target_node_id.is_some();
            for one in &route.routes {
                add(place, &one.target_node_id, Some(one.condition.clone()), Style::Plain);
            }
            if let Some(target) = &route.default_target_node_id {
                add(place, target, Some("otherwise".to_owned()), Style::Plain);
            }
        }
        if let NodeConfig::Fork(fork) = &node.config {
            has_own_exits[place] = true;
            for (path, child) in fork.fork_path_ids.iter().zip(&fork.child_node_ids) {
                add(place, child, Some(path.clone()), Style::Path);
            }
        }
        if let Some(on_error) = &node.on_error {
            add(
                place,
                &on_error.target_node_id,
                Some("on error".to_owned()),
                Style::Error,
            );
        }
    }
    for edge in &definition.edges {
        if let Some(from) = places
            .get(edge.source_node_id.as_str())
            .copied()
            .filter(|from| !has_own_exits[*from])
        {
            let label = edge.label.clone().or_else(|| edge.condition.clone());
            add(from, &edge.target_node_id, label, Style::Plain);
        }
    }
    out.sort_by_key(|line| line.from);
    out
}

/// Mermaid reads `#name;` and `#35;` as characters; anything it could take for syntax is written so.
fn mermaid_text(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => out.push_str("<br/>"),
            '"' | '#' | '<' | '>' | '&' | '`' | '\\' | '{' | '}' | '[' | ']' | '|' => {
                put(&mut out, format_args!("#{};", u32::from(c)));
            }
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

fn dot_text(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '"' | '\\' => {
                out.push('\\');
                out.push(c);
            }
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

/// Writing to a `String` cannot fail.
fn put(out: &mut String, text: std::fmt::Arguments<'_>) {
    let _ = out.write_fmt(text);
}

#[cfg(test)]
mod tests {
    use super::{dot, mermaid};
    use crate::definition::{SourceFile, WorkflowDefinition, load};

    fn drawn() -> WorkflowDefinition {
        let text = r#"{"id": "say \"hi\"", "nodes": [
            {"id": "s", "type": "START"},
            {"id": "r", "type": "ROUTE", "config": {"routes": [{"condition": "a < \"b\" | c", "targetNodeId": "f"}],
             "defaultTargetNodeId": "e"}},
            {"id": "f", "type": "FORK", "config": {"forkPathIds": ["p"], "childNodeIds": ["c"]}},
            {"id": "c", "type": "LLM", "name": "back\\slash\nand line", "onError": {"targetNodeId": "j"}},
            {"id": "j", "type": "JOIN", "config": {"forkPathIds": ["p"], "joinStrategy": "ALL_COMPLETED"}},
            {"id": "e", "type": "END"}],
            "edges": [{"from": "s", "to": "r"}, {"from": "f", "to": "c"}, {"from": "c", "to": "j"},
                      {"from": "j", "to": "e"}, {"from": "j", "to": "nowhere"}]}"#;
        let loaded = load(&SourceFile::new("drawn.json", text));
        assert!(loaded.faults.is_empty(), "{:?}", loaded.faults);
        loaded.workflows[0].value.clone()
    }

    #[test]
    fn mermaid_shows_kinds_and_ways_and_escapes_labels() {
        let text = mermaid(&drawn());
        assert_eq!(
            text,
            "flowchart TD\n  n0([\"s<br/>START\"])\n  n1{\"r<br/>ROUTE\"}\n  n2[/\"f<br/>FORK\"\\]\n  \
             n3[\"c: back#92;slash<br/>and line<br/>LLM\"]\n  n4[\\\"j<br/>JOIN\"/]\n  n5([\"e<br/>END\"])\n  \
             n0 --> n1\n  n1 -->|\"a #60; #34;b#34; #124; c\"| n2\n  n1 -->|\"otherwise\"| n5\n  n2 ==>|\"p\"| n3\n  \
             n3 -.->|\"on error\"| n4\n  n3 --> n4\n  n4 --> n5\n"
        );
    }

    #[test]
    fn dot_shows_kinds_and_ways_and_escapes_labels() {
        let text = dot(&drawn());
        assert!(text.starts_with("digraph \"say \\\"hi\\\"\" {\n"), "{text}");
        assert!(
            text.contains("n3 [label=\"c: back\\\\slash\\nand line\\nLLM\", shape=box];"),
            "{text}"
        );
        assert!(
            text.contains("n1 -> n2 [style=solid, label=\"a < \\\"b\\\" | c\"];"),
            "{text}"
        );
        assert!(text.contains("n2 -> n3 [style=bold, label=\"p\"];"), "{text}");
        assert!(text.contains("n3 -> n4 [style=dashed, label=\"on error\"];"), "{text}");
        assert!(text.ends_with("}\n"));
    }
}
