//! Checks and compiles MAP nodes.

use std::sync::Arc;

use serde_json::Value;

use super::compiler::NodeCompiler;
use crate::definition::{FaultCode, JoinStrategy, MapConfig, MergeVariables};
use crate::graph::diagnostics::{child, pointer};
use crate::graph::model::{JoinRule, MapNode, NodeKind};
use crate::script::is_name;

/// Default name of the item in `input`.
const DEFAULT_NAME: &str = "item";

/// Name of the item's index in `input`.
pub const ITEM_INDEX: &str = "index";

impl NodeCompiler<'_, '_> {
    pub(super) fn map(&mut self, place: usize, map: &MapConfig) -> NodeKind {
        let pointer = pointer!["nodes", place, "config"];
        let needs_threshold = map.join_strategy == JoinStrategy::SuccessCountThreshold;
        if needs_threshold && map.threshold.unwrap_or_default() == 0 {
            let message = "SUCCESS_COUNT_THRESHOLD needs a `threshold` of at least 1";
            self.report
                .fault(FaultCode::InvalidThreshold, &child(&pointer, "threshold"), message);
        }
        self.check_threshold_use(map.join_strategy, map.threshold, &child(&pointer, "threshold"));
        if map.concurrency == Some(0) {
            let message = "`concurrency` must be at least 1";
            self.report
                .fault(FaultCode::InvalidValue, &child(&pointer, "concurrency"), message);
        }
        let item_name = map.item_name.as_deref().unwrap_or(DEFAULT_NAME);
        if !is_name(item_name) {
            let message = format!("`{item_name}` cannot be the name of an item");
            self.report
                .fault(FaultCode::InvalidValue, &child(&pointer, "itemName"), message);
        }
        let variables = self.variable_names;
        self.context
            .check_variables(&map.assign, variables, &child(&pointer, "assign"), self.report);
        let timeout_ms = self.report.seconds(map.timeout, || child(&pointer, "timeout"));
        let most = map.most_items();
        let count = match &map.items {
            Value::Array(items) => Some(items.len()),
            Value::Object(fields) => Some(fields.len()),
            Value::String(_) => None,
            Value::Null | Value::Bool(_) | Value::Number(_) => {
                let message = format!("`items` is {}: expected a list, an object or an expression", map.items);
                self.report
                    .fault(FaultCode::InvalidValue, &child(&pointer, "items"), message);
                None
            }
        };
        if let Some(count) = count.filter(|count| *count > most as usize) {
            let message = format!("{count} items: at most {most} (`maxItems`)");
            self.report
                .fault(FaultCode::InvalidValue, &child(&pointer, "items"), message);
        }
        let items = self.snippets.input(&map.items, &child(&pointer, "items"), self.report);
        let input = map.input.as_ref().map(|input| {
            let pointer = child(&pointer, "input");
            let here = [item_name, ITEM_INDEX];
            self.snippets
                .over(&here, |snippets| snippets.input(input, &pointer, self.report))
        });
        NodeKind::Map(Box::new(MapNode {
            workflow_id: Arc::from(map.subgraph_id.as_str()),
            items,
            item_name: Arc::from(item_name),
            input,
            concurrency: map.concurrency,
            join: JoinRule {
                strategy: map.join_strategy,
                threshold: map.threshold.unwrap_or_default(),
                timeout_ms,
                main_path: 0,
                main_path_explicit: false,
                on_decided: map.on_decided,
                merge_variables: if map.assign.is_empty() {
                    MergeVariables::None
                } else {
                    MergeVariables::All
                },
            },
            conversation: map.conversation,
            assign: map.assign.iter().map(|name| Arc::from(name.as_str())).collect(),
            max_items: most,
        }))
    }
}
