//! JOIN, and MAP, which joins its items.

use std::time::Duration;

use pirn_core::definition::{
    ItemConversation, JoinConfig, JoinStrategy, MapConfig, MergeVariables, NodeConfig, OnDecided,
};
use serde_json::Value;

use super::{Path, Step};

/// When a JOIN or a MAP succeeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinWhen {
    /// Every path completed.
    AllCompleted,
    /// One completed.
    AnyCompleted,
    /// Every path failed.
    AllFailed,
    /// One failed.
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

/// The settings of a JOIN.
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
    /// A JOIN without a time limit, which stops the rest once it is decided and takes the first path's conversation.
    pub fn when(when: JoinWhen) -> Self {
        let (join_strategy, threshold) = when.parts();
        let config = JoinConfig {
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

    /// The time after which it is `JOIN_TIMEOUT`.
    #[must_use]
    pub fn timeout(mut self, after: Duration) -> Self {
        self.config.timeout = Some(after.as_secs_f64());
        self
    }

    /// The path from which the conversation continues.
    #[must_use]
    pub fn main_path(mut self, path: Path<'f>) -> Self {
        self.main = Some(path);
        self
    }

    /// Lets the rest run on once it is decided.
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

/// MAP: a sub-workflow for each item of a list.
#[derive(Clone, Debug)]
pub struct MapItems(MapConfig);

impl MapItems {
    /// Runs the workflow of this id for each item: text is an expression, anything else is taken as it is.
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

    super::steps::setters! {
        /// The name that `input` has the item under (`item`).
        item_name: String,
        /// The sub-workflow's input, which sees the item and its `index` (the item).
        input: Value,
        /// Threads at once.
        concurrency: u32,
        /// Items at most (1000).
        max_items: u32,
    }

    /// When it succeeds (all completed).
    #[must_use]
    pub fn when(mut self, when: JoinWhen) -> Self {
        (self.0.join_strategy, self.0.threshold) = when.parts();
        self
    }

    /// The time after which it is `JOIN_TIMEOUT`.
    #[must_use]
    pub fn timeout(mut self, after: Duration) -> Self {
        self.0.timeout = Some(after.as_secs_f64());
        self
    }

    /// Lets the rest run on once it is decided.
    #[must_use]
    pub fn detach(mut self) -> Self {
        self.0.on_decided = OnDecided::Detach;
        self
    }

    /// The conversation of each item's thread (an empty one).
    #[must_use]
    pub fn conversation(mut self, conversation: ItemConversation) -> Self {
        self.0.conversation = conversation;
        self
    }

    /// A thread variable of the items' threads that comes back: several values become one by its `reduce`.
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
