//! `BRANCH_NEVER_STARTS`: the JOIN is decided before the path's turn comes, however the earlier ones end.

use super::odds::{can_start, width};
use super::outlook::Outlook;
use super::{Analysis, Flow};
use crate::definition::FaultCode;
use crate::graph::site::at;

/// Reports the first such path of each fork; those after it do not start either.
pub(super) fn report(flow: &Flow<'_>, outlook: &Outlook, found: &mut Analysis) {
    for (fork, ends) in flow.graph.forks.iter().zip(&outlook.forks) {
        found.work += fork.paths.len() as u64;
        let width = width(fork, flow.graph.config.max_concurrent_branches);
        let starts = can_start(fork, &ends.paths, width);
        let Some(place) = starts.iter().position(|starts| !starts) else {
            continue;
        };
        let (path, join) = (&fork.paths[place].id, &flow.graph.node(fork.join_node).id);
        let message = format!("the path `{path}` never starts: `{join}` is decided by the paths before it");
        let way = at!["nodes", fork.fork_node as usize, "config", "forkPathIds", place];
        found.warn(flow.origin, FaultCode::BranchNeverStarts, &way, message);
    }
}
