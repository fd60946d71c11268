//! Pairing of FORK and JOIN by their path ids.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::json;

use super::adjacency::Adjacency;
use crate::definition::{FaultCode, ForkConfig, WorkflowDefinition};
use crate::graph::diagnostics::{Diagnostics, MAX_LISTED, pointer};
use crate::graph::model::NodeIx;

/// The JOIN of every FORK, and the FORK of every JOIN.
pub(in crate::graph) type Partners = Vec<Option<NodeIx>>;

/// Pairs nodes with overlapping ids: identical lists first, then in file order.
pub(in crate::graph) fn pair(definition: &WorkflowDefinition, report: &mut Diagnostics<'_>) -> Partners {
    let mut partners: Partners = vec![None; definition.nodes.len()];
    let mut joins = Joins::of(definition);
    let mut open = Vec::new();
    let mut unpaired: Vec<(&str, &Vec<String>)> = Vec::new();
    let mut seen = BTreeSet::new();
    for (place, fork) in forks(definition) {
        for (index, id) in fork.fork_path_ids.iter().enumerate() {
            if !seen.insert(id.as_str()) {
                let message = format!("the path id `{id}` appears twice in this workflow");
                let pointer = pointer!["nodes", place, "config", "forkPathIds", index];
                report.fault(FaultCode::DuplicateForkPathId, &pointer, message);
            }
        }
        match joins.identical(&fork.fork_path_ids) {
            Some(join) => set_partners(&mut partners, place, join),
            None => open.push((place, fork)),
        }
    }
    for (place, fork) in open {
        match joins.overlapping(&fork.fork_path_ids) {
            Some(join) => {
                set_partners(&mut partners, place, join);
                let (fork_id, join_id) = (&definition.nodes[place].id, &definition.nodes[join].id);
                let message = format!(
                    "`{join_id}` must list the path ids of its FORK `{fork_id}` in their order: [{}]",
                    fork.fork_path_ids.join(", ")
                );
                let pointer = pointer!["nodes", join, "config", "forkPathIds"];
                report.fault(FaultCode::ForkJoinMismatch, &pointer, message);
            }
            // an empty list is reported as such
            None if fork.fork_path_ids.is_empty() => {}
            None => {
                let id = definition.nodes[place].id.as_str();
                let message = format!("no JOIN has the path ids of the FORK `{id}`");
                let help = format!(
                    "copy the `forkPathIds` to the JOIN that its branches lead to: {}",
                    listed(&fork.fork_path_ids)
                );
                report.fault_with_help(FaultCode::UnpairedFork, &pointer!["nodes", place], message, &help);
                unpaired.push((id, &fork.fork_path_ids));
            }
        }
    }
    for (place, ids) in join_lists(definition) {
        if partners[place].is_none() && !ids.is_empty() {
            let id = &definition.nodes[place].id;
            let message = format!("no FORK has the path ids of the JOIN `{id}`");
            let forks: Vec<String> = unpaired
                .iter()
                .take(MAX_LISTED)
                .map(|(fork, ids)| format!("`{fork}` has {}", listed(ids)))
                .collect();
            let help = if forks.is_empty() {
                "copy the `forkPathIds` to the FORK before it".to_owned()
            } else {
                format!(
                    "copy the `forkPathIds` of its FORK, which are path ids and not ids of nodes: {}",
                    forks.join(", ")
                )
            };
            report.fault_with_help(FaultCode::UnpairedJoin, &pointer!["nodes", place], message, &help);
        }
    }
    partners
}

/// Checks a FORK's lists: not empty, of equal length, and every child is the target of an edge of the FORK.
pub(in crate::graph) fn check_fork(
    definition: &WorkflowDefinition,
    place: usize,
    fork: &ForkConfig,
    adjacency: &Adjacency,
    report: &mut Diagnostics<'_>,
) {
    let code = FaultCode::InvalidForkPathIds;
    let (paths, children) = (&fork.fork_path_ids, &fork.child_node_ids);
    if paths.is_empty() {
        report.fault(
            code,
            &pointer!["nodes", place, "config", "forkPathIds"],
            "a FORK needs at least one path",
        );
    } else if paths.len() != children.len() {
        let message = format!(
            "{} path ids for {} child nodes: each path starts at one",
            paths.len(),
            children.len()
        );
        report.fault(code, &pointer!["nodes", place, "config", "childNodeIds"], message);
    }
    for index in (0..paths.len()).filter(|index| paths[*index].is_empty()) {
        let pointer = pointer!["nodes", place, "config", "forkPathIds", index];
        report.fault(code, &pointer, "a path needs an id that is not empty");
    }
    let targets: BTreeSet<&str> = adjacency.edges[place]
        .iter()
        .map(|edge| definition.edges[*edge].target_node_id.as_str())
        .collect();
    for (index, child) in children.iter().enumerate() {
        let pointer = pointer!["nodes", place, "config", "childNodeIds", index];
        if adjacency.find(child).is_none() {
            report.unknown_node(code, &pointer, child, adjacency.ids());
        } else if !targets.contains(child.as_str()) {
            let fork = &definition.nodes[place].id;
            let message = format!("no edge leads from the FORK `{fork}` to its child `{child}`");
            let help = format!("add it to `edges`: {}", json!({"from": fork, "to": child}));
            report.fault_with_help(code, &pointer, message, &help);
        }
    }
    let children: BTreeSet<&str> = children.iter().map(String::as_str).collect();
    for edge in &adjacency.edges[place] {
        let drawn = &definition.edges[*edge];
        if !children.contains(drawn.target_node_id.as_str()) {
            let message = format!(
                "the FORK `{}` has no path that starts at `{}`",
                drawn.source_node_id, drawn.target_node_id
            );
            report.fault(FaultCode::InvalidEdge, &pointer!["edges", *edge], message);
        } else if drawn.condition.is_some() {
            let message = "a FORK starts every path: an edge out of it has no condition";
            report.fault(FaultCode::InvalidEdge, &pointer!["edges", *edge, "condition"], message);
        }
    }
}

/// Formats ids as a list, such as `[a, b]`.
fn listed(ids: &[String]) -> String {
    let shown = ids
        .iter()
        .take(MAX_LISTED)
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join(", ");
    let more = if ids.len() > MAX_LISTED { ", ..." } else { "" };
    format!("[{shown}{more}]")
}

fn set_partners(partners: &mut Partners, fork: usize, join: usize) {
    partners[fork] = Some(join as NodeIx);
    partners[join] = Some(fork as NodeIx);
}

fn forks(definition: &WorkflowDefinition) -> impl Iterator<Item = (usize, &ForkConfig)> {
    definition
        .nodes
        .iter()
        .enumerate()
        .filter_map(|(place, node)| Some((place, node.config.as_fork()?)))
}

fn join_lists(definition: &WorkflowDefinition) -> impl Iterator<Item = (usize, &[String])> {
    definition
        .nodes
        .iter()
        .enumerate()
        .filter_map(|(place, node)| Some((place, node.config.as_join()?.fork_path_ids.as_slice())))
}

/// The JOINs without a partner. Each lookup removes the taken ones it meets, so that all lookups together are linear.
struct Joins<'a> {
    by_list: BTreeMap<&'a [String], VecDeque<usize>>,
    by_id: BTreeMap<&'a str, VecDeque<usize>>,
    taken: BTreeSet<usize>,
}

impl<'a> Joins<'a> {
    fn of(definition: &'a WorkflowDefinition) -> Self {
        let mut joins = Self {
            by_list: BTreeMap::new(),
            by_id: BTreeMap::new(),
            taken: BTreeSet::new(),
        };
        for (place, ids) in join_lists(definition) {
            if ids.is_empty() {
                continue;
            }
            joins.by_list.entry(ids).or_default().push_back(place);
            for id in ids {
                joins.by_id.entry(id).or_default().push_back(place);
            }
        }
        joins
    }

    fn identical(&mut self, ids: &[String]) -> Option<usize> {
        let join = self.by_list.get_mut(ids)?.pop_front()?;
        self.taken.insert(join);
        Some(join)
    }

    fn overlapping(&mut self, ids: &[String]) -> Option<usize> {
        for id in ids {
            let Some(queue) = self.by_id.get_mut(id.as_str()) else {
                continue;
            };
            while let Some(join) = queue.pop_front() {
                if self.taken.insert(join) {
                    return Some(join);
                }
            }
        }
        None
    }
}
