//! Graphviz.

use std::fmt::Write;

use super::{ArrowStyle, Drawing, NodeBox, Shape};

/// A Graphviz digraph, which starts with `digraph`. Several workflows are a cluster each.
pub fn dot(drawing: &Drawing) -> String {
    let title = match drawing.groups.as_slice() {
        [one] => one.title.as_str(),
        _ => "workflows",
    };
    let mut out = format!("digraph \"{}\" {{\n  node [shape=box];\n", escaped(title));
    let mut drawn = 0;
    for (place, group) in drawing.groups.iter().enumerate() {
        let is_framed = drawing.groups.len() > 1;
        let indent = if is_framed { "    " } else { "  " };
        if is_framed {
            let title = escaped(&group.title);
            put(
                &mut out,
                format_args!("  subgraph \"cluster_{place}\" {{\n    label=\"{title}\";\n"),
            );
        }
        for place in group.boxes.clone() {
            node(place, &drawing.boxes[place], indent, &mut out);
        }
        if is_framed {
            out.push_str("  }\n");
        }
        drawn = group.boxes.end;
    }
    for (place, node_box) in drawing.boxes.iter().enumerate().skip(drawn) {
        node(place, node_box, "  ", &mut out);
    }
    for arrow in &drawing.arrows {
        let style = match arrow.style {
            ArrowStyle::Plain => "solid",
            ArrowStyle::Path => "bold",
            ArrowStyle::Dashed => "dashed",
        };
        let label = arrow
            .label
            .as_ref()
            .map(|label| format!(", label=\"{}\"", escaped(label)));
        let (from, to, label) = (arrow.from, arrow.to, label.unwrap_or_default());
        put(&mut out, format_args!("  n{from} -> n{to} [style={style}{label}];\n"));
    }
    out.push_str("}\n");
    out
}

fn node(place: usize, node_box: &NodeBox, indent: &str, out: &mut String) {
    let shape = match node_box.shape {
        Shape::Terminal => "oval",
        Shape::Box => "box",
        Shape::Diamond => "diamond",
        Shape::Spread => "trapezium",
        Shape::Gather => "invtrapezium",
        Shape::Frame => "box3d",
        Shape::Trigger => "hexagon",
        Shape::Loop => "parallelogram",
    };
    let label = escaped(&node_box.label);
    put(
        out,
        format_args!("{indent}n{place} [label=\"{label}\", shape={shape}];\n"),
    );
}

fn escaped(text: &str) -> String {
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
