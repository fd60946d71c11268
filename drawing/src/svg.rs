//! A picture as SVG, with light and dark colours.

use std::fmt::Write;

use crate::drawing::{Drawing, Edge, EdgeKind, Group, Lane, Line, Node};

/// Radius of the bends of edges.
const BEND: i32 = 6;

/// Colours, which follow the reader's light or dark scheme.
const STYLE: &str = "\
.pirn{--ground:#fff;--text:#1f2328;--muted:#59636e;--line:#59636e;--box:#fff;--box-line:#848d97;--lane:#f3f6fa;--lane-line:#ccd6e2;\
--blue:#ddecff;--blue-line:#3a77c2;--yellow:#fff4cf;--yellow-line:#a3830f;--green:#e2f4e1;--green-line:#3c8a4a;--purple:#f3e8fd;\
--purple-line:#8250df;--red-line:#c8323a;--grey:#eaeef2;--orange:#ffe9d9;--orange-line:#bc5a0b}\
@media(prefers-color-scheme:dark){.pirn{--ground:#0d1117;--text:#e6edf3;--muted:#9aa4af;--line:#9aa4af;--box:#1a2029;--box-line:#6e7681;\
--lane:#131a23;--lane-line:#2f3a48;--blue:#10294a;--blue-line:#5a9bea;--yellow:#33290a;--yellow-line:#c9a227;--green:#12301b;\
--green-line:#56b267;--purple:#2a1a45;--purple-line:#a884f3;--red-line:#f4707a;--grey:#262d36;--orange:#3d2310;--orange-line:#e38b45}}\
.pirn{font-family:Arial,Helvetica,'Liberation Sans',sans-serif}.pirn text{fill:var(--text);white-space:pre}\
.pirn .ground{fill:var(--ground)}.pirn .b{font-weight:bold}\
.pirn .edge path{fill:none;stroke:var(--line);stroke-width:1.4}.pirn .edge .tip{fill:var(--line);stroke:none}\
.pirn .edge text{fill:var(--muted)}\
.pirn .loop path{stroke:var(--green-line)}.pirn .loop .tip{fill:var(--green-line)}\
.pirn .error path{stroke:var(--red-line);stroke-dasharray:5 3}.pirn .error .tip{fill:var(--red-line)}.pirn .error text{fill:var(--red-line)}\
.pirn .trigger path{stroke:var(--purple-line);stroke-dasharray:6 4}.pirn .trigger .tip{fill:var(--purple-line)}\
.pirn .node .shape{fill:var(--box);stroke:var(--box-line);stroke-width:1.2}.pirn .inner{fill:none;stroke:var(--box-line)}\
.pirn .terminal .shape{fill:var(--grey)}\
.pirn .route .shape{fill:var(--yellow);stroke:var(--yellow-line)}\
.pirn .fork .shape{fill:var(--blue);stroke:var(--blue-line)}\
.pirn .call .shape{fill:var(--box);stroke:var(--blue-line)}.pirn .call .inner{stroke:var(--blue-line)}\
.pirn .iteration .shape{fill:var(--green);stroke:var(--green-line)}\
.pirn .event .shape{fill:var(--purple);stroke:var(--purple-line)}\
.pirn .person .shape{fill:var(--orange);stroke:var(--orange-line)}\
.pirn .lane rect{fill:var(--lane);stroke:var(--lane-line)}.pirn .lane text{fill:var(--muted)}\
.pirn .group rect{fill:none;stroke:var(--box-line)}";

/// Returns the picture as an SVG document.
pub fn svg(drawing: &Drawing) -> String {
    let mut out = String::new();
    // Writing to a string does not fail.
    let _written = document(&mut out, drawing);
    out
}

fn document(out: &mut String, drawing: &Drawing) -> std::fmt::Result {
    let (width, height) = (drawing.width, drawing.height);
    writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"pirn\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         height=\"{height}\" font-size=\"{}\">\n<style>{STYLE}</style>\n<rect class=\"ground\" width=\"100%\" height=\"100%\"/>",
        drawing.font_size
    )?;
    for group in &drawing.groups {
        area(out, "group", group)?;
    }
    for lane in &drawing.lanes {
        area(out, "lane", lane)?;
    }
    for one in &drawing.edges {
        edge(out, one)?;
    }
    for one in &drawing.nodes {
        node(out, one)?;
    }
    writeln!(out, "</svg>")
}

/// A rectangle with a title.
trait Area {
    fn rectangle(&self) -> [i32; 4];
    fn label(&self) -> &str;
    fn lines(&self) -> &[Line];
}

impl Area for Group {
    fn rectangle(&self) -> [i32; 4] {
        [self.x, self.y, self.width, self.height]
    }
    fn label(&self) -> &str {
        &self.label
    }
    fn lines(&self) -> &[Line] {
        &self.lines
    }
}

impl Area for Lane {
    fn rectangle(&self) -> [i32; 4] {
        [self.x, self.y, self.width, self.height]
    }
    fn label(&self) -> &str {
        &self.label
    }
    fn lines(&self) -> &[Line] {
        &self.lines
    }
}

fn area(out: &mut String, class: &str, area: &impl Area) -> std::fmt::Result {
    let [x, y, width, height] = area.rectangle();
    write!(out, "<g class=\"{class}\"><title>{}</title>", escaped(area.label()))?;
    write!(
        out,
        "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" rx=\"8\"/>"
    )?;
    texts(out, area.lines())?;
    writeln!(out, "</g>")
}

fn node(out: &mut String, node: &Node) -> std::fmt::Result {
    let Node {
        x, y, width, height, ..
    } = *node;
    let class = class(&node.node_type);
    write!(
        out,
        "<g class=\"node {class}\" data-node=\"{}\"><title>{}</title>",
        escaped(&node.id),
        escaped(&node.title)
    )?;
    let rectangle = |inset: i32, round: i32, class: &str| {
        format!(
            "<rect class=\"{class}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"{round}\"/>",
            x + inset,
            y + inset,
            width - 2 * inset,
            height - 2 * inset
        )
    };
    match class {
        "terminal" => out.push_str(&rectangle(0, 18.min(height / 2), "shape")),
        "route" | "event" => {
            let (cut, right, bottom) = (9, x + width, y + height);
            write!(
                out,
                "<path class=\"shape\" d=\"M{} {y}H{}L{right} {}V{}L{} {bottom}H{}L{x} {}V{}Z\"/>",
                x + cut,
                right - cut,
                y + cut,
                bottom - cut,
                right - cut,
                x + cut,
                bottom - cut,
                y + cut
            )?;
        }
        "call" => {
            out.push_str(&rectangle(0, 4, "shape"));
            out.push_str(&rectangle(3, 2, "inner"));
        }
        "fork" => out.push_str(&rectangle(0, 2, "shape")),
        _ => out.push_str(&rectangle(0, 5, "shape")),
    }
    texts(out, &node.lines)?;
    writeln!(out, "</g>")
}

/// Returns the class of a box's shape and colour.
fn class(node_type: &str) -> &'static str {
    match node_type {
        "START" | "END" => "terminal",
        "ROUTE" => "route",
        "FORK" | "JOIN" => "fork",
        "SUBGRAPH" | "MAP" | "WORKFLOW" => "call",
        "LOOP_START" | "LOOP_END" => "iteration",
        "TRIGGER" | "START_FROM_TRIGGER" | "CONTINUE_FROM_TRIGGER" => "event",
        "USER_INTERACTION" => "person",
        _ => "work",
    }
}

fn edge(out: &mut String, edge: &Edge) -> std::fmt::Result {
    let class = match edge.kind {
        EdgeKind::Flow => "flow",
        EdgeKind::Condition => "condition",
        EdgeKind::Loop => "loop",
        EdgeKind::Error => "error",
        EdgeKind::Trigger => "trigger",
    };
    let whole = edge.label.as_ref().map(|label| format!(": {}", label.text));
    write!(
        out,
        "<g class=\"edge {class}\"><title>{} → {}{}</title><path d=\"{}\"/>",
        escaped(&edge.from),
        escaped(&edge.to),
        escaped(&whole.unwrap_or_default()),
        path(&edge.points)
    )?;
    if let [.., [fx, fy], [x, y]] = edge.points[..] {
        let (dx, dy) = ((x - fx).signum(), (y - fy).signum());
        let (back, side) = (8, 4);
        let base = [x - dx * back, y - dy * back];
        write!(
            out,
            "<path class=\"tip\" d=\"M{x} {y}L{} {}L{} {}Z\"/>",
            base[0] + dy * side,
            base[1] + dx * side,
            base[0] - dy * side,
            base[1] - dx * side
        )?;
    }
    if let Some(label) = &edge.label {
        texts(out, &label.lines)?;
    }
    writeln!(out, "</g>")
}

/// Returns a path with rounded bends that ends before the arrow's tip.
fn path(points: &[[i32; 2]]) -> String {
    let mut d = String::new();
    for (at, [x, y]) in points.iter().copied().enumerate() {
        let _written = match (at.checked_sub(1).map(|before| points[before]), points.get(at + 1)) {
            (None, _) => write!(d, "M{x} {y}"),
            (Some([px, py]), None) => {
                let (dx, dy) = ((x - px).signum(), (y - py).signum());
                write!(d, "L{} {}", x - 4 * dx, y - 4 * dy)
            }
            (Some([px, py]), Some([nx, ny])) => {
                let before = (x - px).abs() + (y - py).abs();
                let after = (nx - x).abs() + (ny - y).abs();
                let round = BEND.min(before / 2).min(after / 2);
                write!(
                    d,
                    "L{} {}Q{x} {y} {} {}",
                    x - (x - px).signum() * round,
                    y - (y - py).signum() * round,
                    x + (nx - x).signum() * round,
                    y + (ny - y).signum() * round
                )
            }
        };
    }
    d
}

fn texts(out: &mut String, lines: &[Line]) -> std::fmt::Result {
    for line in lines {
        let bold = if line.bold { " class=\"b\"" } else { "" };
        write!(
            out,
            "<text{bold} x=\"{}\" y=\"{}\" textLength=\"{}\" lengthAdjust=\"spacingAndGlyphs\">{}</text>",
            line.x,
            line.y,
            line.width,
            escaped(&line.text)
        )?;
    }
    Ok(())
}

/// Escapes text for XML. Characters that XML does not allow are replaced.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' => out.push('\n'),
            '\u{FFFE}' | '\u{FFFF}' => out.push('\u{FFFD}'),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}
