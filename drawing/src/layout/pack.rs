//! Parts of a region that no edge connects are laid out on their own, and packed next to each other.

use super::layers::arrange::arrange;
use super::layers::graph::{Arranged, Body, Graph};

/// Space between two parts.
const GAP: i32 = 28;
/// Number of parts above which they are packed in rows.
const FITTED: usize = 300;
/// Preferred ratio of width to height.
const ASPECT: f64 = 1.5;

/// Computes the positions of all items; nothing if the region is too large.
pub(super) fn pack(graph: Graph) -> Option<Arranged> {
    let (component, count) = components(&graph);
    if count <= 1 {
        return arrange(graph);
    }
    let mut parts = vec![Graph::default(); count];
    let mut within = vec![0; graph.items.len()];
    let mut has_border = vec![false; count];
    for (at, item) in graph.items.iter().enumerate() {
        let part = &mut parts[component[at]];
        within[at] = part.items.len();
        has_border[component[at]] |= matches!(item.body, Body::Entry | Body::Exit);
        part.items.push(item.clone());
        part.gap = graph.gap;
    }
    let mut leg_within = vec![0; graph.legs.len()];
    for (at, leg) in graph.legs.iter().enumerate() {
        let part = &mut parts[component[leg.from]];
        leg_within[at] = part.legs.len();
        let mut leg = leg.clone();
        leg.from = within[leg.from];
        leg.to = within[leg.to];
        part.legs.push(leg);
    }
    let arranged: Vec<Arranged> = parts.into_iter().map(arrange).collect::<Option<_>>()?;
    let sizes: Vec<[i32; 2]> = arranged.iter().map(|part| [part.width, part.height]).collect();
    let (corners, [width, height]) = positions(&sizes, &has_border);
    let mut out = Arranged {
        width,
        height,
        ..Arranged::default()
    };
    let moved = |[x, y]: [i32; 2], part: usize| [x + corners[part][0], y + corners[part][1]];
    for (at, part) in component.iter().enumerate() {
        let mut corner = moved(arranged[*part].items[within[at]], *part);
        if graph.items[at].body == Body::Exit {
            corner[1] = height;
        }
        out.items.push(corner);
    }
    for (at, leg) in graph.legs.iter().enumerate() {
        let part = component[leg.from];
        let points = arranged[part].legs[leg_within[at]].iter();
        let mut points: Vec<[i32; 2]> = points.map(|point| moved(*point, part)).collect();
        if graph.items[leg.to].body == Body::Exit
            && let Some(last) = points.last_mut()
        {
            last[1] = height;
        }
        out.legs.push(points);
        out.labels
            .push(arranged[part].labels[leg_within[at]].map(|corner| moved(corner, part)));
    }
    Some(out)
}

/// Returns the component of each item, and their number. Items with edges to the borders of the region are one component.
fn components(graph: &Graph) -> (Vec<usize>, usize) {
    let mut parent: Vec<usize> = (0..graph.items.len()).collect();
    let borders = graph
        .items
        .iter()
        .enumerate()
        .filter(|(_, item)| matches!(item.body, Body::Entry | Body::Exit));
    let borders: Vec<usize> = borders.map(|(at, _)| at).collect();
    let pairs = borders.windows(2).map(|pair| [pair[0], pair[1]]);
    for [one, other] in graph.legs.iter().map(|leg| [leg.from, leg.to]).chain(pairs) {
        let [one, other] = [root(&mut parent, one), root(&mut parent, other)];
        parent[one.max(other)] = one.min(other);
    }
    let mut number = vec![None; parent.len()];
    let mut count = 0;
    let component = (0..parent.len()).map(|at| {
        let root = root(&mut parent, at);
        *number[root].get_or_insert_with(|| {
            count += 1;
            count - 1
        })
    });
    let component = component.collect();
    (component, count)
}

fn root(parent: &mut [usize], mut at: usize) -> usize {
    while parent[at] != at {
        parent[at] = parent[parent[at]];
        at = parent[at];
    }
    at
}

/// Returns the corners of rectangles, and the size of all. Nothing is below one with a border.
fn positions(sizes: &[[i32; 2]], has_border: &[bool]) -> (Vec<[i32; 2]>, [i32; 2]) {
    let widest = sizes.iter().map(|[width, _]| *width).max().unwrap_or_default();
    let area: f64 = sizes
        .iter()
        .map(|[width, height]| f64::from(width + GAP) * f64::from(height + GAP))
        .sum();
    let whole: i32 = sizes.iter().map(|[width, _]| width + GAP).sum();
    let by_area = (1..=12).map(|step| (area * 0.25 * f64::from(step)).sqrt() as i32);
    // The first rectangles in one row.
    let mut sum = 0;
    let prefixes = sizes.iter().take(12).map(|[width, _]| {
        sum += width + GAP;
        sum
    });
    let limits = by_area.chain(prefixes).chain([whole]);
    let tried = limits.map(|limit| {
        let limit = limit.max(widest);
        if sizes.len() <= FITTED {
            fitted(sizes, has_border, limit)
        } else {
            in_rows(sizes, has_border, limit)
        }
    });
    let cost = |[width, height]: [i32; 2]| {
        let scale = (f64::from(width) / ASPECT).max(f64::from(height));
        // The second term prefers the smaller of two pictures with the same scale.
        scale + f64::from(width).midpoint(f64::from(height)) / 1000.0
    };
    tried
        .min_by(|one, other| cost(one.1).total_cmp(&cost(other.1)))
        .unwrap_or_default()
}

/// Places each rectangle as high as possible, then as far to the left.
fn fitted(sizes: &[[i32; 2]], has_border: &[bool], limit: i32) -> (Vec<[i32; 2]>, [i32; 2]) {
    // Left end and height of each step of the lower edge, from left to right.
    let mut steps: Vec<[i32; 2]> = vec![[0, 0]];
    let mut corners = Vec::with_capacity(sizes.len());
    let mut size = [0; 2];
    for ([width, height], has_border) in sizes.iter().zip(has_border) {
        let candidates = steps.iter().enumerate().filter_map(|(at, [x, _])| {
            let end = x + width;
            let y = steps[at..]
                .iter()
                .take_while(|step| step[0] < end + GAP)
                .map(|step| step[1])
                .max()?;
            (end <= limit || at == 0).then_some([y, *x])
        });
        let [y, x] = candidates.min().unwrap_or_default();
        corners.push([x, y]);
        size = [size[0].max(x + width), size[1].max(y + height)];
        let bottom = if *has_border { i32::MAX / 2 } else { y + height + GAP };
        let end = x + width + GAP;
        let after = steps.iter().rev().find(|step| step[0] <= end).map_or(0, |step| step[1]);
        steps.retain(|step| !(x..end + 1).contains(&step[0]));
        steps.push([x, bottom]);
        steps.push([end, after]);
        steps.sort_unstable();
    }
    (corners, size)
}

/// Places rectangles in rows from left to right.
fn in_rows(sizes: &[[i32; 2]], has_border: &[bool], limit: i32) -> (Vec<[i32; 2]>, [i32; 2]) {
    let mut corners = vec![[0; 2]; sizes.len()];
    let mut size = [0; 2];
    // One with a border is to the left of all rows.
    let mut left = 0;
    for (at, [width, height]) in sizes.iter().enumerate().filter(|(at, _)| has_border[*at]) {
        corners[at] = [left, 0];
        left += width + GAP;
        size = [left - GAP, size[1].max(*height)];
    }
    let (mut x, mut y, mut next) = (left, 0, 0);
    for (at, [width, height]) in sizes.iter().enumerate().filter(|(at, _)| !has_border[*at]) {
        if x > left && x + width > limit {
            (x, y) = (left, next);
        }
        corners[at] = [x, y];
        x += width + GAP;
        next = next.max(y + height + GAP);
        size = [size[0].max(x - GAP), size[1].max(y + height)];
    }
    (corners, size)
}
