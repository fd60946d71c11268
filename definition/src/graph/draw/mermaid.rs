//! Mermaid.

use std::fmt::Write;

use super::{ArrowStyle, Drawing, NodeBox, Shape};

/// A Mermaid flowchart, which starts with `flowchart TD`. Several workflows are a `subgraph` each.
pub fn mermaid(drawing: &Drawing) -> String {
    let mut out = String::from("flowchart TD\n");
    let mut drawn = 0;
    for (place, group) in drawing.groups.iter().enumerate() {
        let is_framed = drawing.groups.len() > 1;
        let indent = if is_framed { "    " } else { "  " };
        if is_framed {
            put(
                &mut out,
                format_args!("  subgraph w{place}[\"{}\"]\n", escaped(&group.title)),
            );
        }
        for place in group.boxes.clone() {
            node(place, &drawing.boxes[place], indent, &mut out);
        }
        if is_framed {
            out.push_str("  end\n");
        }
        drawn = group.boxes.end;
    }
    for (place, node_box) in drawing.boxes.iter().enumerate().skip(drawn) {
        node(place, node_box, "  ", &mut out);
    }
    for arrow in &drawing.arrows {
        let head = match arrow.style {
            ArrowStyle::Plain => "-->",
            ArrowStyle::Path => "==>",
            ArrowStyle::Dashed => "-.->",
        };
        let label = arrow.label.as_ref().map(|label| format!("|\"{}\"|", escaped(label)));
        let (from, to, label) = (arrow.from, arrow.to, label.unwrap_or_default());
        put(&mut out, format_args!("  n{from} {head}{label} n{to}\n"));
    }
    out
}

fn node(place: usize, node_box: &NodeBox, indent: &str, out: &mut String) {
    let (open, close) = match node_box.shape {
        Shape::Terminal => ("([", "])"),
        Shape::Box => ("[", "]"),
        Shape::Diamond => ("{", "}"),
        Shape::Spread => ("[/", "\\]"),
        Shape::Gather => ("[\\", "/]"),
        Shape::Frame => ("[[", "]]"),
        Shape::Trigger => ("{{", "}}"),
        Shape::Loop => ("[/", "/]"),
    };
    let label = escaped(&node_box.label);
    put(out, format_args!("{indent}n{place}{open}\"{label}\"{close}\n"));
}

/// Escapes characters with a meaning in Mermaid as `#name;` or `#35;`.
fn escaped(text: &str) -> String {
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

/// Writing to a `String` cannot fail.
fn put(out: &mut String, text: std::fmt::Arguments<'_>) {
    let _ = out.write_fmt(text);
}
