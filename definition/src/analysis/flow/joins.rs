//! `JOIN_NEVER_SUCCEEDS`, `THRESHOLD_OUT_OF_REACH`: the JOIN or MAP fails whatever its paths do.

use serde_json::Value;

use crate::analysis::facts::flow_facts::FlowFacts;
use crate::analysis::facts::join_feasibility::{CountedEnd, Infeasible, wanted};
use crate::analysis::{Analysis, Flow};
use crate::definition::{FaultCode, JoinStrategy};
use crate::graph::diagnostics::pointer;
use crate::graph::{Fork, NodeKind, ValueSpec};

/// Reports each such JOIN, and each MAP of a literal list that is too short.
pub(in crate::analysis) fn report(flow: &Flow<'_>, facts: &FlowFacts, found: &mut Analysis) {
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
    for (place, node) in flow.graph.nodes.iter().enumerate() {
        let NodeKind::Map(map) = &node.kind else { continue };
        let Some(count) = literal_count(&map.items) else {
            continue;
        };
        let (_, wanted) = wanted(&map.join, count);
        if count >= wanted {
            continue;
        }
        let (code, key) = match map.join.strategy {
            JoinStrategy::SuccessCountThreshold => (FaultCode::ThresholdOutOfReach, "threshold"),
            _ => (FaultCode::JoinNeverSucceeds, "joinStrategy"),
        };
        let message = format!(
            "`{}` can never succeed: it needs at least {wanted} items and has {count}",
            node.id
        );
        found.warn(flow.origin, code, &pointer!["nodes", place, "config", key], message);
    }
}

/// Returns the number of items that the definition states; `None` if an expression or a template determines it.
fn literal_count(items: &ValueSpec) -> Option<usize> {
    match items {
        ValueSpec::Literal(value) => match &**value {
            Value::Array(items) => Some(items.len()),
            Value::Object(fields) => Some(fields.len()),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
        },
        ValueSpec::List(items) => Some(items.len()),
        ValueSpec::Object(fields) => Some(fields.len()),
        ValueSpec::Expression(_) | ValueSpec::Template(_) => None,
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
