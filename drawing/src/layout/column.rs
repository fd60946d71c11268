//! One box below the other, with all edges but those to the next box in tracks to the right. It takes linear space and hardly more
//! than linear time for every graph, and is used if layers would take too much of either.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::boxes::{Measured, Text};
use crate::drawing::{Drawing, Edge, FONT_SIZE, Label, Node};
use crate::sketch::Sketch;

const MARGIN: i32 = 16;
/// Distance between two tracks, and between two ends of edges at a box.
const TRACK: i32 = 10;
/// Space between a line and its label.
const GAP: i32 = 5;
/// Space between two boxes without an edge.
const BETWEEN: i32 = 28;

/// An edge in a track.
struct Detour {
    arrow: usize,
    /// Heights of its ends.
    from: i32,
    to: i32,
}

/// Places the boxes in one column, in the order of a walk along the edges.
pub(super) fn lay_out(sketch: &Sketch, boxes: &[Measured]) -> Drawing {
    let order = order(sketch);
    let mut row = vec![0; order.len()];
    for (at, place) in order.iter().enumerate() {
        row[*place] = at;
    }
    let labels: Vec<Option<Text>> = sketch
        .arrows
        .iter()
        .map(|arrow| arrow.label.as_deref().map(Text::label))
        .collect();
    let mut direct: Vec<Option<usize>> = vec![None; order.len()];
    let mut leaving: Vec<Vec<usize>> = vec![Vec::new(); order.len()];
    let mut is_entered = vec![false; order.len()];
    for (at, arrow) in sketch.arrows.iter().enumerate() {
        if row[arrow.to] == row[arrow.from] + 1 && direct[arrow.from].is_none() {
            direct[arrow.from] = Some(at);
        } else {
            leaving[arrow.from].push(at);
            is_entered[arrow.to] = true;
        }
    }
    let width = boxes.iter().map(|one| one.width).max().unwrap_or_default();
    let mut drawing = Drawing {
        font_size: FONT_SIZE,
        ..Drawing::default()
    };
    let mut tops = vec![[0; 2]; order.len()];
    let mut y = MARGIN;
    let mut detours = Vec::new();
    let mut entries = vec![0; order.len()];
    for place in &order {
        let top = y;
        y += TRACK;
        if is_entered[*place] {
            entries[*place] = y;
            y += TRACK;
        }
        for at in &leaving[*place] {
            // The label is above its line.
            y += labels[*at].as_ref().map_or(0, |label| label.height + GAP);
            detours.push(Detour {
                arrow: *at,
                from: y,
                to: 0,
            });
            y += TRACK;
        }
        y = y.max(top + boxes[*place].height);
        tops[*place] = [top, y];
        y += BETWEEN;
        if let Some(label) = direct[*place].and_then(|at| labels[at].as_ref()) {
            y += label.height;
        }
    }
    for detour in &mut detours {
        detour.to = entries[sketch.arrows[detour.arrow].to];
    }
    for (place, one) in sketch.boxes.iter().enumerate() {
        let [top, bottom] = tops[place];
        let spare = (bottom - top - boxes[place].height) / 2;
        let mut lines = boxes[place].lines(MARGIN, top + spare);
        for line in &mut lines {
            line.x += (width - boxes[place].width) / 2;
        }
        drawing.nodes.push(Node {
            id: one.id.clone(),
            node_type: one.node_type.to_owned(),
            x: MARGIN,
            y: top,
            width,
            height: bottom - top,
            lines,
            title: boxes[place].text.whole.clone(),
            lane: None,
        });
    }
    let lines = Lines {
        right: MARGIN + width,
        middle: MARGIN + width / 2,
        tracks_from: MARGIN
            + width
            + 3 * GAP
            + labels
                .iter()
                .flatten()
                .map(|label| label.width)
                .max()
                .unwrap_or_default(),
    };
    let mut edges: Vec<Option<Edge>> = sketch.arrows.iter().map(|_| None).collect();
    for at in direct.iter().flatten() {
        let arrow = &sketch.arrows[*at];
        let [from, to] = [tops[arrow.from][1], tops[arrow.to][0]];
        let points = vec![[lines.middle, from], [lines.middle, to]];
        let label = labels[*at]
            .as_ref()
            .map(|text| label(text, lines.middle + GAP, from + GAP));
        edges[*at] = Some(edge(sketch, *at, points, label));
    }
    let last = lines.detours(sketch, detours, &labels, &mut edges);
    drawing.edges = edges.into_iter().flatten().collect();
    drawing.width = last.max(lines.tracks_from) + MARGIN;
    drawing.height = y - BETWEEN + MARGIN;
    drawing
}

/// The columns of lines.
struct Lines {
    right: i32,
    middle: i32,
    tracks_from: i32,
}

impl Lines {
    /// Places the edges in tracks, each in the first one that is free. Returns the last track's position.
    fn detours(
        &self,
        sketch: &Sketch,
        mut detours: Vec<Detour>,
        labels: &[Option<Text>],
        edges: &mut [Option<Edge>],
    ) -> i32 {
        detours.sort_by_key(|one| (one.from.min(one.to), one.arrow));
        let mut free: BinaryHeap<Reverse<i32>> = BinaryHeap::new();
        let mut busy: BinaryHeap<Reverse<(i32, i32)>> = BinaryHeap::new();
        let mut next = self.tracks_from;
        for one in &detours {
            while let Some(Reverse((end, track))) = busy.peek().copied()
                && end < one.from.min(one.to)
            {
                busy.pop();
                free.push(Reverse(track));
            }
            let track = free.pop().map_or(next, |Reverse(track)| track);
            next = next.max(track + TRACK);
            busy.push(Reverse((one.from.max(one.to), track)));
            let points = vec![
                [self.right, one.from],
                [track, one.from],
                [track, one.to],
                [self.right, one.to],
            ];
            let text = labels[one.arrow].as_ref();
            let label = text.map(|text| label(text, self.right + GAP, one.from - text.height - 1));
            edges[one.arrow] = Some(edge(sketch, one.arrow, points, label));
        }
        next
    }
}

fn edge(sketch: &Sketch, at: usize, points: Vec<[i32; 2]>, label: Option<Label>) -> Edge {
    let arrow = &sketch.arrows[at];
    Edge {
        from: sketch.boxes[arrow.from].id.clone(),
        to: sketch.boxes[arrow.to].id.clone(),
        kind: arrow.kind,
        points,
        label,
    }
}

fn label(text: &Text, x: i32, y: i32) -> Label {
    Label {
        text: text.whole.clone(),
        x,
        y,
        width: text.width,
        height: text.height,
        lines: text.at(x, y),
    }
}

/// Returns the boxes in the order of a breadth-first walk along the arrows, started at the first box that was not reached.
fn order(sketch: &Sketch) -> Vec<usize> {
    let mut next: Vec<Vec<usize>> = vec![Vec::new(); sketch.boxes.len()];
    for arrow in &sketch.arrows {
        next[arrow.from].push(arrow.to);
    }
    let mut is_reached = vec![false; sketch.boxes.len()];
    let mut order = Vec::with_capacity(sketch.boxes.len());
    for first in 0..sketch.boxes.len() {
        let mut open = VecDeque::from([first]);
        while let Some(place) = open.pop_front() {
            if std::mem::replace(&mut is_reached[place], true) {
                continue;
            }
            order.push(place);
            open.extend(&next[place]);
        }
    }
    order
}
