//! `LOOP_WITHOUT_EXIT`: the loop has an exit that no run takes; only `config.maxSteps` ends it.

use crate::analysis::facts::flow_facts::FlowFacts;
use crate::analysis::{Analysis, Flow};
use crate::definition::FaultCode;
use crate::graph::diagnostics::pointer;
use crate::graph::structure::scc::terminal_components;

/// Reports each such loop at its first node.
pub(in crate::analysis) fn report(flow: &Flow<'_>, facts: &FlowFacts, found: &mut Analysis) {
    let count = flow.graph.nodes.len();
    found.work += count as u64;
    let dead: Vec<bool> = (0..count)
        .map(|node| facts.reached[node] && !facts.live[node])
        .collect();
    if !dead.contains(&true) {
        return;
    }
    let mut back = vec![Vec::new(); count];
    for node in (0..count).filter(|node| dead[*node]) {
        for transition in facts.taken(node as u32) {
            found.work += 1;
            back[transition.to as usize].push(node as u32);
        }
    }
    for node in terminal_components(&dead, &back) {
        // a node without outgoing transitions is no loop; another check reports it
        if facts.taken(node).next().is_none() {
            continue;
        }
        let id = &flow.graph.node(node).id;
        let message = format!("the loop through `{id}` has no exit: only `config.maxSteps` ends it");
        found.warn(
            flow.origin,
            FaultCode::LoopWithoutExit,
            &pointer!["nodes", node as usize],
            message,
        );
    }
}
