//! Checks and compiles FORK and JOIN nodes separately; `pairing` checks that they match.

use std::sync::Arc;

use serde_json::json;

use super::compiler::NodeCompiler;
use crate::definition::json::Step;
use crate::definition::{FaultCode, ForkConfig, JoinConfig, JoinStrategy, NodeConfig, pointer_token};
use crate::graph::diagnostics::pointer;
use crate::graph::model::{Fork, ForkPath, JoinRule, NodeIx};

impl NodeCompiler<'_, '_> {
    pub(super) fn fork(&mut self, place: usize, fork: &ForkConfig, join: NodeIx) -> Option<Fork> {
        let NodeConfig::Join(rule) = &self.definition.nodes[join as usize].config else {
            return None;
        };
        let fork_id = &self.definition.nodes[place].id;
        let paths = fork
            .fork_path_ids
            .iter()
            .zip(&fork.child_node_ids)
            .filter_map(|(id, child)| {
                Some(ForkPath {
                    id: Arc::from(id.as_str()),
                    global_id: global_id(&self.definition.id, fork_id, id),
                    child: self.adjacency.find(child)?,
                })
            })
            .collect();
        let main_path = match &rule.main_path_id {
            Some(id) => fork
                .fork_path_ids
                .iter()
                .position(|path| path == id)
                .unwrap_or_default(),
            None => 0,
        };
        let timeout = rule.timeout.filter(|seconds| *seconds > 0.0 && seconds.is_finite());
        Some(Fork {
            fork_node: place as NodeIx,
            join_node: join,
            paths,
            strategy: fork.fork_strategy,
            join: JoinRule {
                strategy: rule.join_strategy,
                threshold: rule.threshold.unwrap_or_default(),
                timeout_ms: timeout.map(|seconds| ((seconds * 1000.0).round() as u64).max(1)),
                main_path,
                main_path_explicit: rule.main_path_id.is_some(),
                on_decided: rule.on_decided,
                merge_variables: rule.merge_variables,
            },
        })
    }

    pub(super) fn check_join(&mut self, place: usize, join: &JoinConfig) {
        let pointer = |key: &str| pointer!["nodes", place, "config", key];
        let count = join.fork_path_ids.len();
        let is_whole = !self.report.origin.is_incomplete(&pointer("forkPathIds"));
        // The paths of a legacy JOIN are those of its FORK.
        if count == 0 && !self.report.origin.holes().transitions {
            let message = "a JOIN needs the path ids of its FORK".to_owned();
            let mut forks = self.definition.nodes.iter().filter_map(|node| node.config.as_fork());
            let ids = forks.find(|fork| !fork.fork_path_ids.is_empty());
            let ids = ids.map_or_else(|| json!(["left", "right"]), |fork| json!(fork.fork_path_ids));
            let help = format!("copy them from the FORK: `\"forkPathIds\": {ids}`");
            self.report
                .fault_with_help(FaultCode::InvalidForkPathIds, &pointer("forkPathIds"), message, &help);
        }
        if let Some(main) = &join.main_path_id
            && !join.fork_path_ids.contains(main)
            && count > 0
            && is_whole
        {
            let message = format!(
                "`{main}` is not one of this JOIN\'s paths [{}]",
                join.fork_path_ids.join(", ")
            );
            let known = join.fork_path_ids.iter().map(String::as_str);
            self.report.unknown(
                FaultCode::MainPathIdNotFound,
                &pointer("mainPathId"),
                message,
                main,
                known,
            );
        }
        if join.join_strategy == JoinStrategy::SuccessCountThreshold && count > 0 {
            let message = match join.threshold {
                Some(threshold) if threshold >= 1 && threshold as usize <= count => None,
                Some(threshold) => Some(format!(
                    "{threshold} of {count} paths: the threshold is from 1 to {count}"
                )),
                None => Some(format!("SUCCESS_COUNT_THRESHOLD needs a `threshold` from 1 to {count}")),
            };
            if let Some(message) = message {
                self.report
                    .fault(FaultCode::InvalidThreshold, &pointer("threshold"), message);
            }
        }
        self.check_threshold_use(join.join_strategy, join.threshold, &pointer("threshold"));
        self.report.seconds(join.timeout, || pointer("timeout"));
    }

    /// Warns about a threshold that the strategy ignores.
    pub(super) fn check_threshold_use(&mut self, strategy: JoinStrategy, threshold: Option<u32>, pointer: &[Step]) {
        if threshold.is_some() && strategy != JoinStrategy::SuccessCountThreshold {
            let message = format!("`threshold` is ignored by the strategy {}", strategy.as_str());
            let help = "remove it, or write `\"joinStrategy\": \"SUCCESS_COUNT_THRESHOLD\"`";
            self.report
                .warn_with_help(FaultCode::InvalidThreshold, pointer, message, help);
        }
    }
}

/// Returns `workflow/fork-node/path`, with `~` and `/` in an id escaped as in a JSON pointer, so that the result is unique.
fn global_id(workflow: &str, fork: &str, path: &str) -> Arc<str> {
    let escaped = [workflow, fork, path].map(pointer_token);
    Arc::from(escaped.join("/"))
}
