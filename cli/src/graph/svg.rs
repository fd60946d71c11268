//! Draws a graph as SVG, laid out in layers.

use layout::backends::svg::SVGWriter;
use layout::core::base::Orientation;
use layout::core::color::Color;
use layout::core::geometry::Point;
use layout::core::style::{LineStyleKind, StyleAttr};
use layout::std_shapes::shapes::{Arrow, Element, LineEndKind, ShapeKind};
use layout::topo::layout::VisualGraph;
use pirn_definition::graph::draw::{ArrowStyle, Drawing, Shape};

const FONT: usize = 14;
/// Width of a character and height of a line, in pixels.
const CELL: (f64, f64) = (7.5, 20.0);
/// Maximum length of a label on an arrow, in characters.
const LONGEST_LABEL: usize = 40;

/// Returns the drawing as an SVG document with a white background.
pub(super) fn svg(drawing: &Drawing) -> String {
    let mut graph = VisualGraph::new(Orientation::TopToBottom);
    let handles: Vec<_> = drawing
        .boxes
        .iter()
        .map(|one| {
            let columns = one.label.lines().map(|line| line.chars().count()).max().unwrap_or(1);
            let size = Point::new(
                columns as f64 * CELL.0 + 24.0,
                one.label.lines().count() as f64 * CELL.1 + 12.0,
            );
            let (shape, fill, rounded) = look(one.shape, &one.label);
            let style = StyleAttr::new(Color::fast("black"), 1, Some(Color::fast(fill)), rounded, FONT);
            graph.add_node(Element::create(shape, style, Orientation::TopToBottom, size))
        })
        .collect();
    for arrow in &drawing.arrows {
        let (style, width) = match arrow.style {
            ArrowStyle::Plain => (LineStyleKind::Normal, 1),
            ArrowStyle::Path => (LineStyleKind::Normal, 2),
            ArrowStyle::Dashed => (LineStyleKind::Dashed, 1),
        };
        let label = arrow.label.as_deref().unwrap_or_default();
        let label: String = label
            .chars()
            .take(LONGEST_LABEL)
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect();
        let look = StyleAttr::new(Color::fast("black"), width, None, 0, FONT);
        let line = Arrow::new(
            LineEndKind::None,
            LineEndKind::Arrow,
            style,
            &label,
            &look,
            &None,
            &None,
        );
        graph.add_edge(line, handles[arrow.from], handles[arrow.to]);
    }
    let mut writer = SVGWriter::new();
    graph.do_it(false, false, false, &mut writer);
    let text = writer
        .finalize()
        .replace("font-family: Times, serif", "font-family: sans-serif");
    let ground = "<rect width=\"100%\" height=\"100%\" fill=\"white\"/><defs>";
    format!("{}\n", text.replacen("<defs>", ground, 1))
}

/// Returns the form, the colour and the rounding of a box.
fn look(shape: Shape, label: &str) -> (ShapeKind, &'static str, usize) {
    match shape {
        Shape::Terminal => (ShapeKind::new_box(label), "#eeeeeeff", 15),
        Shape::Box => (ShapeKind::new_box(label), "#ffffffff", 3),
        Shape::Diamond => (ShapeKind::new_box(label), "#fff3c4ff", 0),
        Shape::Spread | Shape::Gather => (ShapeKind::new_box(label), "#d6e6ffff", 0),
        Shape::Frame => (ShapeKind::new_box(label), "#e3f6dfff", 0),
        Shape::Trigger => (ShapeKind::new_box(label), "#f6e0f4ff", 8),
        Shape::Loop => (ShapeKind::new_box(label), "#e6eeddff", 8),
    }
}
