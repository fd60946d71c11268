//! Tree of a run's threads: parents, depths and ownership.
//!
//! | event | the thread | what it started |
//! |---|---|---|
//! | its end, for any reason | ended, once | cancelled: forks, called workflows and firings |
//! | its detachment | no longer attached to the run's outcome | detached too |
//! | the end of another thread | unchanged, unless that is an ancestor | unchanged |
//!
//! Invariants:
//! - Thread numbers ascend from 0 without gaps, and no entry is removed.
//! - A thread ends once, and what it owns is cancelled once.
//! - The counts of live threads and of live detached threads are exact.

use std::sync::Arc;

use pirn_definition::graph::{ForkIx, Graph};
use serde::{Deserialize, Serialize};

use super::graphs::{GraphNo, Graphs};
use crate::run::{ForkNo, ThreadNo};
use crate::thread::{EffectId, FiringId, ThreadKind};

/// Origin of a thread, which determines who receives its outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Origin {
    /// The main thread.
    Main,
    /// A path of a fork.
    Branch {
        /// Number of the fork instance.
        fork: ForkNo,
        /// Index of the fork in its graph.
        ix: ForkIx,
        /// Index of the path in the fork.
        path: u32,
    },
    /// An item of a MAP.
    Item {
        /// Number of the fork instance.
        fork: ForkNo,
        /// Index of the item in the list.
        index: u32,
    },
    /// A SUBGRAPH node called it.
    Called {
        /// Thread of the SUBGRAPH node.
        parent: ThreadNo,
        /// Effect that the parent awaits.
        effect: EffectId,
    },
    /// A trigger started it.
    Triggered {
        /// Firing that started it.
        firing: FiringId,
    },
}

impl Origin {
    /// Returns the name of a branch in its fork: the id of its path, or the index of its item. `graph` is the thread's workflow.
    pub fn path_id(&self, graph: &Graph) -> Option<Arc<str>> {
        match self {
            Self::Branch { ix, path, .. } => Some(Arc::clone(&graph.fork(*ix).paths[*path as usize].id)),
            Self::Item { index, .. } => Some(Arc::from(index.to_string())),
            Self::Main | Self::Called { .. } | Self::Triggered { .. } => None,
        }
    }
}

/// Work that a thread owns and that ends with it. [`super::firing`] tracks its firings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::run) enum OwnedWork {
    Fork(ForkNo),
    Child { effect: EffectId, thread: ThreadNo },
}

/// Node of the tree.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::run) struct TreeNode {
    pub(in crate::run) kind: ThreadKind,
    pub(in crate::run) graph: GraphNo,
    pub(in crate::run) origin: Origin,
    /// Thread for which it runs; `None` for the main thread.
    #[serde(default)]
    pub(in crate::run) parent: Option<ThreadNo>,
    pub(in crate::run) depth: u32,
    /// Number of triggers between the run's steps and the actions of the thread.
    pub(in crate::run) trigger_depth: u32,
    /// True if a token event started the thread or an ancestor: the token limit is not checked.
    pub(in crate::run) is_unlimited: bool,
    pub(in crate::run) is_detached: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Node {
    at: TreeNode,
    owned: Vec<OwnedWork>,
    has_ended: bool,
}

/// Threads of a run, by number.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(in crate::run) struct Tree {
    nodes: Vec<Node>,
    live: usize,
    live_detached: usize,
}

impl Tree {
    pub(in crate::run) fn reserve(&mut self, more: usize) {
        self.nodes.reserve(more);
    }

    pub(in crate::run) fn add(&mut self, at: TreeNode) -> ThreadNo {
        if self.nodes.is_empty() {
            // Most runs have one thread: allocate for one.
            self.nodes.reserve_exact(1);
        }
        self.live += 1;
        self.live_detached += usize::from(at.is_detached);
        self.nodes.push(Node {
            at,
            owned: Vec::new(),
            has_ended: false,
        });
        (self.nodes.len() - 1) as ThreadNo
    }

    pub(in crate::run) fn get(&self, thread: ThreadNo) -> Option<&TreeNode> {
        self.nodes.get(thread as usize).map(|node| &node.at)
    }

    pub(in crate::run) fn iter(&self) -> impl DoubleEndedIterator<Item = &TreeNode> + ExactSizeIterator {
        self.nodes.iter().map(|node| &node.at)
    }

    pub(in crate::run) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Returns true if the thread was started and has not ended.
    pub(in crate::run) fn is_live(&self, thread: ThreadNo) -> bool {
        self.nodes.get(thread as usize).is_some_and(|node| !node.has_ended)
    }

    /// Returns the number of threads that have not ended.
    pub(in crate::run) fn live(&self) -> usize {
        self.live
    }

    /// Returns the number of live threads for which the run's outcome waits.
    pub(in crate::run) fn attached(&self) -> usize {
        self.live - self.live_detached
    }

    /// Returns the depth of a thread that `parent` starts; `None` if it exceeds `limit`.
    pub(in crate::run) fn deeper(&self, parent: ThreadNo, limit: u32) -> Option<u32> {
        match self.get(parent) {
            Some(parent) => (parent.depth < limit).then_some(parent.depth + 1),
            None => Some(1),
        }
    }

    pub(in crate::run) fn trigger_depth(&self, thread: ThreadNo) -> u32 {
        self.get(thread).map_or(0, |at| at.trigger_depth)
    }

    /// Raises the trigger depth of a thread on which something with this depth acts. All further actions of the thread have it too,
    /// so that chains of triggers that lead through a thread are bounded.
    pub(in crate::run) fn raise_depth(&mut self, thread: ThreadNo, trigger_depth: u32) {
        if let Some(node) = self.nodes.get_mut(thread as usize) {
            node.at.trigger_depth = node.at.trigger_depth.max(trigger_depth);
        }
    }

    pub(in crate::run) fn own(&mut self, thread: ThreadNo, owned: OwnedWork) {
        if let Some(node) = self.nodes.get_mut(thread as usize) {
            node.owned.push(owned);
        }
    }

    pub(in crate::run) fn disown(&mut self, thread: ThreadNo, owned: OwnedWork) {
        if let Some(node) = self.nodes.get_mut(thread as usize) {
            // Linear, but short: a thread waits for each fork or call before it starts the next, unless a JOIN leaves branches
            // running.
            node.owned.retain(|other| *other != owned);
        }
    }

    pub(in crate::run) fn owned(&self, thread: ThreadNo) -> &[OwnedWork] {
        self.nodes.get(thread as usize).map_or(&[], |node| &node.owned)
    }

    /// Ends a thread and returns the work to cancel. Returns `None` if the thread had ended or never existed.
    pub(in crate::run) fn end(&mut self, thread: ThreadNo) -> Option<Vec<OwnedWork>> {
        // A thread may panic after its end message was queued: the second report must not cancel anything again.
        let node = self.nodes.get_mut(thread as usize).filter(|node| !node.has_ended)?;
        node.has_ended = true;
        self.live -= 1;
        self.live_detached -= usize::from(node.at.is_detached);
        // Taken, so that the caller can change the tree while it cancels them. The node stays, because its index is the thread's
        // number.
        Some(std::mem::take(&mut node.owned))
    }

    /// Detaches a thread and everything that it started from the run's outcome. `below` returns the threads of its forks and
    /// firings; the tree itself knows only called threads.
    pub(in crate::run) fn detach(&mut self, thread: ThreadNo, below: impl Fn(ThreadNo, &[OwnedWork]) -> Vec<ThreadNo>) {
        // A list instead of recursion: the depth of the tree costs no stack.
        let mut marked = vec![thread];
        while let Some(thread) = marked.pop() {
            // Threads that a detached thread starts are detached from the start, so its subtree needs no visit.
            let Some(node) = self.nodes.get_mut(thread as usize).filter(|node| !node.at.is_detached) else {
                continue;
            };
            node.at.is_detached = true;
            // `end` has already subtracted a thread that has ended.
            self.live_detached += usize::from(!node.has_ended);
            marked.extend(below(thread, &node.owned));
            marked.extend(node.owned.iter().filter_map(|owned| match owned {
                OwnedWork::Child { thread, .. } => Some(*thread),
                // `below` returns the threads of forks.
                OwnedWork::Fork(_) => None,
            }));
        }
    }
}

/// Threads of a run with the workflows that they walk.
#[derive(Clone, Copy)]
pub(in crate::run) struct ThreadLookup<'a> {
    pub(in crate::run) tree: &'a Tree,
    pub(in crate::run) graphs: &'a Graphs,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(origin: Origin, depth: u32, is_detached: bool) -> TreeNode {
        TreeNode {
            parent: None,
            kind: ThreadKind::Subgraph,
            graph: 0,
            origin,
            depth,
            trigger_depth: 0,
            is_unlimited: false,
            is_detached,
        }
    }

    /// Builds a tree of called threads; each parent precedes its children.
    fn tree(parents: &[usize]) -> Tree {
        let mut tree = Tree::default();
        tree.add(at(Origin::Main, 0, false));
        for (before, parent) in parents.iter().enumerate() {
            let (parent, effect) = ((parent % (before + 1)) as ThreadNo, before as EffectId);
            let depth = tree.deeper(parent, u32::MAX).unwrap();
            let thread = tree.add(at(Origin::Called { parent, effect }, depth, false));
            tree.own(parent, OwnedWork::Child { effect, thread });
        }
        tree
    }

    proptest! {
        #[test]
        fn every_started_descendant_is_cancelled_and_ends_once(
            parents in prop::collection::vec(0..8_usize, 0..12),
            ends in prop::collection::vec(0..14_u32, 0..30),
        ) {
            let mut tree = tree(&parents);
            let mut ended = std::collections::BTreeSet::new();
            for first in ends {
                let mut queue = vec![first];
                while let Some(thread) = queue.pop() {
                    let abandoned = tree.end(thread);
                    let is_known = (thread as usize) < tree.len();
                    prop_assert_eq!(abandoned.is_some(), is_known && ended.insert(thread));
                    queue.extend(abandoned.into_iter().flatten().map(|owned| match owned {
                        OwnedWork::Child { thread, .. } => thread,
                        OwnedWork::Fork(_) => unreachable!("the tree has none"),
                    }));
                }
                for thread in 1..tree.len() as ThreadNo {
                    let Some(Origin::Called { parent, .. }) = tree.get(thread).map(|at| at.origin) else {
                        unreachable!("every thread but the first was called");
                    };
                    prop_assert!(tree.is_live(parent) || !tree.is_live(thread), "nothing outlives who started it");
                }
                let live = (0..tree.len() as ThreadNo).filter(|thread| tree.is_live(*thread)).count();
                prop_assert_eq!((tree.live(), tree.attached()), (live, live));
            }
        }

        #[test]
        fn detaching_a_thread_detaches_exactly_its_subtree(
            parents in prop::collection::vec(0..8_usize, 0..12),
            detached in 0..12_u32,
        ) {
            let mut tree = tree(&parents);
            let is_below = |tree: &Tree, mut thread: ThreadNo| loop {
                if thread == detached {
                    return true;
                }
                match tree.get(thread).map(|at| at.origin) {
                    Some(Origin::Called { parent, .. }) => thread = parent,
                    _ => return false,
                }
            };
            tree.detach(detached, |_, _| Vec::new());
            let mut attached = 0;
            for thread in 0..tree.len() as ThreadNo {
                let below = is_below(&tree, thread);
                prop_assert_eq!(tree.get(thread).unwrap().is_detached, below);
                attached += usize::from(!below);
            }
            prop_assert_eq!(tree.attached(), attached);
        }
    }

    #[test]
    fn no_thread_is_deeper_than_the_limit() {
        let mut tree = tree(&[0, 1, 2]);
        assert_eq!(
            [tree.deeper(3, 4), tree.deeper(3, 3), tree.deeper(0, 0)],
            [Some(4), None, None]
        );
        tree.raise_depth(3, 2);
        tree.raise_depth(3, 1);
        assert_eq!(tree.trigger_depth(3), 2, "the effect of a trigger on a thread stays");
    }
}
