//! The key of a trigger in the machine, and the place it stands at.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Names a trigger in the machine.
pub type TriggerKey = u32;

/// The place of a trigger.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Owner {
    /// Outside a workflow: it watches every run.
    Engine,
    /// In this workflow: it watches that workflow's threads.
    Workflow(Arc<str>),
}
