//! The layout of all regions, from the inside to the outside.

use super::layers::graph::{Arranged, Body, Graph};
use super::legs::Legs;
use super::nest::{Kind, Nest, Part};
use super::pack::pack;
use crate::boxes::{Measured, Text};
use crate::font::LINE_HEIGHT;
use crate::sketch::Sketch;

/// Space between nodes in a row, and between lanes.
const NODES: i32 = 32;
const LANES: i32 = 14;
/// Free space at the left, upper, right and lower border of a lane, and of a workflow's frame. The title is in the upper one.
const LANE: [i32; 4] = [12, 38, 12, 14];
const FRAME: [i32; 4] = [20, 44, 20, 20];
/// Space between a title and the border, and between a title and a line.
pub(super) const TITLE: i32 = 8;
/// Maximum width of the lanes of a fork in one row.
const WIDEST_ROW: i32 = 2_600;
/// Number of lanes that are always in one row.
const ROW: usize = 6;
/// Width of the arrow from a box to itself.
pub(super) const OWN: i32 = 18;

/// A laid out region.
#[derive(Debug, Default)]
pub(super) struct Placed {
    pub(super) arranged: Arranged,
    pub(super) size: [i32; 2],
    /// Corner of the content.
    pub(super) inner: [i32; 2],
    /// Title with its position.
    pub(super) title: Option<(Text, [i32; 2])>,
}

/// Computes the layout of all regions; nothing if one is too large.
pub(super) fn arrange(
    sketch: &Sketch,
    nest: &Nest,
    legs: &Legs,
    boxes: &[Measured],
    labels: &[Option<Text>],
) -> Option<Vec<Placed>> {
    let mut placed: Vec<Placed> = nest.regions.iter().map(|_| Placed::default()).collect();
    for region in nest.inside_out() {
        let one = &nest.regions[region];
        let graph = &legs.graphs[region];
        let mut graph = Graph {
            items: graph.items.clone(),
            legs: graph.legs.clone(),
            ranks: None,
            gap: if matches!(one.kind, Kind::Fork(_)) {
                LANES
            } else {
                NODES
            },
        };
        for (part, item) in one.parts.iter().zip(&mut graph.items) {
            match part {
                Part::Box(at) => {
                    [item.width, item.height] = [boxes[*at].width, boxes[*at].height];
                    if let Some(own) = legs.own.get(at) {
                        let widest = own
                            .iter()
                            .filter_map(|arrow| labels[*arrow].as_ref())
                            .map(|label| label.width)
                            .max();
                        item.aside = OWN + widest.map_or(0, |width| width + 2 * TITLE);
                        let heights = own.iter().map(|arrow| own_height(labels[*arrow].as_ref()));
                        item.height = item.height.max(heights.sum::<i32>() + TITLE);
                    }
                }
                Part::Region(inner) => {
                    let inner_graph = &legs.graphs[*inner];
                    let one = &placed[*inner];
                    [item.width, item.height] = one.size;
                    let offset = |point: &usize| one.inner[0] + one.arranged.items[*point][0];
                    item.tops = inner_graph.entries.iter().map(offset).collect();
                    item.bottoms = inner_graph.exits.iter().map(offset).collect();
                }
            }
        }
        if let Kind::Fork(_) = one.kind {
            graph.ranks = Some(rows_of_lanes(&mut graph));
            for (part, item) in one.parts.iter().zip(&graph.items) {
                if let Part::Region(inner) = part {
                    placed[*inner].size[1] = item.height;
                }
            }
        }
        let entries: Vec<usize> = legs.graphs[region].entries.clone();
        let arranged = pack(graph)?;
        let entries = entries.iter().map(|entry| arranged.items[*entry][0]).collect();
        placed[region] = framed(sketch, one.kind, arranged, entries);
    }
    Some(placed)
}

/// Returns the height of an arrow from a box to itself.
pub(super) fn own_height(label: Option<&Text>) -> i32 {
    label.map_or(0, |label| label.height).max(14) + 4
}

/// Returns the ranks of a FORK, its lanes and its JOIN. The lanes of a row get the same height. Many lanes are divided into several rows.
fn rows_of_lanes(graph: &mut Graph) -> Vec<usize> {
    let lanes: Vec<usize> = (0..graph.items.len())
        .filter(|at| graph.items[*at].body == Body::Region)
        .collect();
    let whole: i32 = lanes.iter().map(|lane| graph.items[*lane].width + LANES).sum();
    let highest = lanes
        .iter()
        .map(|lane| graph.items[*lane].height)
        .max()
        .unwrap_or_default();
    let limit = if lanes.len() <= ROW || whole <= WIDEST_ROW {
        whole
    } else {
        let square = (f64::from(whole) * f64::from(highest + 60) * 1.6).sqrt() as i32;
        square.max(WIDEST_ROW * 3 / 5)
    };
    let mut ranks = vec![0; graph.items.len()];
    let first = 1 + usize::from(graph.items.iter().any(|item| item.body == Body::Entry));
    let (mut row, mut x) = (first, 0);
    for lane in &lanes {
        let width = graph.items[*lane].width + LANES;
        if x > 0 && x + width > limit {
            row += 1;
            x = 0;
        }
        x += width;
        ranks[*lane] = row;
    }
    for row in first..=row {
        let of_row = || lanes.iter().copied().filter(|lane| ranks[*lane] == row);
        let highest = of_row().map(|lane| graph.items[lane].height).max().unwrap_or_default();
        for lane in of_row() {
            graph.items[lane].height = highest;
        }
    }
    // The FORK is the first item and the JOIN the last one before the points on the borders.
    let mut boxes = (0..graph.items.len()).filter(|at| graph.items[*at].body == Body::Plain);
    if let (Some(fork), Some(join)) = (boxes.next(), boxes.next()) {
        ranks[fork] = first - 1;
        ranks[join] = row + 1;
    }
    for (at, item) in graph.items.iter().enumerate() {
        if item.body == Body::Exit {
            ranks[at] = row + 2;
        }
    }
    ranks
}

/// Adds the borders and the title of a region.
fn framed(sketch: &Sketch, kind: Kind, arranged: Arranged, mut entries: Vec<i32>) -> Placed {
    let (mut border, title) = match kind {
        Kind::Sheet | Kind::Fork(_) | Kind::Loop => ([0; 4], None),
        Kind::Group(group) => {
            let title = &sketch.groups[group].title;
            (FRAME, Some(Text::heading(title, arranged.width.max(200), 2)))
        }
        Kind::Lane(fork, path) => {
            let (id, _) = &sketch.forks[fork].paths[path];
            (LANE, Some(Text::heading(id, arranged.width.max(140), 1)))
        }
    };
    // The space is that of a title of one line.
    border[1] += title.as_ref().map_or(0, |title| title.height - LINE_HEIGHT);
    let content = border[0] + arranged.width + border[2];
    let mut placed = Placed {
        size: [content, border[1] + arranged.height + border[3]],
        inner: [border[0], border[1]],
        arranged,
        title: None,
    };
    if let Some(title) = title {
        entries.sort_unstable();
        let (x, wanted) = title_between(&entries, border[0], title.width);
        // A title that fits nowhere widens the region at the right.
        placed.size[0] = content.max(wanted);
        if entries.is_empty() {
            placed.inner[0] += (placed.size[0] - content) / 2;
        }
        placed.title = Some((title, [x, 5]));
    }
    placed
}

/// Returns the position of a title between the lines that enter a region, and the width that it needs.
fn title_between(entries: &[i32], border: i32, width: i32) -> (i32, i32) {
    let mut left = TITLE;
    for entry in entries {
        let line = border + entry;
        if left + width + TITLE <= line {
            break;
        }
        left = left.max(line + TITLE);
    }
    (left, left + width + TITLE)
}
