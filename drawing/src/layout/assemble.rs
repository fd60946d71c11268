//! The picture, from the layouts of all regions.

use super::layers::arrange::straightened;
use super::legs::Legs;
use super::nest::{Kind, Nest, Part};
use super::regions::{OWN, Placed, TITLE, own_height};
use crate::boxes::{Measured, Text};
use crate::drawing::{Drawing, Edge, FONT_SIZE, Group, Label, Lane, Line, Node};
use crate::sketch::Sketch;

/// Free space around the picture.
const MARGIN: i32 = 16;

/// Moves all parts to their positions in the picture.
pub(super) fn assemble(
    sketch: &Sketch,
    nest: &Nest,
    legs: &Legs,
    regions: &[Placed],
    boxes: &[Measured],
    labels: &[Option<Text>],
) -> Drawing {
    let mut drawing = Drawing {
        width: regions[0].size[0] + 2 * MARGIN,
        height: regions[0].size[1] + 2 * MARGIN,
        font_size: FONT_SIZE,
        ..Drawing::default()
    };
    let mut corners = vec![[0; 2]; regions.len()];
    // Corner and height of each box.
    let mut boxes_at = vec![[0; 3]; boxes.len()];
    corners[0] = [MARGIN, MARGIN];
    let mut lane_of = vec![None; regions.len()];
    for region in nest.inside_out().into_iter().rev() {
        let placed = &regions[region];
        let outer = corners[region];
        if let Some(parent) = nest.regions[region].parent {
            lane_of[region] = lane_of[parent];
        }
        if let Some((title, at)) = &placed.title {
            let area = Area {
                corner: outer,
                size: placed.size,
                label: title.whole.clone(),
                lines: title.at(outer[0] + at[0], outer[1] + at[1]),
            };
            match nest.regions[region].kind {
                Kind::Lane(fork, path) => {
                    lane_of[region] = Some(drawing.lanes.len());
                    drawing.lanes.push(area.lane(sketch, fork, path));
                }
                Kind::Group(group) => drawing.groups.push(area.group(sketch, group)),
                Kind::Sheet | Kind::Fork(_) | Kind::Loop => {}
            }
        }
        let inner = [outer[0] + placed.inner[0], outer[1] + placed.inner[1]];
        for (part, [x, y]) in nest.regions[region].parts.iter().zip(&placed.arranged.items) {
            match part {
                Part::Box(at) => {
                    let own = legs.own.get(at).map(Vec::as_slice).unwrap_or_default();
                    let heights = own.iter().map(|arrow| own_height(labels[*arrow].as_ref())).sum::<i32>();
                    let height = if own.is_empty() {
                        boxes[*at].height
                    } else {
                        boxes[*at].height.max(heights + TITLE)
                    };
                    boxes_at[*at] = [inner[0] + x, inner[1] + y, height];
                }
                Part::Region(at) => corners[*at] = [inner[0] + x, inner[1] + y],
            }
        }
        // From here on: the corner of the content.
        corners[region] = inner;
    }
    for (at, one) in sketch.boxes.iter().enumerate() {
        let [x, y, height] = boxes_at[at];
        drawing.nodes.push(Node {
            id: one.id.clone(),
            node_type: one.node_type.to_owned(),
            x,
            y,
            width: boxes[at].width,
            height,
            lines: boxes[at].lines(x, y + (height - boxes[at].height) / 2),
            title: boxes[at].text.whole.clone(),
            lane: lane_of[nest.of_box[at]],
        });
    }
    for (at, arrow) in sketch.arrows.iter().enumerate() {
        let mut points = Vec::new();
        let mut label = None;
        for [region, leg] in &legs.of_arrow[at] {
            let [dx, dy] = corners[*region];
            let arranged = &regions[*region].arranged;
            points.extend(arranged.legs[*leg].iter().map(|[x, y]| [x + dx, y + dy]));
            if let (Some([x, y]), Some(text)) = (arranged.labels[*leg], &labels[at]) {
                label = Some(labelled(text, x + dx, y + dy));
            }
        }
        if let Some(own) = legs.own.get(&arrow.from).filter(|_| arrow.from == arrow.to) {
            let before = own.iter().take_while(|other| **other != at);
            let offset: i32 = before.map(|arrow| own_height(labels[*arrow].as_ref())).sum();
            let [x, y, _] = boxes_at[arrow.from];
            let (x, y) = (x + boxes[arrow.from].width, y + TITLE / 2 + offset);
            let height = own_height(labels[at].as_ref());
            points = vec![
                [x, y + 3],
                [x + OWN, y + 3],
                [x + OWN, y + height - 5],
                [x, y + height - 5],
            ];
            label = labels[at].as_ref().map(|text| labelled(text, x + OWN + TITLE, y));
        }
        drawing.edges.push(Edge {
            from: sketch.boxes[arrow.from].id.clone(),
            to: sketch.boxes[arrow.to].id.clone(),
            kind: arrow.kind,
            points: straightened(&points),
            label,
        });
    }
    drawing
}

fn labelled(text: &Text, x: i32, y: i32) -> Label {
    Label {
        text: text.whole.clone(),
        x,
        y,
        width: text.width,
        height: text.height,
        lines: text.at(x, y),
    }
}

/// A region with a title.
struct Area {
    corner: [i32; 2],
    size: [i32; 2],
    label: String,
    lines: Vec<Line>,
}

impl Area {
    fn lane(self, sketch: &Sketch, fork: usize, path: usize) -> Lane {
        let fork = &sketch.forks[fork];
        Lane {
            fork: sketch.boxes[fork.start].id.clone(),
            path_id: fork.paths[path].0.clone(),
            x: self.corner[0],
            y: self.corner[1],
            width: self.size[0],
            height: self.size[1],
            label: self.label,
            lines: self.lines,
        }
    }

    fn group(self, sketch: &Sketch, group: usize) -> Group {
        Group {
            workflow: sketch.groups[group].id.clone(),
            x: self.corner[0],
            y: self.corner[1],
            width: self.size[0],
            height: self.size[1],
            label: self.label,
            lines: self.lines,
        }
    }
}
