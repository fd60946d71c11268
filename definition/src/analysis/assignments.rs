//! `INVALID_EXPRESSION` as a warning: a condition that assigns a value, `=`, instead of comparing it.

use super::{Analysis, Flow, WorkflowSet};
use crate::definition::json::Step;
use crate::definition::{FaultCode, NodeConfig, Origin};
use crate::graph::diagnostics::pointer;
use crate::script::assignment;

/// Reports each such condition of a workflow's edges, routes and loops.
pub(super) fn report(flow: &Flow<'_>, found: &mut Analysis) {
    for (place, edge) in flow.definition.edges.iter().enumerate() {
        let condition = edge.condition.as_deref();
        check(flow.origin, condition, || pointer!["edges", place, "condition"], found);
    }
    for (place, node) in flow.definition.nodes.iter().enumerate() {
        match &node.config {
            NodeConfig::Route(route) => {
                for (index, one) in route.routes.iter().enumerate() {
                    let pointer = || pointer!["nodes", place, "config", "routes", index, "condition"];
                    check(flow.origin, Some(&one.condition), pointer, found);
                }
            }
            NodeConfig::LoopEnd(end) => {
                let pointer = || pointer!["nodes", place, "config", "breakCondition"];
                check(flow.origin, end.break_condition.as_deref(), pointer, found);
            }
            _other => {}
        }
    }
}

/// Reports each such condition of a trigger.
pub(super) fn report_triggers(set: &WorkflowSet<'_>, found: &mut Analysis) {
    for placed in set.every_trigger() {
        let expression = placed.trigger.condition.expression.as_deref();
        let pointer = || placed.pointer(["condition", "expression"]);
        check(placed.origin, expression, pointer, found);
    }
}

fn check(origin: &Origin, condition: Option<&str>, pointer: impl Fn() -> Vec<Step>, found: &mut Analysis) {
    found.work += 1;
    let Some(at) = condition.filter(|text| text.contains('=')).and_then(assignment) else {
        return;
    };
    let message = "the condition assigns a value with `=`, which compares nothing";
    let fault = origin.fault_within(FaultCode::InvalidExpression, &pointer(), &at, message);
    found.warnings.push(fault.with_help("use `==` to compare"));
}
