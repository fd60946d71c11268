//! `JOIN_NEVER_SUCCEEDS`, `THRESHOLD_OUT_OF_REACH`: whatever its paths do, the JOIN fails.

use super::odds::{Counted, Hopeless};
use super::outlook::Outlook;
use super::{Analysis, Flow};
use crate::definition::{FaultCode, JoinStrategy};
use crate::graph::Fork;
use crate::graph::site::at;

/// Reports each such JOIN.
pub(super) fn report(flow: &Flow<'_>, outlook: &Outlook, found: &mut Analysis) {
    for (fork, ends) in flow.graph.forks.iter().zip(&outlook.forks) {
        let Some(why) = ends.hopeless else { continue };
        let (code, key) = match (why, fork.join.strategy) {
            (Hopeless::TooFew { .. }, JoinStrategy::SuccessCountThreshold) => {
                (FaultCode::ThresholdOutOfReach, "threshold")
            }
            (Hopeless::TooFew { .. }, _) => (FaultCode::JoinNeverSucceeds, "joinStrategy"),
            (Hopeless::MainNeverCompletes | Hopeless::MainTooLate, _) => (FaultCode::JoinNeverSucceeds, "mainPathId"),
            (Hopeless::TooSlow { .. }, _) => (FaultCode::JoinNeverSucceeds, "timeout"),
        };
        let id = &flow.graph.node(fork.join_node).id;
        let message = format!("`{id}` can never succeed: {}", reason(fork, why));
        found.warn(
            flow.origin,
            code,
            &at!["nodes", fork.join_node as usize, "config", key],
            message,
        );
    }
}

fn reason(fork: &Fork, why: Hopeless) -> String {
    let main = fork.paths.get(fork.join.main_path).map_or("", |path| &*path.id);
    match why {
        Hopeless::TooFew { able, wanted, counted } => {
            let end = match counted {
                Counted::Completed => "complete",
                Counted::Failed => "fail",
            };
            format!("{wanted} of its paths must {end}, and only {able} can")
        }
        Hopeless::MainNeverCompletes => format!("its main path `{main}` can never complete"),
        Hopeless::MainTooLate => format!("it is decided before its main path `{main}` starts"),
        Hopeless::TooSlow {
            earliest_ms,
            timeout_ms,
        } => {
            format!("its paths take at least {earliest_ms} ms, and it waits for {timeout_ms} ms")
        }
    }
}
