//! Strongly connected components.

use crate::graph::model::NodeIx;

/// Returns the first node of every strongly connected component of the `dead` nodes without an outgoing transition, ascending.
///
/// `back` contains the reverse transitions; only those between dead nodes count. Tarjan's algorithm with an explicit stack.
pub(crate) fn terminal_components(dead: &[bool], back: &[Vec<NodeIx>]) -> Vec<NodeIx> {
    let next = forwards(dead, back);
    let mut search = Search::new(&next);
    for node in (0..dead.len()).filter(|node| dead[*node]) {
        if search.order[node] == 0 {
            search.from(node);
        }
    }
    let mut leaves = vec![false; search.firsts.len()];
    for (from, targets) in next.iter().enumerate() {
        for to in targets {
            if let (Some(here), Some(there)) = (search.component[from], search.component[*to as usize])
                && here != there
            {
                leaves[here] = true;
            }
        }
    }
    let mut found: Vec<NodeIx> = search
        .firsts
        .iter()
        .zip(leaves)
        .filter(|(_, leaves)| !leaves)
        .map(|(first, _)| *first)
        .collect();
    found.sort_unstable();
    found
}

/// Returns for every node the number of its strongly connected component. A single node without a loop to itself has none.
pub(crate) fn components(next: &[Vec<NodeIx>]) -> Vec<Option<usize>> {
    let mut search = Search::new(next);
    for node in 0..next.len() {
        if search.order[node] == 0 {
            search.from(node);
        }
    }
    let mut size = vec![0_usize; search.firsts.len()];
    for component in search.component.iter().flatten() {
        size[*component] += 1;
    }
    let turns = |node: usize| next[node].contains(&(node as NodeIx));
    let among = |(node, component): (usize, Option<usize>)| component.filter(|one| size[*one] > 1 || turns(node));
    search.component.into_iter().enumerate().map(among).collect()
}

fn forwards(dead: &[bool], back: &[Vec<NodeIx>]) -> Vec<Vec<NodeIx>> {
    let mut next = vec![Vec::new(); dead.len()];
    for (to, sources) in back.iter().enumerate().filter(|(to, _)| dead[*to]) {
        for from in sources.iter().filter(|from| dead[**from as usize]) {
            next[*from as usize].push(to as NodeIx);
        }
    }
    next
}

struct Search<'a> {
    next: &'a [Vec<NodeIx>],
    /// Discovery order of each node, from 1; 0: not visited.
    order: Vec<usize>,
    low: Vec<usize>,
    component: Vec<Option<usize>>,
    open: Vec<usize>,
    visited: usize,
    /// Least node of each component.
    firsts: Vec<NodeIx>,
}

impl<'a> Search<'a> {
    fn new(next: &'a [Vec<NodeIx>]) -> Self {
        Self {
            next,
            order: vec![0; next.len()],
            low: vec![0; next.len()],
            component: vec![None; next.len()],
            open: Vec::new(),
            visited: 0,
            firsts: Vec::new(),
        }
    }

    fn from(&mut self, start: usize) {
        let mut stack = vec![(start, 0)];
        self.enter(start);
        while let Some((node, tried)) = stack.last_mut() {
            let node = *node;
            if let Some(target) = self.next[node].get(*tried) {
                *tried += 1;
                let target = *target as usize;
                if self.order[target] == 0 {
                    self.enter(target);
                    stack.push((target, 0));
                } else if self.component[target].is_none() {
                    self.low[node] = self.low[node].min(self.order[target]);
                }
                continue;
            }
            stack.pop();
            if let Some((parent, _)) = stack.last() {
                self.low[*parent] = self.low[*parent].min(self.low[node]);
            }
            if self.low[node] == self.order[node] {
                self.close(node);
            }
        }
    }

    fn enter(&mut self, node: usize) {
        self.visited += 1;
        self.order[node] = self.visited;
        self.low[node] = self.visited;
        self.open.push(node);
    }

    fn close(&mut self, root: usize) {
        let number = self.firsts.len();
        let mut first = root;
        while let Some(node) = self.open.pop() {
            self.component[node] = Some(number);
            first = first.min(node);
            if node == root {
                break;
            }
        }
        self.firsts.push(first as NodeIx);
    }
}
