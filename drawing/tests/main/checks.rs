//! Rules that every picture meets.

use pirn_drawing::{Drawing, Edge, Lane, Line, Node};

/// A rectangle: its left, upper, right and lower end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Area([i32; 4]);

impl Area {
    fn of(x: i32, y: i32, width: i32, height: i32) -> Self {
        Self([x, y, x + width, y + height])
    }

    fn node(node: &Node) -> Self {
        Self::of(node.x, node.y, node.width, node.height)
    }

    fn lane(lane: &Lane) -> Self {
        Self::of(lane.x, lane.y, lane.width, lane.height)
    }

    /// The area of a line of text: from the top of capital letters to the lower end of descenders.
    fn text(line: &Line) -> Self {
        Self::of(line.x, line.y - 11, line.width, 14)
    }

    fn segment([[x, y], [to_x, to_y]]: [[i32; 2]; 2]) -> Self {
        Self([x.min(to_x), y.min(to_y), x.max(to_x), y.max(to_y)])
    }

    /// True if the areas share a point. Areas without a width or height are lines.
    fn meets(self, other: Self) -> bool {
        let ([left, top, right, bottom], [other_left, other_top, other_right, other_bottom]) = (self.0, other.0);
        left <= other_right && other_left <= right && top <= other_bottom && other_top <= bottom
    }

    fn contains(self, other: Self) -> bool {
        let ([left, top, right, bottom], [other_left, other_top, other_right, other_bottom]) = (self.0, other.0);
        left <= other_left && other_right <= right && top <= other_top && other_bottom <= bottom
    }

    fn smaller_by(self, margin: i32) -> Self {
        let [left, top, right, bottom] = self.0;
        Self([left + margin, top + margin, right - margin, bottom - margin])
    }

    fn pixels(self) -> i64 {
        let [left, top, right, bottom] = self.0.map(i64::from);
        (right - left) * (bottom - top)
    }
}

/// Checks a picture: nothing overlaps, texts are in their boxes, and edges go around boxes.
pub(super) fn check(drawing: &Drawing) {
    boxes(drawing);
    let index = Index::of(drawing);
    edges(drawing, &index);
    labels(drawing, &index);
    lanes(drawing);
    borders(drawing);
}

fn boxes(drawing: &Drawing) {
    for node in &drawing.nodes {
        let area = Area::node(node);
        assert!(node.lines.len() <= 3 && !node.lines.is_empty(), "{node:?}");
        for line in &node.lines {
            assert!(
                area.smaller_by(3).contains(Area::text(line)),
                "{line:?} is not in {node:?}"
            );
        }
        for pair in node.lines.windows(2) {
            assert!(!Area::text(&pair[0]).meets(Area::text(&pair[1])), "{node:?}");
        }
    }
}

/// Nodes by cells, so that large pictures are checked quickly.
struct Index {
    cells: std::collections::BTreeMap<[i32; 2], Vec<usize>>,
}

const CELL: i32 = 400;

impl Index {
    fn of(drawing: &Drawing) -> Self {
        let mut cells: std::collections::BTreeMap<[i32; 2], Vec<usize>> = std::collections::BTreeMap::new();
        for (at, node) in drawing.nodes.iter().enumerate() {
            for cell in Self::around(Area::node(node)) {
                let others = cells.entry(cell).or_default();
                for other in &*others {
                    let distant = Area::node(&drawing.nodes[*other]).smaller_by(-5);
                    assert!(
                        !distant.meets(Area::node(node)),
                        "{:?} and {node:?}",
                        drawing.nodes[*other]
                    );
                }
                others.push(at);
            }
        }
        Self { cells }
    }

    fn around(area: Area) -> impl Iterator<Item = [i32; 2]> {
        let [left, top, right, bottom] = area.0.map(|end| end.div_euclid(CELL));
        (left..=right).flat_map(move |x| (top..=bottom).map(move |y| [x, y]))
    }

    fn nodes<'d>(&self, drawing: &'d Drawing, area: Area) -> impl Iterator<Item = &'d Node> {
        let cells = Self::around(area).filter_map(|cell| self.cells.get(&cell));
        cells.flatten().map(|at| &drawing.nodes[*at])
    }
}

fn segments(edge: &Edge) -> impl Iterator<Item = [[i32; 2]; 2]> {
    edge.points.windows(2).map(|pair| [pair[0], pair[1]])
}

fn edges(drawing: &Drawing, index: &Index) {
    let nodes: std::collections::BTreeMap<&str, &Node> =
        drawing.nodes.iter().map(|node| (node.id.as_str(), node)).collect();
    assert_eq!(nodes.len(), drawing.nodes.len(), "ids are unique");
    for edge in &drawing.edges {
        assert!(edge.points.len() >= 2, "{edge:?}");
        let [from, to] = [&edge.from, &edge.to].map(|id| Area::node(nodes[id.as_str()]));
        let ends = [edge.points[0], edge.points[edge.points.len() - 1]];
        for ([x, y], area) in ends.into_iter().zip([from, to]) {
            let point = Area::of(x, y, 0, 0);
            let is_at_border = area.contains(point) && !area.smaller_by(1).contains(point);
            assert!(is_at_border, "{edge:?} does not meet {area:?}");
        }
        for [one, other] in segments(edge) {
            assert!((one[0] == other[0]) != (one[1] == other[1]), "{edge:?}");
        }
        for segment in segments(edge) {
            let line = Area::segment(segment);
            for node in index.nodes(drawing, line) {
                let is_end = [&edge.from, &edge.to].contains(&&node.id);
                let area = Area::node(node);
                let area = if is_end { area.smaller_by(1) } else { area };
                assert!(!area.meets(line), "{edge:?} crosses {node:?}");
            }
        }
    }
}

/// All areas of labels and titles.
fn text_areas(drawing: &Drawing) -> Vec<Area> {
    let labels = drawing.edges.iter().filter_map(|edge| edge.label.as_ref());
    let mut areas: Vec<Area> = Vec::new();
    for label in labels {
        let area = Area::of(label.x, label.y, label.width, label.height);
        assert!(label.lines.len() <= 3, "{label:?}");
        for line in &label.lines {
            assert!(area.contains(Area::text(line)), "{label:?}");
        }
        areas.push(area);
    }
    let titles = drawing
        .lanes
        .iter()
        .flat_map(|lane| lane.lines.iter().map(move |line| (Area::lane(lane), line)));
    let frames = drawing.groups.iter().flat_map(|group| {
        let area = Area::of(group.x, group.y, group.width, group.height);
        group.lines.iter().map(move |line| (area, line))
    });
    for (area, line) in titles.chain(frames) {
        assert!(
            area.smaller_by(2).contains(Area::text(line)),
            "{line:?} is not in {area:?}"
        );
        areas.push(Area::text(line));
    }
    areas
}

fn labels(drawing: &Drawing, index: &Index) {
    let areas = text_areas(drawing);
    let mut cells: std::collections::BTreeMap<[i32; 2], Vec<Area>> = std::collections::BTreeMap::new();
    for area in areas {
        for node in index.nodes(drawing, area) {
            assert!(!Area::node(node).meets(area), "{area:?} is on {node:?}");
        }
        for cell in Index::around(area) {
            let others = cells.entry(cell).or_default();
            for other in &*others {
                assert!(!other.smaller_by(1).meets(area), "{area:?} is on {other:?}");
            }
            others.push(area);
        }
    }
    for edge in &drawing.edges {
        for segment in segments(edge) {
            let line = Area::segment(segment);
            for cell in Index::around(line) {
                for area in cells.get(&cell).into_iter().flatten() {
                    assert!(!area.meets(line), "{edge:?} is on {area:?}");
                }
            }
        }
    }
}

fn lanes(drawing: &Drawing) {
    for (at, lane) in drawing.lanes.iter().enumerate() {
        let area = Area::lane(lane);
        for other in drawing.lanes[..at].iter().map(Area::lane) {
            assert!(other.contains(area) || !other.meets(area), "{area:?} and {other:?}");
        }
    }
    for node in &drawing.nodes {
        let area = Area::node(node);
        let around: Vec<usize> = (0..drawing.lanes.len())
            .filter(|lane| Area::lane(&drawing.lanes[*lane]).meets(area))
            .collect();
        // Lanes are ordered from the outside to the inside.
        assert_eq!(around.last().copied(), node.lane, "{node:?}");
        for lane in around {
            assert!(Area::lane(&drawing.lanes[lane]).contains(area), "{node:?}");
        }
    }
}

/// Parts reach from margin to margin, so that no side of the picture is empty.
fn borders(drawing: &Drawing) {
    let nodes = drawing.nodes.iter().map(Area::node);
    let lanes = drawing.lanes.iter().map(Area::lane);
    let groups = drawing
        .groups
        .iter()
        .map(|group| Area::of(group.x, group.y, group.width, group.height));
    let labels = drawing.edges.iter().filter_map(|edge| edge.label.as_ref());
    let labels = labels.map(|label| Area::of(label.x, label.y, label.width, label.height));
    let parts = drawing.edges.iter().flat_map(segments).map(Area::segment);
    let areas = nodes.chain(lanes).chain(groups).chain(labels).chain(parts);
    let ends = areas.fold([i32::MAX, i32::MAX, 0, 0], |all, area| {
        let [left, top, right, bottom] = area.0;
        [all[0].min(left), all[1].min(top), all[2].max(right), all[3].max(bottom)]
    });
    let [left, top, right, bottom] = ends;
    for margin in [left, top, drawing.width - right, drawing.height - bottom] {
        assert!(
            (10..=60).contains(&margin),
            "{ends:?} in {} x {}",
            drawing.width,
            drawing.height
        );
    }
}

/// Returns the share of the picture's area that is near to a part of it.
pub(super) fn used_share(drawing: &Drawing) -> f64 {
    const STEP: i32 = 8;
    const NEAR: i32 = 40;
    let columns = (drawing.width / STEP + 1) as usize;
    let rows = (drawing.height / STEP + 1) as usize;
    let mut is_used = vec![false; columns * rows];
    let labels = drawing.edges.iter().filter_map(|edge| edge.label.as_ref());
    let labels = labels.map(|label| Area::of(label.x, label.y, label.width, label.height));
    let lines = drawing.edges.iter().flat_map(segments).map(Area::segment);
    for area in drawing.nodes.iter().map(Area::node).chain(labels).chain(lines) {
        let [left, top, right, bottom] = area.smaller_by(-NEAR).0.map(|end| (end / STEP).max(0) as usize);
        for row in top..=bottom.min(rows - 1) {
            for column in left..=right.min(columns - 1) {
                is_used[row * columns + column] = true;
            }
        }
    }
    is_used.iter().filter(|used| **used).count() as f64 / is_used.len() as f64
}

/// Returns the sum of the areas of boxes, to compare pictures.
pub(super) fn density(drawing: &Drawing) -> f64 {
    let boxes: i64 = drawing.nodes.iter().map(|node| Area::node(node).pixels()).sum();
    boxes as f64 / (f64::from(drawing.width) * f64::from(drawing.height))
}
