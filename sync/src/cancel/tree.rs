//! The nodes of a cancel tree in one table: siblings are a doubly linked list of places, so that joining, leaving and
//! stepping over a forgotten node take constant time, and walking needs no recursion.
//!
//! Lives inside the tree's lock. What could run foreign code when woken, called, cloned or dropped is handed out.

use std::collections::BTreeMap;
use std::mem;
use std::task::Waker;

use crate::prim::{Arc, AtomicBool, Ordering};

/// Who is told of a cancel.
pub(super) enum Listener<R> {
    Task(Waker),
    Callback(Box<dyn FnOnce(R) + Send>),
}

pub(super) struct Tree<R> {
    nodes: Vec<Node<R>>,
    free: Vec<usize>,
}

/// A listener that came too late, and the reason that is there already.
pub(super) type TooLate<R> = (Arc<R>, Listener<R>);

/// A place in the table; as `default` while it is free.
pub(super) struct Node<R> {
    parent: Option<usize>,
    first_child: Option<usize>,
    before: Option<usize>,
    after: Option<usize>,
    /// Whether a token stands for it.
    held: bool,
    flag: Option<Arc<AtomicBool>>,
    reason: Option<Arc<R>>,
    listeners: BTreeMap<u64, Listener<R>>,
    last_key: u64,
}

impl<R> Default for Tree<R> {
    fn default() -> Self {
        let (nodes, free) = (Vec::new(), Vec::new());
        Self { nodes, free }
    }
}

impl<R> Default for Node<R> {
    fn default() -> Self {
        Self {
            parent: None,
            first_child: None,
            before: None,
            after: None,
            held: false,
            flag: None,
            reason: None,
            listeners: BTreeMap::new(),
            last_key: 0,
        }
    }
}

impl<R> Tree<R> {
    /// A new node, cancelled where its parent is; its place and its flag.
    pub(super) fn add(&mut self, parent: Option<usize>) -> (usize, Arc<AtomicBool>) {
        let reason = parent.and_then(|parent| self.nodes[parent].reason.clone());
        let reason = reason.filter(|_| !mutant!("cancel: a late child is not cancelled"));
        let flag = Arc::new(AtomicBool::new(reason.is_some()));
        let node = Node {
            parent,
            held: true,
            flag: Some(Arc::clone(&flag)),
            reason,
            ..Node::default()
        };
        let at = self.free.pop().unwrap_or(self.nodes.len());
        match self.nodes.get_mut(at) {
            Some(free) => *free = node,
            None => self.nodes.push(node),
        }
        if let Some(parent) = parent {
            let after = self.nodes[parent].first_child.replace(at);
            self.nodes[at].after = after;
            if let Some(after) = after {
                self.nodes[after].before = Some(at);
            }
        }
        (at, flag)
    }

    pub(super) fn reason(&self, at: usize) -> Option<Arc<R>> {
        self.nodes[at].reason.clone()
    }

    /// Gives everything at and below `at` the reason; the listeners to tell, or none if it had one.
    pub(super) fn cancel(&mut self, at: usize, reason: &Arc<R>) -> Option<Vec<Listener<R>>> {
        if self.nodes[at].reason.is_some() && !mutant!("cancel: the last reason wins") {
            return None;
        }
        let mut heard = Vec::new();
        let mut todo = vec![at];
        while let Some(at) = todo.pop() {
            let node = &mut self.nodes[at];
            let mut child = node.first_child;
            // Below a cancelled node all is cancelled already.
            if node.reason.is_none() || mutant!("cancel: the last reason wins") {
                node.reason = Some(Arc::clone(reason));
                if let Some(flag) = &node.flag {
                    let relaxed = mutant!("cancel: the flag is relaxed");
                    flag.store(true, if relaxed { Ordering::Relaxed } else { Ordering::Release });
                }
                heard.extend(mem::take(&mut node.listeners).into_values());
            } else {
                child = None;
            }
            while let Some(next) = child {
                todo.push(next);
                child = self.nodes[next].after;
            }
        }
        Some(heard)
    }

    /// Puts a listener in and gives back what it displaces; or gives it back with the reason that is there already.
    pub(super) fn listen(
        &mut self,
        at: usize,
        key: &mut Option<u64>,
        listener: Listener<R>,
    ) -> Result<Option<Listener<R>>, TooLate<R>> {
        match &self.nodes[at].reason {
            Some(reason) => Err((Arc::clone(reason), listener)),
            None => Ok(self.listen_unseen(at, key, listener)),
        }
    }

    /// Puts a listener in without a look at the reason.
    pub(super) fn listen_unseen(
        &mut self,
        at: usize,
        key: &mut Option<u64>,
        listener: Listener<R>,
    ) -> Option<Listener<R>> {
        let node = &mut self.nodes[at];
        let key = *key.get_or_insert_with(|| {
            node.last_key += 1;
            node.last_key
        });
        node.listeners.insert(key, listener)
    }

    /// Takes a listener out, if it has not been told.
    #[must_use]
    pub(super) fn take_back(&mut self, at: usize, key: u64) -> Option<Listener<R>> {
        self.nodes[at].listeners.remove(&key)
    }

    /// Nobody holds `at` any more. Gives the nodes that are gone with it.
    #[must_use]
    pub(super) fn release(&mut self, at: usize) -> Vec<Node<R>> {
        self.nodes[at].held = false;
        let mut gone = Vec::new();
        let mut next = Some(at);
        while let Some(at) = next {
            let Node {
                parent,
                first_child,
                held,
                ..
            } = self.nodes[at];
            if held {
                break;
            }
            match first_child {
                None => self.unlink(at),
                Some(_) if mutant!("cancel: a forgotten token forgets its children") => self.unlink(at),
                Some(child) if self.nodes[child].after.is_none() => self.step_over(at, child),
                Some(_) => break,
            }
            gone.push(mem::take(&mut self.nodes[at]));
            self.free.push(at);
            next = parent;
        }
        gone
    }

    /// Takes a node out from among its siblings.
    fn unlink(&mut self, at: usize) {
        let Node {
            parent, before, after, ..
        } = self.nodes[at];
        self.point_at(parent, before, after);
        if let Some(after) = after {
            self.nodes[after].before = before;
        }
    }

    /// Puts a node's only child in its place.
    fn step_over(&mut self, at: usize, child: usize) {
        let Node {
            parent, before, after, ..
        } = self.nodes[at];
        self.point_at(parent, before, Some(child));
        if let Some(after) = after {
            self.nodes[after].before = Some(child);
        }
        let child = &mut self.nodes[child];
        (child.parent, child.before, child.after) = (parent, before, after);
    }

    /// Makes what led to a node, its elder sibling or its parent, lead to `to`.
    fn point_at(&mut self, parent: Option<usize>, before: Option<usize>, to: Option<usize>) {
        match (before, parent) {
            (Some(before), _) => self.nodes[before].after = to,
            (None, Some(parent)) => self.nodes[parent].first_child = to,
            (None, None) => {}
        }
    }

    /// Nodes in use.
    pub(super) fn size(&self) -> usize {
        self.nodes.len() - self.free.len()
    }
}
