//! `JOIN_NEVER_SUCCEEDS`, `THRESHOLD_OUT_OF_REACH`: the JOIN fails whatever its paths do.

use super::flow_facts::FlowFacts;
use super::join_feasibility::{CountedEnd, Infeasible};
use super::{Analysis, Flow};
use crate::definition::{FaultCode, JoinStrategy};
use crate::graph::Fork;
use crate::graph::diagnostics::pointer;

/// Reports each such JOIN.
pub(super) fn report(flow: &Flow<'_>, facts: &FlowFacts, found: &mut Analysis) {
    for (fork, ends) in flow.graph.forks.iter().zip(&facts.forks) {
        let Some(why) = ends.infeasible else { continue };
        let (code, key) = match (why, fork.join.strategy) {
            (Infeasible::TooFew { .. }, JoinStrategy::SuccessCountThreshold) => {
                (FaultCode::ThresholdOutOfReach, "threshold")
            }
            (Infeasible::TooFew { .. }, _) => (FaultCode::JoinNeverSucceeds, "joinStrategy"),
            (Infeasible::MainNeverCompletes | Infeasible::MainTooLate, _) => {
                (FaultCode::JoinNeverSucceeds, "mainPathId")
            }
            (Infeasible::TooSlow { .. }, _) => (FaultCode::JoinNeverSucceeds, "timeout"),
        };
        let id = &flow.graph.node(fork.join_node).id;
        let message = format!("`{id}` can never succeed: {}", reason(fork, why));
        found.warn(
            flow.origin,
            code,
            &pointer!["nodes", fork.join_node as usize, "config", key],
            message,
        );
    }
}

fn reason(fork: &Fork, why: Infeasible) -> String {
    let main = fork.paths.get(fork.join.main_path).map_or("", |path| &*path.id);
    match why {
        Infeasible::TooFew { able, wanted, counted } => {
            let end = match counted {
                CountedEnd::Completed => "complete",
                CountedEnd::Failed => "fail",
            };
            format!("{wanted} of its paths must {end}, and only {able} can")
        }
        Infeasible::MainNeverCompletes => format!("its main path `{main}` can never complete"),
        Infeasible::MainTooLate => format!("it is decided before its main path `{main}` starts"),
        Infeasible::TooSlow {
            earliest_ms,
            timeout_ms,
        } => {
            format!("its paths take at least {earliest_ms} ms, and its timeout is {timeout_ms} ms")
        }
    }
}
