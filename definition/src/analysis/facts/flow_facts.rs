//! Facts about what can happen in a workflow, as far as its text determines it: which transitions some run takes, which nodes and
//! paths can complete, and which can fail.
//!
//! The facts are upper bounds. *Completes* and *fails* mean "some run may", so a warning is issued only if they are absent.
//! Called workflows are analysed before their callers, and inner forks before outer ones. Each region is searched backwards from
//! its end, so every transition is visited a constant number of times.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::conditions::{Choices, choices, edge_choices};
use super::join_feasibility::{CountedEnd, Infeasible, PathOutcomes, can_fail, can_succeed, wanted, width};
use crate::analysis::{Flow, WorkflowSet};
use crate::definition::{DEFAULT_MAX_STEPS, TriggerAction};
use crate::graph::{Fork, ForkIx, Graph, LoopNode, NodeIx, NodeKind, QuestionTimeout};

/// A transition out of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::analysis) struct Transition {
    pub(in crate::analysis) to: NodeIx,
    /// True if taken after a failure (`onError`).
    pub(super) is_error: bool,
}

/// Possible outcomes of a fork.
#[derive(Debug, Default)]
pub(in crate::analysis) struct ForkFacts {
    pub(in crate::analysis) paths: Vec<PathOutcomes>,
    /// Reason why the JOIN cannot succeed.
    pub(in crate::analysis) infeasible: Option<Infeasible>,
}

/// Facts about one workflow.
#[derive(Debug)]
pub(in crate::analysis) struct FlowFacts {
    /// Transitions that the conditions allow.
    next: Vec<Vec<Transition>>,
    completes: Vec<bool>,
    fails: Vec<bool>,
    /// True for nodes that some run enters.
    pub(in crate::analysis) reached: Vec<bool>,
    /// True for nodes from which some run reaches the end of the region: END, or the JOIN.
    pub(in crate::analysis) live: Vec<bool>,
    /// Indexed as [`Graph::forks`].
    pub(in crate::analysis) forks: Vec<ForkFacts>,
    /// True if some run completes.
    pub(super) can_complete: bool,
}

impl FlowFacts {
    /// Computes the facts of every workflow of the set; `work` counts the visited items.
    pub(in crate::analysis) fn of_all(set: &WorkflowSet<'_>, work: &mut u64) -> Vec<Self> {
        let places = set.places();
        let calls: Vec<Vec<usize>> = set
            .flows
            .iter()
            .map(|flow| flow.calls().filter_map(|id| places.get(&**id).copied()).collect())
            .collect();
        let is_stopped = set
            .every_trigger()
            .any(|placed| placed.trigger.enabled && matches!(placed.trigger.action, TriggerAction::StopThread { .. }));
        let mut all: Vec<Option<Self>> = set.flows.iter().map(|_| None).collect();
        for place in callees_first(&calls) {
            let infeasible = |id: &str| {
                let callee = places.get(id).and_then(|place| all[*place].as_ref());
                callee.is_some_and(|callee| !callee.can_complete)
            };
            let facts = Self::of(&set.flows[place], is_stopped, &infeasible, work);
            all[place] = Some(facts);
        }
        all.into_iter().flatten().collect()
    }

    /// Returns the transitions out of a node that some run takes.
    pub(in crate::analysis) fn taken(&self, node: NodeIx) -> impl Iterator<Item = Transition> {
        let (completes, fails) = (self.completes[node as usize], self.fails[node as usize]);
        let transitions = self.next[node as usize].iter().copied();
        transitions.filter(move |transition| if transition.is_error { fails } else { completes })
    }

    fn of(flow: &Flow<'_>, is_stopped: bool, infeasible: &dyn Fn(&str) -> bool, work: &mut u64) -> Self {
        let graph = flow.graph;
        let count = graph.nodes.len();
        // a thread that enters each node at most once cannot exceed the limit
        let is_short = graph.config.max_steps.unwrap_or(DEFAULT_MAX_STEPS) < count as u64;
        let mut facts = Self {
            next: Vec::with_capacity(count),
            completes: Vec::with_capacity(count),
            fails: Vec::with_capacity(count),
            reached: vec![false; count],
            live: vec![false; count],
            forks: Vec::new(),
            can_complete: false,
        };
        for node in &graph.nodes {
            let choices = transitions_of(graph, node);
            let mut next: Vec<Transition> = choices
                .targets
                .iter()
                .map(|to| Transition {
                    to: *to,
                    is_error: false,
                })
                .collect();
            next.extend(node.on_error.map(|to| Transition { to, is_error: true }));
            *work += 1 + next.len() as u64;
            facts.next.push(next);
            let always_fails = match &node.kind {
                NodeKind::Subgraph { workflow_id, agent, .. } => {
                    let has_no_role = |role: &Option<String>| role.as_ref().is_none_or(|role| role.trim().is_empty());
                    agent.as_ref().is_some_and(|agent| has_no_role(&agent.role)) || infeasible(workflow_id)
                }
                _ => false,
            };
            facts.completes.push(!always_fails);
            let can_fail = choices.can_fail || node.timeout_ms.is_some() || kind_can_fail(&node.kind);
            facts.fails.push(always_fails || is_stopped || is_short || can_fail);
        }
        Regions::of(graph, &facts.next, work).search(flow, &mut facts, work);
        facts.reach(graph, work);
        facts
    }

    /// Marks the nodes that some run enters.
    fn reach(&mut self, graph: &Graph, work: &mut u64) {
        let mut stack = vec![graph.start];
        self.reached[graph.start as usize] = true;
        while let Some(node) = stack.pop() {
            let children = match &graph.node(node).kind {
                NodeKind::Fork(fork) => graph.fork(*fork).paths.as_slice(),
                _ => &[],
            };
            let children = children.iter().map(|path| path.child);
            let next: Vec<NodeIx> = self
                .taken(node)
                .map(|transition| transition.to)
                .chain(children)
                .collect();
            for to in next {
                *work += 1;
                if !std::mem::replace(&mut self.reached[to as usize], true) {
                    stack.push(to);
                }
            }
        }
    }
}

/// Returns an order in which every workflow is after those it calls; calls have no cycles.
fn callees_first(calls: &[Vec<usize>]) -> Vec<usize> {
    let mut order = Vec::with_capacity(calls.len());
    let mut seen = vec![false; calls.len()];
    for start in 0..calls.len() {
        let mut stack = Vec::new();
        if !std::mem::replace(&mut seen[start], true) {
            stack.push((start, 0));
        }
        while let Some((place, tried)) = stack.last_mut() {
            if let Some(callee) = calls[*place].get(*tried) {
                *tried += 1;
                if !std::mem::replace(&mut seen[*callee], true) {
                    stack.push((*callee, 0));
                }
            } else {
                order.push(*place);
                stack.pop();
            }
        }
    }
    order
}

/// Returns the transitions of a node that has completed.
fn transitions_of(graph: &Graph, node: &crate::graph::Node) -> Choices {
    match &node.kind {
        NodeKind::Fork(fork) => Choices {
            targets: vec![graph.fork(*fork).join_node],
            can_fail: false,
        },
        NodeKind::Route { routes, default } => {
            let transitions = routes.iter().map(|(condition, target)| (Some(*condition), *target));
            choices(graph, transitions, *default)
        }
        NodeKind::End { .. } | NodeKind::ContinueFromTrigger(_) => Choices::default(),
        // no items at all, or the next one
        NodeKind::LoopStart(LoopNode { end: other, .. }) | NodeKind::LoopEnd { start: other, .. } => {
            let mut choices = edge_choices(graph, &node.edges);
            choices.targets.push(*other);
            choices
        }
        NodeKind::Start
        | NodeKind::StartFromTrigger
        | NodeKind::Variable { .. }
        | NodeKind::Llm(_)
        | NodeKind::Script { .. }
        | NodeKind::Orchestration(_)
        | NodeKind::Function { .. }
        | NodeKind::Join(_)
        | NodeKind::Subgraph { .. }
        | NodeKind::Map(_)
        | NodeKind::Context(_)
        | NodeKind::WaitTime(_)
        | NodeKind::WaitEvent { .. }
        | NodeKind::Tool { .. } => edge_choices(graph, &node.edges),
        NodeKind::UserInteraction(interaction) => {
            let mut choices = edge_choices(graph, &node.edges);
            if let QuestionTimeout::GoTo(target) = interaction.on_timeout {
                choices.targets.push(target);
            }
            choices
        }
    }
}

/// True if the node itself may fail. A JOIN is judged by its paths.
fn kind_can_fail(kind: &NodeKind) -> bool {
    match kind {
        NodeKind::Start
        | NodeKind::StartFromTrigger
        | NodeKind::End { output: None }
        | NodeKind::Route { .. }
        | NodeKind::Fork(_)
        | NodeKind::Join(_)
        | NodeKind::WaitTime(_)
        | NodeKind::ContinueFromTrigger(_) => false,
        NodeKind::End { output: Some(_) }
        | NodeKind::Variable { .. }
        | NodeKind::Llm(_)
        | NodeKind::Script { .. }
        | NodeKind::Orchestration(_)
        | NodeKind::Function { .. }
        | NodeKind::Subgraph { .. }
        | NodeKind::Map(_)
        | NodeKind::Context(_)
        | NodeKind::WaitEvent { .. }
        | NodeKind::Tool { .. }
        | NodeKind::UserInteraction(_)
        | NodeKind::LoopStart(_)
        | NodeKind::LoopEnd { .. } => true,
    }
}

/// The innermost fork around each node, and the reverse transitions.
struct Regions {
    /// Innermost fork around the node; `None` for the main path and for unreachable nodes.
    of: Vec<Option<ForkIx>>,
    nodes: Vec<Vec<NodeIx>>,
    back: Vec<Vec<Transition>>,
}

impl Regions {
    fn of(graph: &Graph, next: &[Vec<Transition>], work: &mut u64) -> Self {
        let mut regions = Self {
            of: vec![None; graph.nodes.len()],
            nodes: vec![Vec::new(); graph.forks.len()],
            back: vec![Vec::new(); graph.nodes.len()],
        };
        for (from, transitions) in next.iter().enumerate() {
            for transition in transitions {
                regions.back[transition.to as usize].push(Transition {
                    to: from as NodeIx,
                    ..*transition
                });
            }
        }
        for (number, fork) in graph.forks.iter().enumerate() {
            let mut stack: Vec<NodeIx> = fork.paths.iter().map(|path| path.child).collect();
            while let Some(node) = stack.pop() {
                *work += 1;
                if node == fork.join_node || regions.of[node as usize].is_some() {
                    continue;
                }
                regions.of[node as usize] = Some(number as ForkIx);
                regions.nodes[number].push(node);
                stack.extend(next[node as usize].iter().map(|transition| transition.to));
            }
        }
        regions
    }

    /// Returns the forks, inner ones first.
    fn inner_first(&self, graph: &Graph) -> Vec<ForkIx> {
        let around = |fork: ForkIx| self.of[graph.fork(fork).fork_node as usize];
        let mut inside: Vec<u32> = vec![0; graph.forks.len()];
        for fork in 0..graph.forks.len() {
            if let Some(outer) = around(fork as ForkIx) {
                inside[outer as usize] += 1;
            }
        }
        let mut ready: Vec<ForkIx> = (0..graph.forks.len() as ForkIx)
            .filter(|fork| inside[*fork as usize] == 0)
            .collect();
        let mut order = Vec::with_capacity(graph.forks.len());
        while let Some(fork) = ready.pop() {
            order.push(fork);
            if let Some(outer) = around(fork) {
                inside[outer as usize] -= 1;
                if inside[outer as usize] == 0 {
                    ready.push(outer);
                }
            }
        }
        order
    }

    fn search(&self, flow: &Flow<'_>, facts: &mut FlowFacts, work: &mut u64) {
        let graph = flow.graph;
        facts.forks = graph.forks.iter().map(|_| ForkFacts::default()).collect();
        let mut dies = vec![false; graph.nodes.len()];
        let mut earliest = EarliestEnds::of(graph);
        for number in self.inner_first(graph) {
            let fork = graph.fork(number);
            let mut back = BackwardSearch {
                regions: self,
                graph,
                region: Some(number),
                work: &mut *work,
            };
            let mut live = std::mem::take(&mut facts.live);
            back.search(&[fork.join_node], true, facts, &mut live);
            facts.live = live;
            let sources: Vec<NodeIx> = self.nodes[number as usize]
                .iter()
                .copied()
                .filter(|node| facts.fails[*node as usize] && graph.node(*node).on_error.is_none())
                .collect();
            for source in &sources {
                dies[*source as usize] = true;
            }
            back.search(&sources, false, facts, &mut dies);
            earliest.search(&mut back, fork, facts);
            let paths = fork.paths.iter().map(|path| {
                let child = path.child as usize;
                let is_empty = path.child == fork.join_node;
                let completes = is_empty || facts.live[child];
                PathOutcomes {
                    completes,
                    fails: !is_empty && (dies[child] || !completes),
                    earliest_ms: if is_empty { 0 } else { earliest.of_node[child] },
                }
            });
            let paths: Vec<PathOutcomes> = paths.collect();
            let width = width(fork, graph.config.max_concurrent_branches);
            let infeasible = can_succeed(fork, &paths, width).err();
            let join = fork.join_node as usize;
            facts.completes[join] = infeasible.is_none();
            facts.fails[join] |= can_fail(fork, &paths)
                || fork.join.timeout_ms.is_some()
                || fork.join.merge_variables != crate::definition::MergeVariables::None;
            earliest.join(fork, &paths);
            facts.forks[number as usize] = ForkFacts { paths, infeasible };
        }
        let ends: Vec<NodeIx> = (0..graph.nodes.len() as NodeIx)
            .filter(|node| {
                matches!(
                    graph.node(*node).kind,
                    NodeKind::End { .. } | NodeKind::ContinueFromTrigger(_)
                )
            })
            .collect();
        let mut live = std::mem::take(&mut facts.live);
        for end in &ends {
            live[*end as usize] = true;
        }
        let mut back = BackwardSearch {
            regions: self,
            graph,
            region: None,
            work,
        };
        back.search(&ends, false, facts, &mut live);
        facts.can_complete = live[graph.start as usize];
        facts.live = live;
    }
}

/// Reverse search within one region.
struct BackwardSearch<'a> {
    regions: &'a Regions,
    graph: &'a Graph,
    region: Option<ForkIx>,
    work: &'a mut u64,
}

impl BackwardSearch<'_> {
    /// Marks every node of the region from which a run may reach one of `from`. For a JOIN in `from`, `into_branches` selects
    /// whether the search continues in its paths or at its FORK.
    fn search(&mut self, from: &[NodeIx], into_branches: bool, facts: &FlowFacts, marked: &mut [bool]) {
        let mut stack: Vec<(NodeIx, bool)> = from.iter().map(|node| (*node, into_branches)).collect();
        while let Some((node, into_branches)) = stack.pop() {
            for transition in self.before(node, into_branches, facts) {
                if !std::mem::replace(&mut marked[transition.to as usize], true) {
                    stack.push((transition.to, false));
                }
            }
        }
    }

    /// Returns the transitions of the region that lead to a node and that some run takes.
    fn before(&mut self, node: NodeIx, into_branches: bool, facts: &FlowFacts) -> Vec<Transition> {
        let transitions = &self.regions.back[node as usize];
        *self.work += 1 + transitions.len() as u64;
        let fork_node = match &self.graph.node(node).kind {
            NodeKind::Join(fork) => Some(self.graph.fork(*fork).fork_node),
            _ => None,
        };
        let belongs = |transition: &&Transition| {
            let from = transition.to as usize;
            let is_parents = fork_node.is_none_or(|fork| fork == transition.to);
            let is_taken = if transition.is_error {
                facts.fails[from]
            } else {
                facts.completes[from]
            };
            is_taken && self.regions.of[from] == self.region && is_parents != into_branches
        };
        transitions.iter().filter(belongs).copied().collect()
    }
}

/// Minimum time to a region's end, in milliseconds: the durations of WAITs and inner JOINs; all other nodes count 0.
struct EarliestEnds {
    of_node: Vec<u64>,
    /// Duration of each node itself.
    cost: Vec<u64>,
    /// True if the durations matter: some node waits, and some JOIN has a timeout.
    counts: bool,
}

impl EarliestEnds {
    fn of(graph: &Graph) -> Self {
        let cost: Vec<u64> = graph
            .nodes
            .iter()
            .map(|node| if let NodeKind::WaitTime(ms) = node.kind { ms } else { 0 })
            .collect();
        let counts = cost.iter().any(|ms| *ms > 0) && graph.forks.iter().any(|fork| fork.join.timeout_ms.is_some());
        Self {
            of_node: vec![0; cost.len()],
            cost,
            counts,
        }
    }

    fn search(&mut self, back: &mut BackwardSearch<'_>, fork: &Fork, facts: &FlowFacts) {
        if !self.counts {
            return;
        }
        let mut settled: std::collections::BTreeSet<NodeIx> = std::collections::BTreeSet::new();
        let mut nearest = BinaryHeap::from([Reverse((0_u64, fork.join_node))]);
        while let Some(Reverse((after_ms, node))) = nearest.pop() {
            if !settled.insert(node) {
                continue;
            }
            if node != fork.join_node {
                self.of_node[node as usize] = after_ms;
            }
            for transition in back.before(node, node == fork.join_node, facts) {
                // a failing node may fail at once
                let own = if transition.is_error {
                    0
                } else {
                    self.cost[transition.to as usize]
                };
                nearest.push(Reverse((after_ms.saturating_add(own), transition.to)));
            }
        }
    }

    /// The duration of an inner fork is that of the slowest path that must complete.
    fn join(&mut self, fork: &Fork, paths: &[PathOutcomes]) {
        let (counted, wanted) = wanted(&fork.join, fork.paths.len());
        if !self.counts || counted != CountedEnd::Completed {
            return;
        }
        let mut times: Vec<u64> = paths
            .iter()
            .filter(|path| path.completes)
            .map(|path| path.earliest_ms)
            .collect();
        times.sort_unstable();
        self.cost[fork.join_node as usize] = times.get(wanted.saturating_sub(1)).copied().unwrap_or_default();
    }
}
