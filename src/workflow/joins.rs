//! Builders of JOIN, and of MAP, which joins the threads of its items.

use std::time::Duration;

use pirn_definition::definition::{
    ItemConversation, JoinConfig, JoinStrategy, MapConfig, MergeVariables, NodeConfig, OnDecided,
};
use serde_json::Value;

use super::{Path, Step, limit_seconds};

/// Condition under which a JOIN or a MAP succeeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinWhen {
    /// Every path has completed.
    AllCompleted,
    /// At least one path has completed.
    AnyCompleted,
    /// Every path has failed.
    AllFailed,
    /// At least one path has failed.
    AnyFailed,
    /// At least N completed paths; N is at least 1 and at most the number of paths.
    AtLeast(u32),
}

impl JoinWhen {
    fn parts(self) -> (JoinStrategy, Option<u32>) {
        match self {
            Self::AllCompleted => (JoinStrategy::AllCompleted, None),
            Self::AnyCompleted => (JoinStrategy::AnyCompleted, None),
            Self::AllFailed => (JoinStrategy::AllFailed, None),
            Self::AnyFailed => (JoinStrategy::AnyFailed, None),
            Self::AtLeast(threshold) => (JoinStrategy::SuccessCountThreshold, Some(threshold)),
        }
    }
}

/// Settings of a JOIN.
#[derive(Clone, Debug)]
pub struct Join<'f> {
    pub(super) config: JoinConfig,
    pub(super) main: Option<Path<'f>>,
}

impl From<JoinWhen> for Join<'_> {
    fn from(when: JoinWhen) -> Self {
        Self::when(when)
    }
}

impl<'f> Join<'f> {
    /// Creates a JOIN without a time limit. After the decision it stops the remaining paths, and the conversation is that of the
    /// first path.
    pub fn when(when: JoinWhen) -> Self {
        let (join_strategy, threshold) = when.parts();
        let config = JoinConfig {
            // `WorkflowBuilder::join` copies the ids from the fork.
            fork_path_ids: Vec::new(),
            join_strategy,
            threshold,
            timeout: None,
            main_path_id: None,
            on_decided: OnDecided::Cancel,
            merge_variables: MergeVariables::None,
        };
        Self { config, main: None }
    }

    /// Sets the time after which the JOIN fails with `JOIN_TIMEOUT`.
    #[must_use]
    pub fn timeout(mut self, after: Duration) -> Self {
        self.config.timeout = Some(limit_seconds(after));
        self
    }

    /// The path from which the conversation continues.
    #[must_use]
    pub fn main_path(mut self, path: Path<'f>) -> Self {
        self.main = Some(path);
        self
    }

    /// Lets the remaining paths continue after the decision.
    #[must_use]
    pub fn detach(mut self) -> Self {
        self.config.on_decided = OnDecided::Detach;
        self
    }

    /// The paths from which variables are merged.
    #[must_use]
    pub fn merge_variables(mut self, which: MergeVariables) -> Self {
        self.config.merge_variables = which;
        self
    }
}

/// MAP: executes a sub-workflow for each item of a list.
#[derive(Clone, Debug)]
pub struct MapItems(MapConfig);

impl MapItems {
    /// Executes the workflow of this id for each item. A string is evaluated as an expression; other values are used directly.
    pub fn of(items: impl Into<Value>, workflow_id: impl Into<String>) -> Self {
        Self(MapConfig {
            items: items.into(),
            subgraph_id: workflow_id.into(),
            item_name: None,
            input: None,
            concurrency: None,
            join_strategy: JoinStrategy::default(),
            threshold: None,
            timeout: None,
            on_decided: OnDecided::default(),
            conversation: ItemConversation::default(),
            assign: Vec::new(),
            max_items: None,
        })
    }

    super::steps::value_setters! {
        /// Input of the sub-workflow, which can use the item and its `index` (default: the item).
        input,
    }

    super::steps::setters! {
        /// Name of the item in `input` (default `item`).
        item_name: String,
        /// Maximum number of concurrent threads.
        concurrency: u32,
        /// Maximum number of items (default 1000).
        max_items: u32,
    }

    /// Sets the condition of success (default: all completed).
    #[must_use]
    pub fn when(mut self, when: JoinWhen) -> Self {
        (self.0.join_strategy, self.0.threshold) = when.parts();
        self
    }

    /// Sets the time after which the MAP fails with `JOIN_TIMEOUT`.
    #[must_use]
    pub fn timeout(mut self, after: Duration) -> Self {
        self.0.timeout = Some(limit_seconds(after));
        self
    }

    /// Lets the remaining items continue after the decision.
    #[must_use]
    pub fn detach(mut self) -> Self {
        self.0.on_decided = OnDecided::Detach;
        self
    }

    /// Sets the initial conversation of each item's thread (default: empty).
    #[must_use]
    pub fn conversation(mut self, conversation: ItemConversation) -> Self {
        self.0.conversation = conversation;
        self
    }

    /// Merges a variable of the items' threads into the thread; its `reduce` combines several values.
    #[must_use]
    pub fn assign(mut self, variable: impl Into<String>) -> Self {
        self.0.assign.push(variable.into());
        self
    }
}

impl From<MapItems> for Step {
    fn from(map: MapItems) -> Self {
        Self(NodeConfig::Map(map.0))
    }
}
