//! Ranks of items: each edge leads down by at least one, except for some edge of every cycle.

use super::graph::{Body, Graph, Leg};
use super::simplex::{self, Distance};

/// Number of items above which ranks are the lengths of the longest paths, which takes linear time.
const OPTIMISED_ITEMS: usize = 2_000;
/// Work of the optimisation.
const BUDGET: usize = 2_000_000;

/// Marks the legs that lead back, and returns the rank of every item.
pub(super) fn rank(graph: &mut Graph) -> Vec<usize> {
    if let Some(ranks) = &graph.ranks {
        for leg in &mut graph.legs {
            leg.is_back = ranks[leg.from] >= ranks[leg.to];
        }
        return ranks.clone();
    }
    mark_back_legs(graph);
    let is_inner = |item: &usize| matches!(graph.items[*item].body, Body::Plain | Body::Region);
    let distances: Vec<Distance> = graph
        .legs
        .iter()
        .filter(|leg| is_inner(&leg.from) && is_inner(&leg.to))
        .map(|leg| {
            let [from, to] = if leg.is_back {
                [leg.to, leg.from]
            } else {
                [leg.from, leg.to]
            };
            let weight = match (leg.class, leg.is_back) {
                (0, false) => 4,
                (0, true) | (1, _) => 2,
                _ => 1,
            };
            Distance {
                from,
                to,
                length: 1,
                weight,
            }
        })
        .collect();
    let mut ranks = longest_paths(graph.items.len(), &distances);
    if graph.items.len() <= OPTIMISED_ITEMS {
        ranks = simplex::solve(&distances, ranks, BUDGET);
    }
    with_borders(graph, &ranks)
}

/// Moves the ranks so that they start at 0, and adds those of the points on the borders.
fn with_borders(graph: &Graph, ranks: &[i32]) -> Vec<usize> {
    let has_entries = graph.items.iter().any(|item| item.body == Body::Entry);
    let inner = || {
        graph
            .items
            .iter()
            .zip(ranks)
            .filter(|(item, _)| matches!(item.body, Body::Plain | Body::Region))
    };
    let least = inner().map(|(_, rank)| *rank).min().unwrap_or_default();
    let first = i32::from(has_entries);
    let lowest = inner()
        .map(|(_, rank)| *rank)
        .max()
        .map_or(first, |last| last - least + first + 1);
    let ranks = graph.items.iter().zip(ranks).map(|(item, rank)| match item.body {
        Body::Plain | Body::Region => rank - least + first,
        Body::Entry => 0,
        Body::Exit => lowest,
    });
    ranks.map(|rank| usize::try_from(rank).unwrap_or_default()).collect()
}

/// Marks a leg of each cycle: one that leads to an item from which the walk came. Legs of loops lead back in any case.
fn mark_back_legs(graph: &mut Graph) {
    let count = graph.items.len();
    let mut leaving = vec![Vec::new(); count];
    let mut is_entered = vec![false; count];
    let is_loop: Vec<bool> = graph.legs.iter().map(|leg| is_loop(graph, leg)).collect();
    for (at, leg) in graph.legs.iter_mut().enumerate() {
        leg.is_back = is_loop[at];
        if !leg.is_back {
            leaving[leg.from].push(at);
            is_entered[leg.to] = true;
        }
    }
    let mut is_done = vec![false; count];
    let mut is_open = vec![false; count];
    let roots = (0..count).filter(|item| !is_entered[*item]).chain(0..count);
    for root in roots.collect::<Vec<_>>() {
        let mut stack = vec![(root, 0)];
        while let Some((item, next)) = stack.pop() {
            if next == 0 {
                if is_done[item] || is_open[item] {
                    continue;
                }
                is_open[item] = true;
            }
            let Some(at) = leaving[item].get(next).copied() else {
                is_open[item] = false;
                is_done[item] = true;
                continue;
            };
            stack.push((item, next + 1));
            let to = graph.legs[at].to;
            if is_open[to] {
                graph.legs[at].is_back = true;
            } else if !is_done[to] {
                stack.push((to, 0));
            }
        }
    }
    break_loops(graph, &is_loop);
}

/// True for a leg from a LOOP_END to its LOOP_START. In an invalid workflow, one of them may be outside of the region.
fn is_loop(graph: &Graph, leg: &Leg) -> bool {
    let is_inner = |item: usize| matches!(graph.items[item].body, Body::Plain | Body::Region);
    leg.class == LOOP && is_inner(leg.from) && is_inner(leg.to)
}

/// The class of legs from a LOOP_END to its LOOP_START.
pub(in crate::layout) const LOOP: u8 = 1;

/// A leg of a loop that leads back and is in no cycle would contradict the others: it leads forward if its target cannot reach its
/// source.
fn break_loops(graph: &mut Graph, is_loop: &[bool]) {
    let loops: Vec<usize> = (0..graph.legs.len()).filter(|at| is_loop[*at]).collect();
    if loops.is_empty() {
        return;
    }
    let mut below = vec![Vec::new(); graph.items.len()];
    for (leg, _) in graph.legs.iter().zip(is_loop).filter(|(_, is_loop)| !**is_loop) {
        let [from, to] = if leg.is_back {
            [leg.to, leg.from]
        } else {
            [leg.from, leg.to]
        };
        below[from].push(to);
    }
    for at in loops {
        let [start, end] = [graph.legs[at].to, graph.legs[at].from];
        // Reversed, the leg leads from the start to the end of the loop: this must close no cycle.
        let closes = reaches(&below, end, start);
        graph.legs[at].is_back = !closes;
        let [from, to] = if closes { [end, start] } else { [start, end] };
        below[from].push(to);
    }
}

fn reaches(below: &[Vec<usize>], from: usize, to: usize) -> bool {
    let mut is_reached = vec![false; below.len()];
    let mut open = vec![from];
    while let Some(item) = open.pop() {
        if item == to {
            return true;
        }
        if !std::mem::replace(&mut is_reached[item], true) {
            open.extend(&below[item]);
        }
    }
    false
}

/// Returns the length of the longest path to each node.
fn longest_paths(count: usize, distances: &[Distance]) -> Vec<i32> {
    let mut leaving = vec![Vec::new(); count];
    let mut awaited = vec![0_usize; count];
    for one in distances {
        leaving[one.from].push(one);
        awaited[one.to] += 1;
    }
    let mut ranks = vec![0; count];
    let mut open: Vec<usize> = (0..count).filter(|node| awaited[*node] == 0).collect();
    while let Some(node) = open.pop() {
        for one in &leaving[node] {
            ranks[one.to] = ranks[one.to].max(ranks[node] + one.length);
            awaited[one.to] -= 1;
            if awaited[one.to] == 0 {
                open.push(one.to);
            }
        }
    }
    ranks
}
