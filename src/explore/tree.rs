//! The orders of an exploration as a tree: an inner node is an event that the search chose, a leaf ends an order.

use std::collections::BTreeMap;

use pirn_actors::host::Pending;
use serde::Serialize;

use super::search::Choice;
use super::{Choices, Exploration};

/// Estimated size of a node's JSON without its strings.
const NODE_BYTES: usize = 120;

/// All orders that an exploration has run, as a tree.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OrderTree {
    /// The outcomes of the orders.
    #[serde(flatten)]
    pub explored: Exploration,
    /// Limit that ended the exploration; none if it is complete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopped: Option<TreeLimit>,
    /// The nodes, each after its parent. The first one is the start of the run.
    pub nodes: Vec<OrderNode>,
}

/// Limit that ended the exploration of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "UPPERCASE")]
#[non_exhaustive]
pub enum TreeLimit {
    /// [`Explorer::max_schedules`](super::Explorer::max_schedules).
    Schedules,
    /// [`Explorer::stop_when`](super::Explorer::stop_when) or `interrupt_when` returned true.
    Stopped,
    /// The maximum size of the tree.
    Bytes,
}

/// A node of a tree of orders.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OrderNode {
    /// Index of the parent; none for the start of the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<usize>,
    /// The event that happened; none for the start of the run.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub event: Option<OrderEvent>,
    /// The end of an order, for a leaf.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<OrderEnd>,
}

/// An event that an exploration chose.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OrderEvent {
    /// Path of the thread, as ids of fork paths: `a`, `a/left`. Empty for the main thread.
    pub thread: String,
    /// Id of the node; empty for the first step of a thread.
    pub node: String,
    /// Kind of the event: `start`, `model`, `tool`, `function`, `script`, `expression`, `answer`, `wait`, `retry` or `timeout`.
    pub kind: &'static str,
    /// The answer as JSON, for an event of the kind `answer`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// Number of events that could have happened, including this one.
    pub options: usize,
}

/// The end of an order.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OrderEnd {
    /// The choices of the order, for [`Explorer::replay`](super::Explorer::replay).
    pub replay: Choices,
    /// Index of the outcome in [`Exploration::outcomes`], if the run ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<usize>,
    /// Index of the node with an equal state, if the order was abandoned there: equal states have equal continuations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub same_as: Option<usize>,
}

impl OrderEvent {
    pub(super) fn of(choice: &Choice) -> Self {
        let Pending {
            thread,
            node,
            what,
            answer,
            is_branch: _,
        } = &choice.event;
        Self {
            thread: thread.to_string(),
            node: node.to_string(),
            kind: what.as_str(),
            answer: answer.as_deref().map(str::to_owned),
            options: choice.options,
        }
    }

    fn bytes(&self) -> usize {
        self.thread.len() + self.node.len() + self.answer.as_ref().map_or(0, String::len)
    }
}

/// Outcome of a schedule for the tree.
#[derive(Clone, Copy)]
pub(super) enum LeafEnd {
    /// The run ended with the outcome of this number.
    Outcome(usize),
    /// The schedule reached a known state.
    Known(u64),
}

/// Builds a tree from schedules.
pub(super) struct TreeBuilder {
    nodes: Vec<OrderNode>,
    /// Children by parent and chosen option.
    children: BTreeMap<(usize, usize), usize>,
    /// The first node with each state.
    by_state: BTreeMap<u64, usize>,
    bytes: usize,
}

impl TreeBuilder {
    pub(super) fn new() -> Self {
        Self {
            nodes: vec![OrderNode {
                parent: None,
                event: None,
                end: None,
            }],
            children: BTreeMap::new(),
            by_state: BTreeMap::new(),
            bytes: 0,
        }
    }

    /// Estimated size of the tree's JSON without the outcomes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds a schedule. Choices that are not part of displayed orders have no node: they have no alternative.
    pub(super) fn add(&mut self, made: &[Choice], end: LeafEnd) {
        let mut node = 0;
        for choice in made {
            self.by_state.entry(choice.state).or_insert(node);
            if choice.is_shown {
                node = self.child(node, choice);
            }
        }
        let (outcome, same_as) = match end {
            LeafEnd::Outcome(outcome) => (Some(outcome), None),
            LeafEnd::Known(state) => (None, self.by_state.get(&state).copied()),
        };
        let replay = Choices::of(made.iter().map(|choice| choice.chosen));
        self.bytes += replay.to_string().len();
        self.nodes[node].end = Some(OrderEnd {
            replay,
            outcome,
            same_as,
        });
    }

    fn child(&mut self, parent: usize, choice: &Choice) -> usize {
        let next = self.nodes.len();
        let child = *self.children.entry((parent, choice.chosen)).or_insert(next);
        if child == next {
            let event = OrderEvent::of(choice);
            self.bytes += NODE_BYTES + event.bytes();
            self.nodes.push(OrderNode {
                parent: Some(parent),
                event: Some(event),
                end: None,
            });
        }
        child
    }

    /// Returns the tree. `places` has the index in the sorted outcomes of each outcome's number.
    pub(super) fn finish(mut self, explored: Exploration, places: &[usize], stopped: Option<TreeLimit>) -> OrderTree {
        for end in self.nodes.iter_mut().filter_map(|node| node.end.as_mut()) {
            end.outcome = end.outcome.map(|number| places[number]);
        }
        OrderTree {
            explored,
            stopped,
            nodes: self.nodes,
        }
    }
}
