//! The network simplex method: integer positions that minimise the weighted sum of distances, subject to minimum distances.

/// A minimum distance: `position[to] - position[from]` is at least `length`, and costs `weight` for each unit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Distance {
    pub(in crate::layout) from: usize,
    pub(in crate::layout) to: usize,
    pub(super) length: i32,
    pub(super) weight: i32,
}

const NONE: usize = usize::MAX;
/// Number of candidates among which the worst edge leaves the tree.
const CANDIDATES: usize = 30;

/// Improves positions, which must satisfy all distances. `budget` limits the work: the number of nodes that are visited while
/// trees change. If it is used up, the positions are valid and not optimal.
pub(super) fn solve(distances: &[Distance], positions: Vec<i32>, budget: usize) -> Vec<i32> {
    let mut solver = Solver::new(distances, positions);
    solver.grow_tree();
    solver.number_all();
    solver.set_cuts();
    let mut visited = 0;
    while visited < budget
        && let Some(leaving) = solver.leaving()
    {
        let Some(entering) = solver.entering(leaving) else {
            break;
        };
        visited += solver.exchange(leaving, entering);
    }
    solver.positions
}

/// A spanning forest of edges without slack.
struct Solver<'d> {
    edges: &'d [Distance],
    positions: Vec<i32>,
    /// Edges at each node.
    incident: Vec<Vec<usize>>,
    /// Tree edges at each node.
    tree: Vec<Vec<usize>>,
    is_tree: Vec<bool>,
    tree_edges: Vec<usize>,
    /// Edge to the parent.
    parent: Vec<usize>,
    /// Numbers in postorder: a node's subtree has the numbers `low..=number`.
    low: Vec<usize>,
    number: Vec<usize>,
    by_number: Vec<usize>,
    /// For tree edges: the change of the cost if the edge gets longer.
    cut: Vec<i64>,
    /// Edge at which the search for a leaving edge continues.
    next: usize,
}

impl<'d> Solver<'d> {
    fn new(edges: &'d [Distance], positions: Vec<i32>) -> Self {
        let count = positions.len();
        let mut incident = vec![Vec::new(); count];
        for (at, edge) in edges.iter().enumerate() {
            incident[edge.from].push(at);
            incident[edge.to].push(at);
        }
        Self {
            edges,
            positions,
            incident,
            tree: vec![Vec::new(); count],
            is_tree: vec![false; edges.len()],
            tree_edges: Vec::new(),
            parent: vec![NONE; count],
            low: vec![0; count],
            number: vec![0; count],
            by_number: vec![0; count],
            cut: vec![0; edges.len()],
            next: 0,
        }
    }

    fn slack(&self, edge: usize) -> i32 {
        let Distance { from, to, length, .. } = self.edges[edge];
        self.positions[to] - self.positions[from] - length
    }

    fn other(&self, edge: usize, node: usize) -> usize {
        let Distance { from, to, .. } = self.edges[edge];
        if from == node { to } else { from }
    }

    /// Connects nodes by edges without slack, and moves the rest of each tree towards it where there are none.
    fn grow_tree(&mut self) {
        let mut is_reached = vec![false; self.positions.len()];
        for root in 0..self.positions.len() {
            if is_reached[root] {
                continue;
            }
            let mut members = Vec::new();
            self.reach(root, &mut is_reached, &mut members);
            while let Some((edge, is_outgoing)) = self.nearest(&members, &is_reached) {
                let slack = self.slack(edge);
                for member in &members {
                    self.positions[*member] += if is_outgoing { slack } else { -slack };
                }
                let Distance { from, to, .. } = self.edges[edge];
                self.add_to_tree(edge);
                let outside = if is_outgoing { to } else { from };
                self.reach(outside, &mut is_reached, &mut members);
            }
        }
    }

    fn add_to_tree(&mut self, edge: usize) {
        let Distance { from, to, .. } = self.edges[edge];
        self.is_tree[edge] = true;
        self.tree_edges.push(edge);
        self.tree[from].push(edge);
        self.tree[to].push(edge);
    }

    /// Adds the nodes that edges without slack connect with `first`.
    fn reach(&mut self, first: usize, is_reached: &mut [bool], members: &mut Vec<usize>) {
        is_reached[first] = true;
        let mut open = vec![first];
        while let Some(node) = open.pop() {
            members.push(node);
            for at in 0..self.incident[node].len() {
                let edge = self.incident[node][at];
                let other = self.other(edge, node);
                if !is_reached[other] && self.slack(edge) == 0 {
                    is_reached[other] = true;
                    self.add_to_tree(edge);
                    open.push(other);
                }
            }
        }
    }

    /// Returns the edge with the least slack between these nodes and others, and whether it leaves these nodes.
    fn nearest(&self, members: &[usize], is_reached: &[bool]) -> Option<(usize, bool)> {
        let mut best: Option<(i32, usize, bool)> = None;
        for node in members {
            for edge in &self.incident[*node] {
                let Distance { from, to, .. } = self.edges[*edge];
                if is_reached[from] == is_reached[to] {
                    continue;
                }
                let candidate = (self.slack(*edge), *edge, from == *node);
                if best.is_none_or(|best| candidate < best) {
                    best = Some(candidate);
                }
            }
        }
        best.map(|(_, edge, is_outgoing)| (edge, is_outgoing))
    }

    fn number_all(&mut self) {
        let mut is_numbered = vec![false; self.positions.len()];
        let mut next = 0;
        for root in 0..self.positions.len() {
            if !is_numbered[root] {
                self.parent[root] = NONE;
                let first = next;
                next = self.number_from(root, next);
                for node in &self.by_number[first..next] {
                    is_numbered[*node] = true;
                }
            }
        }
    }

    /// Numbers the subtree of `root` from `next` on, and sets the parents below it. Returns the next number.
    fn number_from(&mut self, root: usize, mut next: usize) -> usize {
        let mut stack = vec![(root, 0)];
        self.low[root] = next;
        while let Some((node, at)) = stack.pop() {
            if let Some(edge) = self.tree[node].get(at).copied() {
                stack.push((node, at + 1));
                if edge != self.parent[node] {
                    let child = self.other(edge, node);
                    self.parent[child] = edge;
                    self.low[child] = next;
                    stack.push((child, 0));
                }
            } else {
                self.number[node] = next;
                self.by_number[next] = node;
                next += 1;
            }
        }
        next
    }

    /// Computes the cut values, from the leaves to the root.
    fn set_cuts(&mut self) {
        for number in 0..self.by_number.len() {
            let node = self.by_number[number];
            let up = self.parent[node];
            if up == NONE {
                continue;
            }
            let is_tail = self.edges[up].from == node;
            let mut cut = i64::from(self.edges[up].weight);
            for edge in &self.incident[node] {
                if *edge == up {
                    continue;
                }
                let sign = if (self.edges[*edge].from == node) == is_tail {
                    1
                } else {
                    -1
                };
                cut += sign * i64::from(self.edges[*edge].weight);
                if self.is_tree[*edge] {
                    cut -= sign * self.cut[*edge];
                }
            }
            self.cut[up] = cut;
        }
    }

    /// Returns a tree edge whose lengthening lowers the cost.
    fn leaving(&mut self) -> Option<usize> {
        let count = self.tree_edges.len();
        let mut best: Option<usize> = None;
        let mut found = 0;
        for step in 0..count {
            let at = (self.next + step) % count;
            let edge = self.tree_edges[at];
            if self.cut[edge] < 0 {
                if best.is_none_or(|best| self.cut[edge] < self.cut[self.tree_edges[best]]) {
                    best = Some(at);
                }
                found += 1;
                if found == CANDIDATES {
                    self.next = at;
                    break;
                }
            }
        }
        best
    }

    /// Returns the edge with the least slack that connects the two parts again, in the other direction.
    fn entering(&self, leaving: usize) -> Option<usize> {
        let Distance { from, to, .. } = self.edges[self.tree_edges[leaving]];
        let is_head_below = self.number[from] > self.number[to];
        let below = if is_head_below { to } else { from };
        let inside = self.low[below]..=self.number[below];
        let mut best: Option<(i32, usize)> = None;
        for number in inside.clone() {
            let node = self.by_number[number];
            for edge in &self.incident[node] {
                let other = self.other(*edge, node);
                let is_tail = self.edges[*edge].from == node;
                if is_tail == is_head_below && !inside.contains(&self.number[other]) {
                    let candidate = (self.slack(*edge), *edge);
                    if best.is_none_or(|best| candidate < best) {
                        best = Some(candidate);
                    }
                }
            }
        }
        best.map(|(_, edge)| edge)
    }

    /// Replaces a tree edge. Returns the number of nodes that were visited.
    fn exchange(&mut self, leaving: usize, entering: usize) -> usize {
        let old = self.tree_edges[leaving];
        let Distance { from, to, .. } = self.edges[old];
        let is_head_below = self.number[from] > self.number[to];
        let below = if is_head_below { to } else { from };
        let slack = self.slack(entering);
        let moved = self.low[below]..=self.number[below];
        let mut visited = moved.clone().count();
        for number in moved {
            let node = self.by_number[number];
            self.positions[node] += if is_head_below { slack } else { -slack };
        }
        let cut = self.cut[old];
        let Distance {
            from: tail, to: head, ..
        } = self.edges[entering];
        let top = self.shift_cuts(tail, head, cut, true);
        self.shift_cuts(head, tail, cut, false);
        self.cut[entering] = -cut;
        self.cut[old] = 0;
        self.is_tree[old] = false;
        self.is_tree[entering] = true;
        self.tree_edges[leaving] = entering;
        for node in [from, to] {
            self.tree[node].retain(|edge| *edge != old);
        }
        for node in [tail, head] {
            self.tree[node].push(entering);
        }
        visited += self.number[top] - self.low[top];
        let low = self.low[top];
        self.number_from(top, low);
        visited
    }

    /// Changes the cut values from `node` up to the first node that has `other` below it. Returns that node.
    fn shift_cuts(&mut self, mut node: usize, other: usize, cut: i64, is_up: bool) -> usize {
        while !(self.low[node]..=self.number[node]).contains(&self.number[other]) {
            let edge = self.parent[node];
            if (self.edges[edge].from == node) == is_up {
                self.cut[edge] += cut;
            } else {
                self.cut[edge] -= cut;
            }
            node = self.other(edge, node);
        }
        node
    }
}

#[cfg(test)]
mod tests {
    use super::{Distance, solve};

    fn distance(from: usize, to: usize, length: i32, weight: i32) -> Distance {
        Distance {
            from,
            to,
            length,
            weight,
        }
    }

    fn cost(distances: &[Distance], positions: &[i32]) -> i32 {
        let lengths = distances.iter().map(|one| {
            let length = positions[one.to] - positions[one.from];
            assert!(length >= one.length);
            length * one.weight
        });
        lengths.sum()
    }

    #[test]
    fn positions_have_the_least_cost() {
        // The example of Gansner et al., "A technique for drawing directed graphs", figure 2-3.
        let edges = [[0, 1], [1, 2], [2, 3], [3, 7], [0, 4], [0, 5], [4, 6], [5, 6], [6, 7]];
        let distances: Vec<Distance> = edges.iter().map(|[from, to]| distance(*from, *to, 1, 1)).collect();
        let start = vec![0, 1, 2, 3, 1, 1, 2, 4];
        let solved = solve(&distances, start, 10_000);
        assert_eq!(cost(&distances, &solved), 10);
    }

    #[test]
    fn no_assignment_of_a_small_graph_is_better() {
        // Every graph of four nodes with edges from lower to higher numbers, with different weights.
        let pairs = [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)];
        for mask in 0_u32..64 {
            let chosen = (0..6).filter(|bit| mask >> bit & 1 == 1);
            let distances: Vec<Distance> = chosen
                .zip([1, 2].into_iter().cycle())
                .map(|(bit, length)| distance(pairs[bit].0, pairs[bit].1, length, 4 - length))
                .collect();
            let solved = solve(&distances, vec![0, 2, 4, 6], 10_000);
            let best = (0..8_i32.pow(4)).filter_map(|code| {
                let at: Vec<i32> = (0..4).map(|digit| code / 8_i32.pow(digit) % 8).collect();
                let is_valid = distances.iter().all(|one| at[one.to] - at[one.from] >= one.length);
                is_valid.then(|| cost(&distances, &at))
            });
            assert_eq!(Some(cost(&distances, &solved)), best.min(), "{distances:?}");
        }
    }
}
