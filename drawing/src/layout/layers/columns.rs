//! Horizontal positions: straight lines, and as little width as their order allows.

use super::graph::{Body, Graph};
use super::rows::{Part, Rows};
use super::simplex::{self, Distance};

/// Number of elements and links above which positions are means of the neighbours' positions instead of an optimum.
const OPTIMISED: usize = 8_000;
/// Number of elements above which a fork's lanes are placed next to each other from the left.
const PACKED: usize = 100;
/// Work of the optimisation.
const BUDGET: usize = 6_000_000;
/// Space between parallel lines.
const LINES: i32 = 12;
/// Space between a line and a box.
const ASIDE: i32 = 16;
/// Least distance between two ports of a box, and between a port and a corner.
pub(in crate::layout) const PORTS: i32 = 10;
/// Most distance between two ports of a box.
const FAR_PORTS: i32 = 36;

/// Returns the left edge of each element.
pub(super) fn place(graph: &Graph, rows: &mut Rows) -> Vec<i32> {
    spread_ports(graph, rows);
    let start = packed(graph, rows);
    let is_given = graph.ranks.is_some() && rows.elements.len() > PACKED;
    let mut columns = if is_given {
        // All rows of lanes have the same width, so their start positions are final.
        start
    } else if rows.elements.len() + rows.links.len() <= OPTIMISED {
        optimised(graph, rows, start)
    } else {
        averaged(graph, rows, start)
    };
    centre(graph, rows, &mut columns);
    let least = columns.iter().copied().min().unwrap_or_default();
    for column in &mut columns {
        *column -= least;
    }
    columns
}

/// Returns the distance between the left edges of neighbours.
fn distance(graph: &Graph, rows: &Rows, left: usize, right: usize) -> i32 {
    let space = match (rows.elements[left].part, rows.elements[right].part) {
        (Part::Item(_), Part::Item(_)) => graph.gap,
        (Part::Item(_), Part::Line | Part::Point(_) | Part::Label(_))
        | (Part::Line | Part::Point(_), Part::Item(_)) => ASIDE,
        (Part::Label(_) | Part::Line | Part::Point(_), _) => LINES,
    };
    rows.elements[left].width + space
}

/// Returns positions as far to the left as possible.
fn packed(graph: &Graph, rows: &Rows) -> Vec<i32> {
    let mut columns = vec![0; rows.elements.len()];
    for row in &rows.order {
        for pair in row.windows(2) {
            columns[pair[1]] = columns[pair[0]] + distance(graph, rows, pair[0], pair[1]);
        }
    }
    columns
}

/// Chooses where edges meet boxes: in the order of their other ends, the normal flow in the middle.
fn spread_ports(graph: &Graph, rows: &mut Rows) {
    let places = rows.places();
    // The sum and the number of the places of the other ends.
    let mut ends = vec![[0_i64, 0]; rows.ports.len()];
    let place = |element: usize| i64::try_from(places[element]).unwrap_or(i64::MAX);
    for link in &rows.links {
        let [upper, lower] = [rows.ports[link.upper].element, rows.ports[link.lower].element];
        ends[link.upper] = [ends[link.upper][0] + place(lower), ends[link.upper][1] + 1];
        ends[link.lower] = [ends[link.lower][0] + place(upper), ends[link.lower][1] + 1];
    }
    for turn in rows.turns.iter().filter(|turn| !turn.is_side) {
        let is_right = places[rows.ports[turn.line].element] > places[rows.ports[turn.item].element];
        let far = i64::from(i32::MAX);
        ends[turn.item] = [if is_right { far } else { -far }, 1];
    }
    let mut by_side: Vec<[Vec<usize>; 2]> = vec![Default::default(); rows.elements.len()];
    for (at, port) in rows.ports.iter().enumerate() {
        let is_plain = match rows.elements[port.element].part {
            Part::Item(item) => graph.items[item].body == Body::Plain,
            Part::Point(_) | Part::Line | Part::Label(_) => false,
        };
        if is_plain && ends[at][1] > 0 {
            by_side[port.element][usize::from(port.is_top)].push(at);
        }
    }
    for (element, sides) in by_side.into_iter().enumerate() {
        for mut side in sides {
            // Means, compared without division.
            side.sort_by(|one, other| {
                let [[sum, count], [other_sum, other_count]] = [ends[*one], ends[*other]];
                (sum * other_count).cmp(&(other_sum * count))
            });
            let Part::Item(item) = rows.elements[element].part else {
                continue;
            };
            for (port, offset) in side.iter().zip(offsets(graph.items[item].width, &side, rows)) {
                rows.ports[*port].offset = offset;
            }
        }
    }
}

/// Returns the distances of these ports from the left edge.
fn offsets(width: i32, side: &[usize], rows: &Rows) -> Vec<i32> {
    let count = i32::try_from(side.len()).unwrap_or(i32::MAX);
    let middle = width / 2;
    let mut flows = (0..count).zip(side).filter(|(_, port)| rows.ports[**port].class == 0);
    let flow = match (flows.next(), flows.next()) {
        (Some((at, _)), None) => Some(at),
        _ => None,
    };
    // Twice the index of the port in the middle.
    let centre = flow.map_or(count - 1, |flow| 2 * flow);
    let longest = centre.max(2 * (count - 1) - centre).max(1);
    let pitch = ((width - 2 * PORTS) / longest).clamp(1, FAR_PORTS);
    (0..count)
        .map(|at| (middle + (2 * at - centre) * pitch / 2).clamp(0, width))
        .collect()
}

/// The least weighted sum of the horizontal distances of all links.
fn optimised(graph: &Graph, rows: &Rows, start: Vec<i32>) -> Vec<i32> {
    let mut positions = start;
    let count = positions.len();
    let mut distances = Vec::new();
    for row in &rows.order {
        for pair in row.windows(2) {
            distances.push(Distance {
                from: pair[0],
                to: pair[1],
                length: distance(graph, rows, pair[0], pair[1]),
                weight: 0,
            });
        }
    }
    // A node to the left of both ends: its distances to them add up to theirs from each other.
    let mut tie = |[one, other]: [usize; 2], weight: i32| {
        let [one, other] = [one, other].map(|port| (rows.ports[port].element, rows.ports[port].offset));
        let node = positions.len();
        positions.push((positions[one.0] + one.1).min(positions[other.0] + other.1));
        for (element, offset) in [one, other] {
            distances.push(Distance {
                from: node,
                to: element,
                length: -offset,
                weight,
            });
        }
    };
    for link in &rows.links {
        tie([link.upper, link.lower], link.weight);
    }
    for turn in &rows.turns {
        tie([turn.item, turn.line], 1);
    }
    // All boxes tend weakly to one line, so that a long workflow does not drift to a side.
    let spine = positions.len();
    positions.push(graph.items.first().map_or(0, |item| item.width / 2));
    for (element, one) in rows.elements.iter().enumerate() {
        if let Part::Item(item) = one.part {
            let offset = graph.items[item].width / 2;
            let node = positions.len();
            positions.push((positions[element] + offset).min(positions[spine]));
            for (to, offset) in [(element, offset), (spine, 0)] {
                distances.push(Distance {
                    from: node,
                    to,
                    length: -offset,
                    weight: 1,
                });
            }
        }
    }
    let mut positions = simplex::solve(&distances, positions, BUDGET);
    positions.truncate(count);
    positions
}

/// Moves each element to the mean of its neighbours in the row above or below, as far as the order allows, alternately.
fn averaged(graph: &Graph, rows: &Rows, start: Vec<i32>) -> Vec<i32> {
    let mut columns = start;
    for sweep in 0..6 {
        let is_down = sweep % 2 == 0;
        for step in 0..rows.order.len() {
            let row = &rows.order[if is_down { step } else { rows.order.len() - 1 - step }];
            let wanted: Vec<i32> = row
                .iter()
                .map(|element| mean(rows, &columns, *element, is_down))
                .collect();
            nearest(graph, rows, row, &wanted, &mut columns);
        }
    }
    columns
}

fn mean(rows: &Rows, columns: &[i32], element: usize, is_down: bool) -> i32 {
    let links = if is_down {
        &rows.above[element]
    } else {
        &rows.below[element]
    };
    let at = |port: usize| i64::from(columns[rows.ports[port].element]) + i64::from(rows.ports[port].offset);
    let sum: i64 = links
        .iter()
        .map(|link| {
            let link = &rows.links[*link];
            let [near, far] = if is_down {
                [link.lower, link.upper]
            } else {
                [link.upper, link.lower]
            };
            at(far) - i64::from(rows.ports[near].offset)
        })
        .sum();
    match i64::try_from(links.len()) {
        Ok(count) if count > 0 => i32::try_from(sum / count).unwrap_or_default(),
        _ => columns[element],
    }
}

/// Moves the elements of a row as near as possible to their preferred positions (least squares) while keeping the minimum distances.
/// Neighbours that would be too close are moved as one block.
fn nearest(graph: &Graph, rows: &Rows, row: &[usize], wanted: &[i32], columns: &mut [i32]) {
    // Of each block: the index of its first element, and the sum and number of the positions that its elements prefer for it.
    let mut blocks: Vec<(usize, i64, i64)> = Vec::new();
    let mut offset = vec![0_i64; row.len()];
    for (place, element) in row.iter().enumerate() {
        if place > 0 {
            offset[place] = offset[place - 1] + i64::from(distance(graph, rows, row[place - 1], *element));
        }
        let mut block = (place, i64::from(wanted[place]) - offset[place], 1);
        while let Some(before) = blocks.last().copied()
            && before.1 * block.2 >= block.1 * before.2
        {
            blocks.pop();
            block = (before.0, before.1 + block.1, before.2 + block.2);
        }
        blocks.push(block);
    }
    for (at, (first, sum, count)) in blocks.iter().enumerate() {
        let end = blocks.get(at + 1).map_or(row.len(), |next| next.0);
        for place in *first..end {
            columns[row[place]] = i32::try_from(sum.div_euclid(*count) + offset[place]).unwrap_or_default();
        }
    }
}

/// Moves boxes that several lines leave, or enter, to the middle of the positions with the least cost. Not those with lines on both sides,
/// which would get out of line with their neighbours. Points on borders follow.
fn centre(graph: &Graph, rows: &Rows, columns: &mut [i32]) {
    let is_point = |element: usize| matches!(rows.elements[element].part, Part::Point(_));
    for row in &rows.order {
        for (place, element) in row.iter().enumerate().filter(|(_, element)| !is_point(**element)) {
            let above = rows.above[*element]
                .iter()
                .filter(|link| !is_point(rows.upper(**link)))
                .count();
            let below = rows.below[*element]
                .iter()
                .filter(|link| !is_point(rows.lower(**link)))
                .count();
            if above == 0 || below == 0 {
                move_to_middle(graph, rows, columns, row, place);
            }
        }
    }
    for row in rows
        .order
        .iter()
        .filter(|row| row.iter().any(|element| is_point(*element)))
    {
        for place in (0..row.len()).filter(|place| is_point(row[*place])) {
            move_to_middle(graph, rows, columns, row, place);
        }
    }
}

fn move_to_middle(graph: &Graph, rows: &Rows, columns: &mut [i32], row: &[usize], place: usize) {
    let element = row[place];
    let is_point = |element: usize| matches!(rows.elements[element].part, Part::Point(_));
    let mut wanted: Vec<(i32, i32)> = Vec::new();
    for link in rows.above[element].iter().chain(&rows.below[element]) {
        let link = &rows.links[*link];
        let [near, far] = if rows.ports[link.upper].element == element {
            [link.upper, link.lower]
        } else {
            [link.lower, link.upper]
        };
        let other = rows.ports[far].element;
        if !is_point(other) || is_point(element) {
            let far = columns[other] + rows.ports[far].offset;
            wanted.push((far - rows.ports[near].offset, link.weight));
        }
    }
    let Some([least, most]) = medians(&mut wanted) else {
        return;
    };
    let left = place.checked_sub(1).map(|left| row[left]);
    let least_free = left.map(|left| columns[left] + distance(graph, rows, left, element));
    let most_free = row
        .get(place + 1)
        .map(|right| columns[*right] - distance(graph, rows, element, *right));
    let mut at = i32::midpoint(least, most);
    at = most_free.map_or(at, |most| at.min(most));
    at = least_free.map_or(at, |least| at.max(least));
    if (least..=most).contains(&at) {
        columns[element] = at;
    }
}

/// Returns the least and the greatest weighted median.
fn medians(values: &mut [(i32, i32)]) -> Option<[i32; 2]> {
    values.sort_unstable();
    let total: i64 = values.iter().map(|(_, weight)| i64::from(*weight)).sum();
    let mut sum = 0;
    let mut least = None;
    for (value, weight) in values.iter() {
        sum += i64::from(*weight);
        if 2 * sum >= total && least.is_none() {
            least = Some(*value);
        }
        if 2 * sum > total {
            return least.map(|least| [least, *value]);
        }
    }
    None
}
