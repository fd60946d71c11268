//! The order of elements in their rows: few crossings.

use std::collections::BTreeSet;

use super::graph::{Body, Graph};
use super::rows::{Part, Rows};

/// Number of elements above which rows are sorted only twice, and elements are not exchanged.
const THOROUGH: usize = 3_000;
const SWEEPS: usize = 12;

/// Sorts the elements of every row by the places of their neighbours, downwards and upwards, and retains the best order.
pub(super) fn sort(graph: &Graph, rows: &mut Rows) {
    walk(rows);
    if graph.ranks.is_some() {
        mark_sides(graph, rows);
        return;
    }
    let is_thorough = rows.elements.len() <= THOROUGH;
    let mut best = (crossings(rows), rows.order.clone());
    for sweep in 0..if is_thorough { SWEEPS } else { 2 } {
        if best.0 == 0 {
            break;
        }
        barycentres(rows, sweep % 2 == 0);
        if is_thorough {
            exchange(rows);
        }
        let count = crossings(rows);
        if count < best.0 {
            best = (count, rows.order.clone());
        }
    }
    rows.order = best.1;
    if is_thorough {
        attach(rows);
    }
    mark_sides(graph, rows);
}

/// The initial order: that of a walk along the links, in the order of the items. Lines that lead back are last.
fn walk(rows: &mut Rows) {
    let count = rows.elements.len();
    let mut is_reached = vec![false; count];
    let mut order = Vec::with_capacity(count);
    let is_back = {
        let mut is_back = vec![false; count];
        let mut open: Vec<usize> = rows.turns.iter().map(|turn| rows.ports[turn.line].element).collect();
        while let Some(element) = open.pop() {
            if !std::mem::replace(&mut is_back[element], true) {
                let links = rows.above[element].iter().map(|link| rows.upper(*link));
                let links = links.chain(rows.below[element].iter().map(|link| rows.lower(*link)));
                open.extend(
                    links.filter(|other| !matches!(rows.elements[*other].part, Part::Item(_) | Part::Point(_))),
                );
            }
        }
        is_back
    };
    let roots = (0..count)
        .filter(|element| rows.above[*element].is_empty())
        .chain(0..count);
    for root in roots {
        let mut open = vec![root];
        while let Some(element) = open.pop() {
            if std::mem::replace(&mut is_reached[element], true) {
                continue;
            }
            order.push(element);
            open.extend(rows.below[element].iter().rev().map(|link| rows.lower(*link)));
        }
    }
    order.sort_by_key(|element| is_back[*element]);
    for row in &mut rows.order {
        row.clear();
    }
    for element in order {
        rows.order[rows.elements[element].row].push(element);
    }
}

fn barycentres(rows: &mut Rows, is_down: bool) {
    let mut places = rows.places();
    let count = rows.order.len();
    for step in 1..count {
        let row = if is_down { step } else { count - 1 - step };
        let mut keyed: Vec<(f64, usize)> = Vec::with_capacity(rows.order[row].len());
        for element in &rows.order[row] {
            let neighbours: Vec<usize> = if is_down {
                rows.above[*element]
                    .iter()
                    .map(|link| places[rows.upper(*link)])
                    .collect()
            } else {
                rows.below[*element]
                    .iter()
                    .map(|link| places[rows.lower(*link)])
                    .collect()
            };
            let own = places[*element] as f64;
            let mean = neighbours.iter().sum::<usize>() as f64 / neighbours.len() as f64;
            keyed.push((if neighbours.is_empty() { own } else { mean }, *element));
        }
        keyed.sort_by(|one, other| one.0.total_cmp(&other.0));
        rows.order[row] = keyed.into_iter().map(|(_, element)| element).collect();
        for (place, element) in rows.order[row].iter().enumerate() {
            places[*element] = place;
        }
    }
}

/// Exchanges adjacent elements as long as this removes crossings.
fn exchange(rows: &mut Rows) {
    let mut places = rows.places();
    for _ in 0..4 {
        let mut is_better = false;
        for row in 0..rows.order.len() {
            for at in 1..rows.order[row].len() {
                let [one, other] = [rows.order[row][at - 1], rows.order[row][at]];
                if pair(rows, &places, one, other) > pair(rows, &places, other, one) {
                    rows.order[row].swap(at - 1, at);
                    places.swap(one, other);
                    is_better = true;
                }
            }
        }
        if !is_better {
            break;
        }
    }
}

/// Returns the number of crossings of the links of two elements if `one` is to the left of `other`.
fn pair(rows: &Rows, places: &[usize], one: usize, other: usize) -> usize {
    let count = |left: &[usize], right: &[usize]| -> usize {
        left.iter()
            .map(|place| right.iter().filter(|other| *other < place).count())
            .sum()
    };
    let above = |element: usize| -> Vec<usize> {
        rows.above[element]
            .iter()
            .map(|link| places[rows.upper(*link)])
            .collect()
    };
    let below = |element: usize| -> Vec<usize> {
        rows.below[element]
            .iter()
            .map(|link| places[rows.lower(*link)])
            .collect()
    };
    count(&above(one), &above(other)) + count(&below(one), &below(other))
}

/// Returns the number of crossings of links.
fn crossings(rows: &Rows) -> usize {
    let places = rows.places();
    (1..rows.order.len())
        .map(|lower| crossings_above(rows, &places, lower))
        .sum()
}

/// Returns the number of crossings of the links between a row and the one above it.
fn crossings_above(rows: &Rows, places: &[usize], lower: usize) -> usize {
    let mut ends: Vec<[usize; 2]> = Vec::new();
    for (place, element) in rows.order[lower - 1].iter().enumerate() {
        ends.extend(
            rows.below[*element]
                .iter()
                .map(|link| [place, places[rows.lower(*link)]]),
        );
    }
    ends.sort_unstable();
    // Inversions, by a binary indexed tree of the lower places.
    let mut tree = vec![0_usize; rows.order[lower].len() + 1];
    let mut sum = 0;
    for (before, [_, lower]) in ends.iter().enumerate() {
        let mut not_greater = 0;
        let mut at = lower + 1;
        while at > 0 {
            not_greater += tree[at];
            at &= at - 1;
        }
        sum += before - not_greater;
        at = lower + 1;
        while at < tree.len() {
            tree[at] += 1;
            at += at & at.wrapping_neg();
        }
    }
    sum
}

/// Moves lines that lead back next to their ends if this adds no crossing.
fn attach(rows: &mut Rows) {
    for at in 0..rows.turns.len() {
        let turn = rows.turns[at];
        let [item, line] = [rows.ports[turn.item].element, rows.ports[turn.line].element];
        let row = rows.elements[item].row;
        let places = rows.places();
        let [from, to] = [places[line], places[item]];
        if from.abs_diff(to) == 1 {
            continue;
        }
        let before = crossings_around(rows, &places, row);
        let order = rows.order[row].clone();
        let moved = rows.order[row].remove(from);
        let target = if from < to { to } else { to + 1 };
        rows.order[row].insert(target, moved);
        if crossings_around(rows, &rows.places(), row) > before {
            rows.order[row] = order;
        }
    }
}

fn crossings_around(rows: &Rows, places: &[usize], row: usize) -> usize {
    let pairs = [row, row + 1]
        .into_iter()
        .filter(|lower| (1..rows.order.len()).contains(lower));
    pairs.map(|lower| crossings_above(rows, places, lower)).sum()
}

/// Lets lines that lead back meet the side of the box that they are next to: one line for each side.
fn mark_sides(graph: &Graph, rows: &mut Rows) {
    let places = rows.places();
    let mut taken = BTreeSet::new();
    for at in 0..rows.turns.len() {
        let turn = rows.turns[at];
        let [item, line] = [rows.ports[turn.item].element, rows.ports[turn.line].element];
        let Part::Item(number) = rows.elements[item].part else {
            continue;
        };
        let one = &graph.items[number];
        let is_right = places[line] > places[item];
        let is_next = places[line].abs_diff(places[item]) == 1;
        // To the right are arrows from a box to itself. A label is to the right of its line.
        let is_free = match rows.elements[line].part {
            _ if is_right => one.aside == 0,
            Part::Label(_) => false,
            Part::Item(_) | Part::Point(_) | Part::Line => true,
        };
        if one.body == Body::Plain && is_next && is_free && taken.insert((item, is_right)) {
            rows.turns[at].is_side = true;
        }
    }
}
