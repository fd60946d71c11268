//! `BRANCH_NEVER_STARTS`: the JOIN is decided before the path starts, however the earlier paths end.

use crate::analysis::facts::flow_facts::FlowFacts;
use crate::analysis::facts::join_feasibility::{can_start, width};
use crate::analysis::{Analysis, Flow};
use crate::definition::FaultCode;
use crate::graph::diagnostics::pointer;

/// Reports the first such path of each fork; the paths after it do not start either.
pub(in crate::analysis) fn report(flow: &Flow<'_>, facts: &FlowFacts, found: &mut Analysis) {
    for (fork, ends) in flow.graph.forks.iter().zip(&facts.forks) {
        found.work += fork.paths.len() as u64;
        let width = width(fork, flow.graph.config.max_concurrent_branches);
        let starts = can_start(fork, &ends.paths, width);
        let Some(place) = starts.iter().position(|starts| !starts) else {
            continue;
        };
        let (path, join) = (&fork.paths[place].id, &flow.graph.node(fork.join_node).id);
        let message = format!("the path `{path}` never starts: `{join}` is decided by the paths before it");
        let pointer = pointer!["nodes", fork.fork_node as usize, "config", "forkPathIds", place];
        found.warn(flow.origin, FaultCode::BranchNeverStarts, &pointer, message);
    }
}
