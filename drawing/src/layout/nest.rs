//! Nested regions: a fork with its lanes, and a loop. A region is entered at its first node and left at its last one, so it is laid out
//! on its own and takes the place of a box in the region around it.
//!
//! A fork or loop for which this does not hold (the workflow is invalid) is no region: its nodes are drawn like others.

use std::collections::{BTreeMap, BTreeSet};

use crate::drawing::EdgeKind;
use crate::sketch::Sketch;

/// Maximum depth of regions in each other.
const DEEPEST: usize = 32;
/// The search for regions visits at most this many boxes and arrows for each one that exists.
const VISITS: usize = 64;

/// Kind of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The whole picture.
    Sheet,
    /// A workflow among others.
    Group(usize),
    /// A FORK, its lanes and its JOIN.
    Fork(usize),
    /// A path of a fork, by their indices.
    Lane(usize, usize),
    /// The nodes from a LOOP_START to its LOOP_END.
    Loop,
}

/// A part of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    Box(usize),
    Region(usize),
}

/// A region.
#[derive(Debug)]
pub(super) struct Region {
    pub(super) kind: Kind,
    /// The region around this one.
    pub(super) parent: Option<usize>,
    pub(super) parts: Vec<Part>,
    /// Number of boxes.
    size: usize,
    /// Depth of the regions in this one.
    depth: usize,
}

/// All regions. The first is the sheet.
#[derive(Debug)]
pub(super) struct Nest {
    pub(super) regions: Vec<Region>,
    /// The innermost region of each box.
    pub(super) of_box: Vec<usize>,
}

impl Nest {
    /// Finds the regions of a sketch.
    pub(super) fn of(sketch: &Sketch) -> Self {
        let mut finder = Finder::new(sketch);
        let mut spans = finder.spans();
        spans.sort_by_key(|span| (span.size(), span.first));
        for span in spans {
            finder.add(&span);
        }
        finder.finish()
    }

    /// Returns the regions around a box, from the inside to the sheet.
    pub(super) fn around(&self, box_: usize) -> Vec<usize> {
        let mut around = vec![self.of_box[box_]];
        while let Some(parent) = around.last().and_then(|region| self.regions[*region].parent) {
            around.push(parent);
        }
        around
    }

    /// Returns the regions from the inside to the outside.
    pub(super) fn inside_out(&self) -> Vec<usize> {
        let mut order = vec![0];
        let mut at = 0;
        while let Some(region) = order.get(at) {
            let parts = &self.regions[*region].parts;
            order.extend(parts.iter().filter_map(|part| match part {
                Part::Region(inner) => Some(*inner),
                Part::Box(_) => None,
            }));
            at += 1;
        }
        order.reverse();
        order
    }
}

/// A fork or a loop, with the boxes between its ends.
struct Span {
    fork: Option<usize>,
    first: usize,
    last: usize,
    /// The boxes of each path; of a loop, those of its body.
    paths: Vec<BTreeSet<usize>>,
}

impl Span {
    fn size(&self) -> usize {
        2 + self.paths.iter().map(BTreeSet::len).sum::<usize>()
    }
}

struct Finder<'s> {
    sketch: &'s Sketch,
    /// Arrows that are transitions, by their ends.
    leaving: Vec<Vec<usize>>,
    entering: Vec<Vec<usize>>,
    regions: Vec<Region>,
    /// Innermost region of each box so far.
    of_box: Vec<Option<usize>>,
    visits: usize,
}

impl<'s> Finder<'s> {
    fn new(sketch: &'s Sketch) -> Self {
        let count = sketch.boxes.len();
        let (mut leaving, mut entering) = (vec![Vec::new(); count], vec![Vec::new(); count]);
        for (at, arrow) in sketch.arrows.iter().enumerate() {
            if arrow.kind != EdgeKind::Trigger {
                leaving[arrow.from].push(at);
                entering[arrow.to].push(at);
            }
        }
        let sheet = Region {
            kind: Kind::Sheet,
            parent: None,
            parts: Vec::new(),
            size: count,
            depth: 0,
        };
        Self {
            sketch,
            leaving,
            entering,
            regions: vec![sheet],
            of_box: vec![None; count],
            visits: VISITS * (count + sketch.arrows.len()),
        }
    }

    fn spans(&mut self) -> Vec<Span> {
        let mut spans = Vec::new();
        for fork in 0..self.sketch.forks.len() {
            spans.extend(self.fork(fork));
        }
        for at in 0..self.sketch.loops.len() {
            spans.extend(self.repetition(self.sketch.loops[at]));
        }
        spans
    }

    /// Returns a fork whose paths share no box and have no edge to a box other than the JOIN.
    fn fork(&mut self, number: usize) -> Option<Span> {
        let sketch = self.sketch;
        let fork = &sketch.forks[number];
        if fork.start == fork.join {
            return None;
        }
        let mut paths = Vec::new();
        let mut path_of: BTreeMap<usize, usize> = BTreeMap::new();
        for (path, (_, child)) in fork.paths.iter().enumerate() {
            let members = self.reach(*child, fork.join)?;
            for member in &members {
                if *member == fork.start || path_of.insert(*member, path).is_some() {
                    return None;
                }
            }
            paths.push(members);
        }
        for (member, path) in &path_of {
            let is_own = |other: usize| path_of.get(&other) == Some(path);
            let arrows = |arrows: &Vec<usize>| arrows.iter().map(|at| &sketch.arrows[*at]).collect::<Vec<_>>();
            let is_left = arrows(&self.leaving[*member])
                .iter()
                .any(|arrow| !is_own(arrow.to) && arrow.to != fork.join);
            let is_entered = arrows(&self.entering[*member])
                .iter()
                .any(|arrow| !is_own(arrow.from) && (arrow.from != fork.start || arrow.path != Some(*path)));
            if is_left || is_entered {
                return None;
            }
        }
        let is_joined = self.entering[fork.join].iter().all(|at| {
            let arrow = &sketch.arrows[*at];
            path_of.contains_key(&arrow.from) || (arrow.from == fork.start && arrow.path.is_some())
        });
        is_joined.then_some(Span {
            fork: Some(number),
            first: fork.start,
            last: fork.join,
            paths,
        })
    }

    /// Returns a loop that is entered only at its start and left only at its end.
    fn repetition(&mut self, [start, end]: [usize; 2]) -> Option<Span> {
        let mut members = self.reach(start, end)?;
        let sketch = self.sketch;
        for member in &members {
            let is_left = self.leaving[*member].iter().any(|at| {
                let to = sketch.arrows[*at].to;
                to != end && !members.contains(&to)
            });
            let is_entered = *member != start
                && self.entering[*member]
                    .iter()
                    .any(|at| !members.contains(&sketch.arrows[*at].from));
            if is_left || is_entered {
                return None;
            }
        }
        let is_whole = self.entering[end]
            .iter()
            .all(|at| members.contains(&sketch.arrows[*at].from));
        members.remove(&start);
        (is_whole && start != end).then_some(Span {
            fork: None,
            first: start,
            last: end,
            paths: vec![members],
        })
    }

    /// Returns the boxes that can be reached from one without a way through `end`.
    fn reach(&mut self, first: usize, end: usize) -> Option<BTreeSet<usize>> {
        let mut reached = BTreeSet::new();
        let mut open = vec![first];
        while let Some(at) = open.pop() {
            if at != end && reached.insert(at) {
                self.visits = self.visits.checked_sub(1 + self.leaving[at].len())?;
                open.extend(self.leaving[at].iter().map(|arrow| self.sketch.arrows[*arrow].to));
            }
        }
        Some(reached)
    }

    /// Adds the regions of a span, unless it crosses one that was added before.
    fn add(&mut self, span: &Span) {
        let ends = [span.first, span.last];
        if ends.iter().any(|end| self.of_box[*end].is_some()) {
            return;
        }
        let parts: Option<Vec<Vec<Part>>> = span.paths.iter().map(|path| self.parts(path)).collect();
        let Some(parts) = parts else { return };
        let depth = parts.iter().flatten().map(|part| match part {
            Part::Region(inner) => self.regions[*inner].depth + 1,
            Part::Box(_) => 0,
        });
        let depth = 2 + depth.max().unwrap_or_default();
        if depth > DEEPEST {
            return;
        }
        let outer = self.regions.len();
        let kind = span.fork.map_or(Kind::Loop, Kind::Fork);
        self.regions.push(Region {
            kind,
            parent: None,
            parts: Vec::new(),
            size: span.size(),
            depth,
        });
        for end in ends {
            self.of_box[end] = Some(outer);
        }
        let mut own = vec![Part::Box(span.first)];
        for (path, (parts, members)) in parts.into_iter().zip(&span.paths).enumerate() {
            let Some(fork) = span.fork else {
                self.enclose(&parts, outer);
                own.extend(parts);
                continue;
            };
            let lane = self.regions.len();
            self.regions.push(Region {
                kind: Kind::Lane(fork, path),
                parent: Some(outer),
                parts: parts.clone(),
                size: members.len(),
                depth: depth - 1,
            });
            self.enclose(&parts, lane);
            own.push(Part::Region(lane));
        }
        own.push(Part::Box(span.last));
        self.regions[outer].parts = own;
    }

    fn enclose(&mut self, parts: &[Part], region: usize) {
        for part in parts {
            match part {
                Part::Box(one) => self.of_box[*one] = Some(region),
                Part::Region(inner) => self.regions[*inner].parent = Some(region),
            }
        }
    }

    /// Returns the outermost existing parts that contain exactly these boxes, or `None` if a part also contains other boxes.
    fn parts(&self, members: &BTreeSet<usize>) -> Option<Vec<Part>> {
        let mut found: BTreeMap<Part, usize> = BTreeMap::new();
        let mut order = Vec::new();
        for member in members {
            let part = self.outermost(*member);
            let count = found.entry(part).or_default();
            if *count == 0 {
                order.push(part);
            }
            *count += 1;
        }
        let is_whole = |(part, count): (&Part, &usize)| match part {
            Part::Box(_) => true,
            Part::Region(region) => self.regions[*region].size == *count,
        };
        found.iter().all(is_whole).then_some(order)
    }

    fn outermost(&self, box_: usize) -> Part {
        let Some(mut region) = self.of_box[box_] else {
            return Part::Box(box_);
        };
        while let Some(parent) = self.regions[region].parent {
            region = parent;
        }
        Part::Region(region)
    }

    fn finish(mut self) -> Nest {
        let is_framed = self.sketch.groups.len() > 1;
        let mut sheet = Vec::new();
        let mut next = 0;
        for (number, group) in self.sketch.groups.iter().enumerate() {
            let members: BTreeSet<usize> = group.boxes.clone().collect();
            // Regions are within a workflow, because only triggers and calls lead out of it.
            let parts = self.parts(&members).unwrap_or_default();
            next = group.boxes.end;
            if is_framed {
                let region = self.regions.len();
                self.regions.push(Region {
                    kind: Kind::Group(number),
                    parent: Some(0),
                    parts: parts.clone(),
                    size: members.len(),
                    depth: 0,
                });
                self.enclose(&parts, region);
                sheet.push(Part::Region(region));
            } else {
                self.enclose(&parts, 0);
                sheet.extend(parts);
            }
        }
        let outer: Vec<Part> = (next..self.sketch.boxes.len()).map(Part::Box).collect();
        self.enclose(&outer, 0);
        sheet.extend(outer);
        self.regions[0].parts = sheet;
        Nest {
            of_box: self.of_box.iter().map(|region| region.unwrap_or_default()).collect(),
            regions: self.regions,
        }
    }
}
