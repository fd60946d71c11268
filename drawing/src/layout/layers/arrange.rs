//! The layout of one region: ranks, rows, order, columns, channels and heights, in this order.

use super::channels::Channels;
use super::columns;
use super::graph::{Arranged, Body, Graph};
use super::heights::{self, Heights};
use super::order;
use super::rank::rank;
use super::rows::{Hop, LABEL_GAP, Part, Rows};

/// Computes the positions of a region's parts; nothing if the region is too large.
pub(in crate::layout) fn arrange(mut graph: Graph) -> Option<Arranged> {
    let ranks = rank(&mut graph);
    let mut rows = Rows::of(&graph, &ranks)?;
    order::sort(&graph, &mut rows);
    let columns = columns::place(&graph, &mut rows);
    let channels = Channels::of(&rows, &columns);
    let heights = heights::stack(&rows, &columns, &channels);
    let drawer = Drawer {
        graph: &graph,
        rows: &rows,
        columns: &columns,
        channels: &channels,
        heights: &heights,
    };
    Some(drawer.draw())
}

struct Drawer<'a> {
    graph: &'a Graph,
    rows: &'a Rows,
    columns: &'a [i32],
    channels: &'a Channels,
    heights: &'a Heights,
}

impl Drawer<'_> {
    fn draw(&self) -> Arranged {
        let mut out = Arranged {
            height: self.heights.height,
            items: vec![[0; 2]; self.graph.items.len()],
            labels: vec![None; self.graph.legs.len()],
            ..Arranged::default()
        };
        for (at, element) in self.rows.elements.iter().enumerate() {
            let corner = [self.columns[at], self.heights.elements[at]];
            out.width = out.width.max(corner[0] + element.width);
            match element.part {
                Part::Item(item) => out.items[item] = corner,
                Part::Point(item) if self.graph.items[item].body == Body::Entry => out.items[item] = [corner[0], 0],
                Part::Point(item) => out.items[item] = [corner[0], self.heights.height],
                Part::Label(leg) => out.labels[leg] = Some([corner[0] + LABEL_GAP, corner[1]]),
                Part::Line => {}
            }
        }
        out.legs = (0..self.graph.legs.len()).map(|leg| self.points(leg)).collect();
        let widest = out.legs.iter().flatten().map(|[x, _]| x + 1).max();
        out.width = out.width.max(widest.unwrap_or_default());
        out
    }

    fn x(&self, port: usize) -> i32 {
        let port = &self.rows.ports[port];
        self.columns[port.element] + port.offset
    }

    /// Returns the height at which a line meets an item.
    fn end(&self, port: usize) -> i32 {
        let port = &self.rows.ports[port];
        let element = &self.rows.elements[port.element];
        let top = self.heights.elements[port.element];
        match element.part {
            Part::Point(item) if self.graph.items[item].body == Body::Entry => 0,
            Part::Point(_) => self.heights.height,
            Part::Item(_) | Part::Line | Part::Label(_) if port.is_top => top,
            Part::Item(_) | Part::Line | Part::Label(_) => top + element.height,
        }
    }

    /// Returns the points of a leg.
    fn points(&self, leg: usize) -> Vec<[i32; 2]> {
        let way = &self.rows.ways[leg];
        let mut points = Vec::new();
        for (at, hop) in way.iter().enumerate() {
            let (is_first, is_last) = (at == 0, at + 1 == way.len());
            let (from, to, net) = match *hop {
                Hop::Down(link) => (
                    self.rows.links[link].upper,
                    self.rows.links[link].lower,
                    self.channels.of_link[link],
                ),
                Hop::Up(link) => (
                    self.rows.links[link].lower,
                    self.rows.links[link].upper,
                    self.channels.of_link[link],
                ),
                Hop::Out(turn) if self.rows.turns[turn].is_side => {
                    points.extend(self.side(turn));
                    continue;
                }
                Hop::Into(turn) if self.rows.turns[turn].is_side => {
                    points.extend(self.side(turn).into_iter().rev());
                    continue;
                }
                Hop::Out(turn) => (
                    self.rows.turns[turn].item,
                    self.rows.turns[turn].line,
                    self.channels.of_turn[turn],
                ),
                Hop::Into(turn) => (
                    self.rows.turns[turn].line,
                    self.rows.turns[turn].item,
                    self.channels.of_turn[turn],
                ),
            };
            if is_first {
                points.push([self.x(from), self.end(from)]);
            }
            if !self.channels.nets[net].is_straight() {
                let y = self.heights.nets[net];
                points.push([self.x(from), y]);
                points.push([self.x(to), y]);
            }
            if is_last {
                points.push([self.x(to), self.end(to)]);
            }
        }
        straightened(&points)
    }

    /// Returns the connection of the side of an item with a line next to it.
    fn side(&self, turn: usize) -> [[i32; 2]; 2] {
        let turn = &self.rows.turns[turn];
        let [item, line] = [self.rows.ports[turn.item].element, self.rows.ports[turn.line].element];
        let element = &self.rows.elements[item];
        let width = match element.part {
            Part::Item(number) => self.graph.items[number].width,
            Part::Point(_) | Part::Line | Part::Label(_) => element.width,
        };
        let y = self.heights.elements[item] + element.height / 2;
        let x = self.columns[item];
        let is_right = self.columns[line] > x;
        [[if is_right { x + width } else { x }, y], [self.columns[line], y]]
    }
}

/// Removes repeated points, and points within a straight line.
pub(in crate::layout) fn straightened(points: &[[i32; 2]]) -> Vec<[i32; 2]> {
    let mut out: Vec<[i32; 2]> = Vec::with_capacity(points.len());
    for point in points {
        if out.last() == Some(point) {
            continue;
        }
        if let [.., before, last] = out[..]
            && (0..2).any(|axis| before[axis] == last[axis] && last[axis] == point[axis])
        {
            out.pop();
        }
        out.push(*point);
    }
    out
}
