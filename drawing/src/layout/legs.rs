//! Divides each arrow into legs: one for each region that it passes. An arrow leaves a region at its lower border and enters one at its
//! upper border.

use std::collections::BTreeMap;

use super::layers::graph::{Body, Item, Leg};
use super::layers::rank::LOOP;
use super::nest::{Kind, Nest, Part};
use crate::boxes::Text;
use crate::drawing::EdgeKind;
use crate::sketch::{Arrow, Sketch};

/// The graphs of all regions, without the sizes of items, and the legs of all arrows.
pub(super) struct Legs {
    pub(super) graphs: Vec<RegionGraph>,
    /// The legs of each arrow, from its source to its target: regions and indices of legs.
    pub(super) of_arrow: Vec<Vec<[usize; 2]>>,
    /// Arrows from a box to itself, which are drawn at its side.
    pub(super) own: BTreeMap<usize, Vec<usize>>,
}

/// The items and legs of a region.
#[derive(Default)]
pub(super) struct RegionGraph {
    /// The region's parts, then the points on its borders.
    pub(super) items: Vec<Item>,
    pub(super) legs: Vec<Leg>,
    /// Items of the points where arrows enter and leave, in the order of the ports of the region.
    pub(super) entries: Vec<usize>,
    pub(super) exits: Vec<usize>,
    ports: BTreeMap<(Side, usize, u8), usize>,
    shared: BTreeMap<([usize; 4], u8), usize>,
}

/// A side of a region.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Side {
    Entry,
    Exit,
}

impl RegionGraph {
    /// Returns the number of the port for arrows to a box.
    fn port(&mut self, side: Side, target: usize, class: u8) -> usize {
        if let Some(port) = self.ports.get(&(side, target, class)) {
            return *port;
        }
        let item = self.items.len();
        let (body, list) = match side {
            Side::Entry => (Body::Entry, &mut self.entries),
            Side::Exit => (Body::Exit, &mut self.exits),
        };
        list.push(item);
        let port = list.len() - 1;
        self.items.push(Item::point(body));
        self.ports.insert((side, target, class), port);
        port
    }

    /// Adds a leg. Legs without a label between the same ports of regions are one.
    fn leg(&mut self, leg: Leg) -> usize {
        let next = self.legs.len();
        if self.items[leg.from].body != Body::Plain && leg.label.is_none() {
            let key = ([leg.from, leg.from_port, leg.to, leg.to_port], leg.class);
            let at = *self.shared.entry(key).or_insert(next);
            if at < next {
                return at;
            }
        }
        self.legs.push(leg);
        next
    }
}

/// Returns the class of an arrow. Arrows of different classes do not share lines.
fn class(arrow: &Arrow) -> u8 {
    match arrow.kind {
        EdgeKind::Flow | EdgeKind::Condition => 0,
        EdgeKind::Loop => LOOP,
        EdgeKind::Error => 2,
        EdgeKind::Trigger => 3,
    }
}

impl Legs {
    /// Divides the arrows of a sketch.
    pub(super) fn of(sketch: &Sketch, nest: &Nest, labels: &[Option<Text>]) -> Self {
        let mut legs = Self {
            graphs: nest.regions.iter().map(|_| RegionGraph::default()).collect(),
            of_arrow: Vec::with_capacity(sketch.arrows.len()),
            own: BTreeMap::new(),
        };
        let mut item_of: BTreeMap<Part, usize> = BTreeMap::new();
        for (graph, region) in legs.graphs.iter_mut().zip(&nest.regions) {
            for part in &region.parts {
                item_of.insert(*part, graph.items.len());
                let body = match part {
                    Part::Box(_) => Body::Plain,
                    Part::Region(_) => Body::Region,
                };
                graph.items.push(Item::point(body));
            }
        }
        // The lanes of each fork, by their paths.
        let mut lanes: BTreeMap<[usize; 2], usize> = BTreeMap::new();
        for (at, region) in nest.regions.iter().enumerate() {
            if let Kind::Lane(fork, path) = region.kind {
                lanes.insert([fork, path], at);
            }
        }
        let forks: BTreeMap<usize, usize> = sketch
            .forks
            .iter()
            .enumerate()
            .map(|(at, fork)| (fork.start, at))
            .collect();
        for (at, arrow) in sketch.arrows.iter().enumerate() {
            if arrow.from == arrow.to {
                legs.own.entry(arrow.from).or_default().push(at);
                legs.of_arrow.push(Vec::new());
                continue;
            }
            let lane = arrow
                .path
                .and_then(|path| lanes.get(&[*forks.get(&arrow.from)?, path]))
                .copied();
            let label = if lane.is_some() { None } else { labels[at].as_ref() };
            let divided = match lane {
                Some(lane) if nest.of_box[arrow.to] != lane && nest.regions[lane].parts.is_empty() => {
                    legs.through(arrow, lane, nest, &item_of)
                }
                Some(_) | None => legs.divide(arrow, lane.is_some(), label, nest, &item_of),
            };
            legs.of_arrow.push(divided);
        }
        legs
    }

    /// Returns the number of points at the lower side of each box at which legs start.
    pub(super) fn leaving(&self, nest: &Nest, boxes: usize) -> Vec<i32> {
        let mut counts = vec![0; boxes];
        for (graph, region) in self.graphs.iter().zip(&nest.regions) {
            let parts = graph
                .legs
                .iter()
                .filter(|leg| !leg.is_bus)
                .filter_map(|leg| region.parts.get(leg.from));
            for part in parts {
                if let Part::Box(at) = part {
                    counts[*at] += 1;
                }
            }
        }
        counts
    }

    /// Divides an arrow through a lane without boxes.
    fn through(&mut self, arrow: &Arrow, lane: usize, nest: &Nest, item_of: &BTreeMap<Part, usize>) -> Vec<[usize; 2]> {
        let class = class(arrow);
        let outer = nest.of_box[arrow.from];
        let entry = self.graphs[lane].port(Side::Entry, arrow.to, class);
        let exit = self.graphs[lane].port(Side::Exit, arrow.to, class);
        let item = item_of[&Part::Region(lane)];
        let leg = |from, from_port, to, to_port, is_bus| Leg {
            from,
            from_port,
            to,
            to_port,
            class,
            is_bus,
            label: None,
            is_back: false,
        };
        let within = leg(
            self.graphs[lane].entries[entry],
            0,
            self.graphs[lane].exits[exit],
            0,
            false,
        );
        vec![
            [
                outer,
                self.graphs[outer].leg(leg(item_of[&Part::Box(arrow.from)], 0, item, entry, true)),
            ],
            [lane, self.graphs[lane].leg(within)],
            [
                outer,
                self.graphs[outer].leg(leg(item, exit, item_of[&Part::Box(arrow.to)], 0, false)),
            ],
        ]
    }

    fn divide(
        &mut self,
        arrow: &Arrow,
        is_bus: bool,
        label: Option<&Text>,
        nest: &Nest,
        item_of: &BTreeMap<Part, usize>,
    ) -> Vec<[usize; 2]> {
        let class = class(arrow);
        let (up, down) = (nest.around(arrow.from), nest.around(arrow.to));
        // Both lists end with the sheet.
        let shared = up
            .iter()
            .rev()
            .zip(down.iter().rev())
            .take_while(|(one, other)| one == other)
            .count();
        let (up, down) = (&up[..=up.len() - shared], &down[..down.len() - shared]);
        let mut label = label.map(|text| [text.width, text.height]);
        let mut out = Vec::new();
        let mut from = (item_of[&Part::Box(arrow.from)], 0);
        for region in up {
            let is_last = up.last() == Some(region);
            let to = if !is_last {
                let port = self.graphs[*region].port(Side::Exit, arrow.to, class);
                (self.graphs[*region].exits[port], port)
            } else if let Some(inner) = down.last() {
                let port = self.graphs[*inner].port(Side::Entry, arrow.to, class);
                (item_of[&Part::Region(*inner)], port)
            } else {
                (item_of[&Part::Box(arrow.to)], 0)
            };
            let leg = Leg {
                from: from.0,
                from_port: from.1,
                to: to.0,
                to_port: if is_last { to.1 } else { 0 },
                class,
                is_bus,
                label: label.take(),
                is_back: false,
            };
            out.push([*region, self.graphs[*region].leg(leg)]);
            from = (item_of.get(&Part::Region(*region)).copied().unwrap_or_default(), to.1);
        }
        for (at, region) in down.iter().enumerate().rev() {
            let port = self.graphs[*region].port(Side::Entry, arrow.to, class);
            let from = self.graphs[*region].entries[port];
            let (to, to_port) = match at.checked_sub(1).map(|at| down[at]) {
                Some(inner) => (
                    item_of[&Part::Region(inner)],
                    self.graphs[inner].port(Side::Entry, arrow.to, class),
                ),
                None => (item_of[&Part::Box(arrow.to)], 0),
            };
            let leg = Leg {
                from,
                from_port: 0,
                to,
                to_port,
                class,
                is_bus: false,
                label: None,
                is_back: false,
            };
            out.push([*region, self.graphs[*region].leg(leg)]);
        }
        out
    }
}
