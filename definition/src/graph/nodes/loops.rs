//! Pairs LOOP_START and LOOP_END, and checks and compiles their configs.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::compiler::NodeCompiler;
use crate::definition::{FaultCode, LoopEndConfig, LoopStartConfig, NodeConfig, WorkflowDefinition};
use crate::graph::diagnostics::{Diagnostics, child, pointer};
use crate::graph::model::{LoopNode, NodeIx, NodeKind};
use crate::graph::structure::pairing::Partners;

/// Pairs the nodes by `loopId`.
pub(in crate::graph) fn pair_loops(
    definition: &WorkflowDefinition,
    partners: &mut Partners,
    report: &mut Diagnostics<'_>,
) {
    let mut starts: BTreeMap<&str, usize> = BTreeMap::new();
    for (place, node) in definition.nodes.iter().enumerate() {
        let NodeConfig::LoopStart(config) = &node.config else {
            continue;
        };
        if config.loop_id.is_empty() {
            let message = "a loop needs a `loopId` that is not empty";
            report.fault(
                FaultCode::InvalidValue,
                &pointer!["nodes", place, "config", "loopId"],
                message,
            );
        }
        if starts.insert(&config.loop_id, place).is_some() {
            let message = format!("another LOOP_START has the loopId `{}`", config.loop_id);
            report.fault(
                FaultCode::DuplicateLoopId,
                &pointer!["nodes", place, "config", "loopId"],
                message,
            );
        }
    }
    for (place, node) in definition.nodes.iter().enumerate() {
        let NodeConfig::LoopEnd(config) = &node.config else {
            continue;
        };
        match starts.get(config.loop_id.as_str()) {
            Some(start) if partners[*start].is_none() => {
                partners[*start] = Some(place as NodeIx);
                partners[place] = Some(*start as NodeIx);
            }
            Some(_) => {
                let message = format!("another LOOP_END has the loopId `{}`", config.loop_id);
                report.fault(
                    FaultCode::DuplicateLoopId,
                    &pointer!["nodes", place, "config", "loopId"],
                    message,
                );
            }
            None => {
                let message = format!("no LOOP_START has the loopId `{}`", config.loop_id);
                report.fault(FaultCode::UnpairedLoopEnd, &pointer!["nodes", place], message);
            }
        }
    }
    for (id, start) in starts {
        if partners[start].is_none() {
            let message = format!("no LOOP_END has the loopId `{id}`");
            report.fault(FaultCode::UnpairedLoopStart, &pointer!["nodes", start], message);
        }
    }
}

impl NodeCompiler<'_, '_> {
    pub(super) fn loop_start(&mut self, place: usize, config: &LoopStartConfig) -> Option<NodeKind> {
        let pointer = pointer!["nodes", place, "config"];
        if config.max_iterations == Some(0) {
            let message = "`maxIterations` must be at least 1";
            self.report
                .fault(FaultCode::InvalidValue, &child(&pointer, "maxIterations"), message);
        }
        let end = self.partners[place];
        let breaks = end.is_some_and(|end| match &self.definition.nodes[end as usize].config {
            NodeConfig::LoopEnd(end) => end.break_condition.is_some(),
            _ => false,
        });
        // an unreadable data source is reported as such
        let is_whole = !self.report.origin.holes().transitions;
        if is_whole && config.data_source.is_none() && config.max_iterations.is_none() && !breaks {
            let message = "this loop never ends: it needs `dataSource`, `maxIterations` or a `breakCondition`";
            self.report.fault(FaultCode::InvalidValue, &pointer, message);
        }
        let source = config.data_source.as_ref();
        let pointer = child(&pointer, "dataSource");
        if let Some(name) = source.and_then(|source| source.variable_name.as_deref()) {
            self.report.variable_name(name, &child(&pointer, "variableName"));
        }
        let iterable = source.map(|source| {
            let pointer = child(&pointer, "iterable");
            if !may_iterate(&source.iterable) {
                let message = format!(
                    "`iterable` is {}: expected a list, an object, a whole number from 0 or an expression",
                    source.iterable
                );
                self.report.fault(FaultCode::InvalidValue, &pointer, message);
            }
            self.snippets.input(&source.iterable, &pointer, self.report)
        });
        Some(NodeKind::LoopStart(LoopNode {
            end: end?,
            iterable,
            variable: source.and_then(|source| source.variable_name.as_deref()).map(Arc::from),
            max_iterations: config.max_iterations,
            on_limit: config.on_limit,
        }))
    }

    pub(super) fn loop_end(&mut self, place: usize, config: &LoopEndConfig) -> Option<NodeKind> {
        // a constant condition is evaluated too, so that a loop of trivial nodes yields after each iteration
        let condition = config.break_condition.as_deref().unwrap_or("false");
        let break_condition = self.expression(condition, place, "breakCondition");
        Some(NodeKind::LoopEnd {
            start: self.partners[place]?,
            break_condition,
        })
    }
}

/// Lowest number from which on a floating-point number does not identify one integer.
const INEXACT: f64 = 9_007_199_254_740_992.0;

/// True unless a literal value has no items. A string is an expression, which is evaluated at run time.
fn may_iterate(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(_) => false,
        Value::Number(number) => {
            let is_whole = |number: f64| number.fract() == 0.0 && (0.0..INEXACT).contains(&number);
            number.is_u64() || number.as_f64().is_some_and(is_whole)
        }
        Value::String(_) | Value::Array(_) | Value::Object(_) => true,
    }
}
