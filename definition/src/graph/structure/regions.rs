//! The regions of a graph: the nodes of the main path, and those of the branches of each FORK.
//!
//! 1. A node belongs to one region: the main path's, or that of the innermost FORK around it.
//! 2. A region is entered through its FORK and left through its JOIN; regions nest, never cross. A loop is a region too,
//!    between its LOOP_START and its LOOP_END.
//! 3. From every node of a region its end can be reached: END, or the JOIN.
//! 4. One forward and one backward traversal, each with an explicit stack: linear, and no nesting depth overflows.

use super::adjacency::{ADD_ROUTE, Adjacency, follows_routes, is_start};
use super::pairing::Partners;
use super::scc::terminal_components;
use crate::definition::{FaultCode, NodeConfig, WorkflowDefinition};
use crate::graph::diagnostics::{Diagnostics, pointer};
use crate::graph::model::NodeIx;

/// Number of forks around each node; `None` for unreachable nodes.
pub(super) type Depths = Vec<Option<u32>>;

/// Traverses the graph and reports unreachable nodes, and nodes from which a thread cannot end.
pub(in crate::graph) fn check_regions(
    definition: &WorkflowDefinition,
    adjacency: &Adjacency,
    partners: &Partners,
    triggered: bool,
    report: &mut Diagnostics<'_>,
) -> Depths {
    let count = definition.nodes.len();
    let mut search = RegionSearch {
        definition,
        adjacency,
        partners,
        region: vec![None; count],
        depth: vec![None; count],
        back: vec![Vec::new(); count],
        ends: vec![false; count],
        reported: vec![false; count],
        stack: Vec::new(),
    };
    search.forward(report);
    search.report_unreachable(triggered, report);
    search.report_dead_ends(triggered, report);
    search.depth
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Region {
    Main,
    /// Between this FORK and its JOIN, or this LOOP_START and its LOOP_END.
    Inside(NodeIx),
}

struct RegionSearch<'a> {
    definition: &'a WorkflowDefinition,
    adjacency: &'a Adjacency,
    partners: &'a Partners,
    region: Vec<Option<Region>>,
    depth: Depths,
    /// Followed transitions, reversed.
    back: Vec<Vec<NodeIx>>,
    /// Nodes after which their region can end.
    ends: Vec<bool>,
    /// Nodes for which a fault was reported.
    reported: Vec<bool>,
    stack: Vec<NodeIx>,
}

impl RegionSearch<'_> {
    fn forward(&mut self, report: &mut Diagnostics<'_>) {
        for (place, node) in self.definition.nodes.iter().enumerate() {
            if is_start(&node.config) {
                self.visit(place as NodeIx, Region::Main, 0);
            }
        }
        while let Some(node) = self.stack.pop() {
            let (Some(region), Some(depth)) = (self.region[node as usize], self.depth[node as usize]) else {
                continue;
            };
            let config = &self.definition.nodes[node as usize].config;
            // a SUBGRAPH without exits is reported as a faulty reference
            let names_wrongly =
                matches!(config, NodeConfig::Subgraph(_)) && self.adjacency.next[node as usize].is_empty();
            if is_end(config) || names_wrongly {
                self.ends[node as usize] = true;
            }
            if let Some(close) = self.partner_of_opening(node) {
                if self.region[close as usize].is_none() {
                    self.visit(close, region, depth);
                }
                self.back[close as usize].push(node);
                let depth = depth + u32::from(config.as_fork().is_some());
                for child in &self.adjacency.children[node as usize] {
                    self.step(node, *child, Region::Inside(node), depth, report);
                }
            } else {
                for child in &self.adjacency.children[node as usize] {
                    self.step(node, *child, region, depth, report);
                }
            }
            for target in &self.adjacency.next[node as usize] {
                self.step(node, *target, region, depth, report);
            }
        }
    }

    /// Returns the JOIN of a FORK, or the LOOP_END of a LOOP_START.
    fn partner_of_opening(&self, node: NodeIx) -> Option<NodeIx> {
        let config = &self.definition.nodes[node as usize].config;
        let opens = matches!(config, NodeConfig::Fork(_) | NodeConfig::LoopStart(_));
        self.partners[node as usize].filter(|_| opens)
    }

    fn visit(&mut self, node: NodeIx, region: Region, depth: u32) {
        self.region[node as usize] = Some(region);
        self.depth[node as usize] = Some(depth);
        self.stack.push(node);
    }

    /// Handles one transition from `from` to `to`, taken by a thread of `region`.
    fn step(&mut self, from: NodeIx, to: NodeIx, region: Region, depth: u32, report: &mut Diagnostics<'_>) {
        let target = &self.definition.nodes[to as usize];
        let inside = matches!(region, Region::Inside(_));
        if closes(&target.config)
            && let Some(open) = self.partners[to as usize]
        {
            if region != Region::Inside(open) {
                self.report_crossing(from, to, region, report);
            } else if from != open {
                self.ends[from as usize] = true;
            }
            return;
        }
        if inside && is_end(&target.config) {
            self.report_crossing(from, to, region, report);
            return;
        }
        match self.region[to as usize] {
            None => self.visit(to, region, depth),
            Some(known) if known == region => {}
            Some(_) => {
                self.report_crossing(from, to, region, report);
                return;
            }
        }
        // the transition from a FORK into a branch is not the FORK's own: its JOIN decides whether it can end
        if region != Region::Inside(from) {
            self.back[to as usize].push(from);
        }
    }

    fn report_crossing(&mut self, from: NodeIx, to: NodeIx, region: Region, report: &mut Diagnostics<'_>) {
        if std::mem::replace(&mut self.reported[from as usize], true) {
            return;
        }
        let id = |node: NodeIx| self.definition.nodes[node as usize].id.as_str();
        let target = &self.definition.nodes[to as usize].config;
        let message = match (region, target) {
            (Region::Inside(open), _) if self.is_loop(open) => {
                format!(
                    "the loop of `{}` exits from `{}` to `{}`, not through its LOOP_END",
                    id(open),
                    id(from),
                    id(to)
                )
            }
            (_, NodeConfig::LoopEnd(_)) => {
                format!(
                    "`{}` leads to the LOOP_END `{}` from outside its loop",
                    id(from),
                    id(to)
                )
            }
            (Region::Inside(fork), NodeConfig::Join(_)) => {
                format!(
                    "a branch of `{}` leads from `{}` to `{}`, the JOIN of another FORK",
                    id(fork),
                    id(from),
                    id(to)
                )
            }
            (Region::Main, NodeConfig::Join(_)) => {
                format!("`{}` leads to the JOIN `{}` from outside its FORK", id(from), id(to))
            }
            (Region::Inside(fork), target) if is_end(target) => {
                format!(
                    "a branch of `{}` can reach `{}` from `{}` before its JOIN",
                    id(fork),
                    id(to),
                    id(from)
                )
            }
            (Region::Inside(fork), _) => {
                format!(
                    "a branch of `{}` exits from `{}` to `{}`, not through its JOIN",
                    id(fork),
                    id(from),
                    id(to)
                )
            }
            (Region::Main, _) => {
                let inside = match self.region[to as usize] {
                    Some(Region::Inside(open)) if self.is_loop(open) => "a loop",
                    Some(Region::Inside(_) | Region::Main) | None => "a branch of a FORK",
                };
                format!("`{}` leads to `{}`, which belongs to {inside}", id(from), id(to))
            }
        };
        let enters_loop = matches!(self.region[to as usize], Some(Region::Inside(open)) if self.is_loop(open));
        let leaves_loop = matches!(region, Region::Inside(open) if self.is_loop(open));
        let code = if enters_loop || leaves_loop || matches!(target, NodeConfig::LoopEnd(_)) {
            FaultCode::LoopNotClosed
        } else {
            FaultCode::ForkJoinNotReachable
        };
        report.fault(code, &pointer!["nodes", from as usize], message);
    }

    fn is_loop(&self, open: NodeIx) -> bool {
        matches!(self.definition.nodes[open as usize].config, NodeConfig::LoopStart(_))
    }

    fn report_unreachable(&self, triggered: bool, report: &mut Diagnostics<'_>) {
        let code = if triggered {
            FaultCode::InvalidTriggeredWorkflow
        } else {
            FaultCode::UnreachableNode
        };
        let drawn = self.adjacency.drawn(self.definition);
        for (place, node) in self.definition.nodes.iter().enumerate() {
            if self.region[place].is_none() && !self.adjacency.declares[place] {
                let pointer = pointer!["nodes", place];
                let message = format!("`{}` cannot be reached from the start", node.id);
                match drawn.get(node.id.as_str()) {
                    Some(route) => {
                        let help = format!("{}: {ADD_ROUTE}", follows_routes(route));
                        report.fault_with_help(code, &pointer, message, &help);
                    }
                    None => report.fault(code, &pointer, message),
                }
            }
        }
    }

    fn report_dead_ends(&self, triggered: bool, report: &mut Diagnostics<'_>) {
        if !self.definition.nodes.iter().any(|node| is_end(&node.config)) {
            return; // reported as the missing END; otherwise every node would be reported
        }
        let count = self.definition.nodes.len();
        let mut live: Vec<bool> = (0..count)
            .map(|place| self.ends[place] || self.reported[place])
            .collect();
        let mut stack: Vec<NodeIx> = (0..count)
            .filter(|place| live[*place])
            .map(|place| place as NodeIx)
            .collect();
        while let Some(node) = stack.pop() {
            for before in &self.back[node as usize] {
                if !std::mem::replace(&mut live[*before as usize], true) {
                    stack.push(*before);
                }
            }
        }
        let dead: Vec<bool> = (0..count)
            .map(|place| self.region[place].is_some() && !live[place])
            .collect();
        if !dead.contains(&true) {
            return;
        }
        for node in terminal_components(&dead, &self.back) {
            let id = &self.definition.nodes[node as usize].id;
            let (code, message) = match self.region[node as usize] {
                Some(Region::Inside(open)) if self.is_loop(open) => {
                    let start = &self.definition.nodes[open as usize].id;
                    let message = format!("from `{id}` in the loop of `{start}` its LOOP_END cannot be reached");
                    (FaultCode::LoopNotClosed, message)
                }
                Some(Region::Inside(fork)) => {
                    let fork = &self.definition.nodes[fork as usize].id;
                    let message = format!("from `{id}` in a branch of `{fork}` its JOIN cannot be reached");
                    (FaultCode::ForkJoinNotReachable, message)
                }
                Some(Region::Main) | None if triggered => {
                    let message = format!("from `{id}` CONTINUE_FROM_TRIGGER cannot be reached");
                    (FaultCode::InvalidTriggeredWorkflow, message)
                }
                Some(Region::Main) | None => (FaultCode::DeadEnd, format!("from `{id}` no END can be reached")),
            };
            report.fault(code, &pointer!["nodes", node as usize], message);
        }
    }
}

fn closes(config: &NodeConfig) -> bool {
    matches!(config, NodeConfig::Join(_) | NodeConfig::LoopEnd(_))
}

fn is_end(config: &NodeConfig) -> bool {
    matches!(config, NodeConfig::End(_) | NodeConfig::ContinueFromTrigger(_))
}
