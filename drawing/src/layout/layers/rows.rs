//! Rows of elements: the items, and for each leg an element in every row that it passes. So every leg has its own place in each row,
//! and never crosses an item.

use std::collections::BTreeMap;

use super::graph::{Body, Graph};

/// Maximum number of elements of a region. Above it, the whole picture is one column, because the layout would take too long.
const MAX_ELEMENTS: usize = 6_000;

/// Something with a place in a row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Element {
    pub(super) row: usize,
    pub(in crate::layout) width: i32,
    pub(in crate::layout) height: i32,
    pub(super) part: Part,
}

/// The part of the graph that an element belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// An item that is a box or a region.
    Item(usize),
    /// A point on a border.
    Point(usize),
    /// A vertical line of legs.
    Line,
    /// A vertical line with the label of a leg to its right.
    Label(usize),
}

/// A point of an element where lines meet it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Port {
    pub(super) element: usize,
    pub(super) is_top: bool,
    /// Distance from the left edge of the element.
    pub(super) offset: i32,
    /// Class of the legs.
    pub(in crate::layout) class: u8,
}

/// A connection of two elements in adjacent rows, by the ports that face each other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    pub(super) upper: usize,
    pub(super) lower: usize,
    pub(super) weight: i32,
}

/// A connection of an item with a line in the same row that leads up or down from there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    /// Port of the item.
    pub(super) item: usize,
    /// Port of the line.
    pub(super) line: usize,
    /// True if the connection meets the side of the item: nothing is between them.
    pub(super) is_side: bool,
}

/// A part of the way of a leg.
#[derive(Clone, Copy, Debug)]
pub(super) enum Hop {
    /// Along a link.
    Down(usize),
    /// Along a link, from its lower end.
    Up(usize),
    /// From an item to a line.
    Out(usize),
    /// From a line to an item.
    Into(usize),
}

/// The elements of a region and their connections.
#[derive(Debug, Default)]
pub(super) struct Rows {
    pub(super) elements: Vec<Element>,
    /// The elements of each row, from left to right.
    pub(super) order: Vec<Vec<usize>>,
    pub(super) ports: Vec<Port>,
    pub(super) links: Vec<Link>,
    pub(super) turns: Vec<Turn>,
    /// The way of each leg.
    pub(super) ways: Vec<Vec<Hop>>,
    /// The links at each element, from the row above and to the row below.
    pub(super) above: Vec<Vec<usize>>,
    pub(super) below: Vec<Vec<usize>>,
}

/// Legs that share a line in a row.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Trunk {
    /// Legs from one port.
    From(usize),
    /// Legs to one port.
    To(usize),
    /// A leg back with a label.
    Back(usize),
}

impl Rows {
    /// Builds the rows; nothing if there would be too many elements.
    pub(super) fn of(graph: &Graph, ranks: &[usize]) -> Option<Self> {
        Builder::new(graph, ranks).build()
    }

    /// Returns the element of a link's other end.
    pub(super) fn upper(&self, link: usize) -> usize {
        self.ports[self.links[link].upper].element
    }

    /// Returns the element at the lower end of a link.
    pub(super) fn lower(&self, link: usize) -> usize {
        self.ports[self.links[link].lower].element
    }

    /// Returns the index of each element in its row.
    pub(super) fn places(&self) -> Vec<usize> {
        let mut places = vec![0; self.elements.len()];
        for row in &self.order {
            for (place, element) in row.iter().enumerate() {
                places[*element] = place;
            }
        }
        places
    }
}

struct Builder<'g> {
    graph: &'g Graph,
    /// Row of each rank.
    row_of: Vec<usize>,
    ranks: &'g [usize],
    out: Rows,
    /// Ports of items: for a region by number, for a box by class and direction.
    ports: BTreeMap<(usize, bool, usize), usize>,
    trunks: BTreeMap<(Trunk, usize), usize>,
    links: BTreeMap<[usize; 2], usize>,
}

impl<'g> Builder<'g> {
    fn new(graph: &'g Graph, ranks: &'g [usize]) -> Self {
        let last = ranks.iter().copied().max().unwrap_or_default();
        // A row for the labels of the edges that leave a rank downwards.
        let mut has_labels = vec![false; last + 1];
        for leg in graph.legs.iter().filter(|leg| !leg.is_back && leg.label.is_some()) {
            has_labels[ranks[leg.from]] = true;
        }
        let mut row_of = Vec::new();
        let mut next = 0;
        for has_labels in has_labels {
            row_of.push(next);
            next += 1 + usize::from(has_labels);
        }
        Self {
            graph,
            row_of,
            ranks,
            out: Rows {
                order: vec![Vec::new(); next],
                ..Rows::default()
            },
            ports: BTreeMap::new(),
            trunks: BTreeMap::new(),
            links: BTreeMap::new(),
        }
    }

    fn build(mut self) -> Option<Rows> {
        for (at, item) in self.graph.items.iter().enumerate() {
            let part = match item.body {
                Body::Plain | Body::Region => Part::Item(at),
                Body::Entry | Body::Exit => Part::Point(at),
            };
            let row = self.row_of[self.ranks[at]];
            self.add(row, [item.width + item.aside, item.height], part);
        }
        for at in 0..self.graph.legs.len() {
            let way = if self.graph.legs[at].is_back {
                self.back(at)
            } else {
                self.forward(at)
            };
            self.out.ways.push(way);
            if self.out.elements.len() > MAX_ELEMENTS {
                return None;
            }
        }
        let mut out = self.out;
        out.above = vec![Vec::new(); out.elements.len()];
        out.below = vec![Vec::new(); out.elements.len()];
        for at in 0..out.links.len() {
            let [upper, lower] = [out.upper(at), out.lower(at)];
            out.below[upper].push(at);
            out.above[lower].push(at);
        }
        Some(out)
    }

    fn add(&mut self, row: usize, [width, height]: [i32; 2], part: Part) -> usize {
        let element = self.out.elements.len();
        self.out.elements.push(Element {
            row,
            width,
            height,
            part,
        });
        self.out.order[row].push(element);
        element
    }

    fn port(&mut self, element: usize, is_top: bool, offset: i32, class: u8) -> usize {
        self.out.ports.push(Port {
            element,
            is_top,
            offset,
            class,
        });
        self.out.ports.len() - 1
    }

    /// Returns the port of an item. Ports with equal `key` are the same.
    fn item_port(&mut self, item: usize, is_top: bool, number: usize, class: u8, key: usize) -> usize {
        let (offset, key) = match self.graph.items[item].body {
            Body::Plain => (0, key),
            Body::Region => {
                let one = &self.graph.items[item];
                let offsets = if is_top { &one.tops } else { &one.bottoms };
                (offsets.get(number).copied().unwrap_or_default(), number)
            }
            Body::Entry | Body::Exit => (0, 0),
        };
        if let Some(port) = self.ports.get(&(item, is_top, key)) {
            return *port;
        }
        // Elements of items have the indices of their items.
        let port = self.port(item, is_top, offset, class);
        self.ports.insert((item, is_top, key), port);
        port
    }

    /// Returns the ports of a line above and below.
    fn trunk(&mut self, trunk: Trunk, row: usize, class: u8) -> [usize; 2] {
        let element = match self.trunks.get(&(trunk, row)) {
            Some(element) => return [*element, *element + 1],
            None => self.add(row, [0, 0], Part::Line),
        };
        let top = self.port(element, true, 0, class);
        self.port(element, false, 0, class);
        self.trunks.insert((trunk, row), top);
        [top, top + 1]
    }

    fn label(&mut self, leg: usize, row: usize) -> [usize; 2] {
        let [width, height] = self.graph.legs[leg].label.unwrap_or_default();
        let class = self.graph.legs[leg].class;
        let element = self.add(row, [width + LABEL_GAP, height], Part::Label(leg));
        let top = self.port(element, true, 0, class);
        self.port(element, false, 0, class);
        [top, top + 1]
    }

    fn link(&mut self, upper: usize, lower: usize) -> usize {
        let next = self.out.links.len();
        let at = *self.links.entry([upper, lower]).or_insert(next);
        if at == next {
            let part = |port: usize| self.out.elements[self.out.ports[port].element].part;
            let straight = match (part(upper), part(lower)) {
                // A bend above a label rather than below it.
                (Part::Item(_), Part::Label(_)) => 1,
                (Part::Item(_), Part::Item(_)) => 2,
                (Part::Item(_), Part::Line | Part::Point(_)) | (_, Part::Item(_)) => 3,
                (Part::Line | Part::Point(_) | Part::Label(_), Part::Line | Part::Point(_) | Part::Label(_)) => 8,
            };
            let flow = if self.out.ports[lower].class == 0 { 3 } else { 1 };
            self.out.links.push(Link {
                upper,
                lower,
                weight: 2 * straight * flow,
            });
        }
        at
    }

    fn forward(&mut self, at: usize) -> Vec<Hop> {
        let leg = &self.graph.legs[at];
        let (class, is_bus, is_labelled) = (leg.class, leg.is_bus, leg.label.is_some());
        let own = if is_bus { usize::MAX } else { at };
        let mut port = self.item_port(leg.from, false, leg.from_port, class, own);
        let target = self.item_port(leg.to, true, leg.to_port, class, usize::from(class));
        let trunk = if is_bus { Trunk::From(port) } else { Trunk::To(target) };
        let mut row = self.row_of[self.ranks[leg.from]] + 1;
        let end = self.row_of[self.ranks[leg.to]];
        let mut way = Vec::new();
        let mut down = |builder: &mut Self, [top, bottom]: [usize; 2]| {
            way.push(Hop::Down(builder.link(port, top)));
            port = bottom;
        };
        if is_labelled {
            let label = self.label(at, row);
            down(self, label);
            row += 1;
        }
        for row in row..end {
            let line = self.trunk(trunk, row, class);
            down(self, line);
        }
        down(self, [target, target]);
        way
    }

    fn back(&mut self, at: usize) -> Vec<Hop> {
        let leg = &self.graph.legs[at];
        let class = leg.class;
        let source = self.item_port(leg.from, false, leg.from_port, class, at);
        let target = self.item_port(leg.to, true, leg.to_port, class, BACK + usize::from(class));
        let trunk = if leg.label.is_some() {
            Trunk::Back(at)
        } else {
            Trunk::To(target)
        };
        let rows = self.row_of[self.ranks[leg.to]]..=self.row_of[self.ranks[leg.from]];
        let mut way = vec![Hop::Out(self.out.turns.len())];
        let mut lines = Vec::new();
        for row in rows.clone() {
            let is_last = row == *rows.end();
            lines.push(match leg.label {
                Some(_) if is_last => self.label(at, row),
                Some(_) | None => self.trunk(trunk, row, class),
            });
        }
        let turn = |item, line| Turn {
            item,
            line,
            is_side: false,
        };
        let [first, last] = [lines[0], lines[lines.len() - 1]];
        self.out.turns.push(turn(source, last[1]));
        for pair in lines.windows(2).rev() {
            way.push(Hop::Up(self.link(pair[0][1], pair[1][0])));
        }
        way.push(Hop::Into(self.out.turns.len()));
        self.out.turns.push(turn(target, first[0]));
        way
    }
}

/// Space between a line and its label.
pub(super) const LABEL_GAP: i32 = 5;
/// Keys of ports that legs back enter.
const BACK: usize = usize::MAX - 256;
