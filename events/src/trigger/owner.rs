//! Keys and owners of triggers.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Key of a trigger in the machine.
pub type TriggerKey = u32;

/// Owner of a trigger.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Owner {
    /// Defined outside of workflows: the trigger watches every run.
    Engine,
    /// Defined in this workflow: the trigger watches the workflow's threads.
    Workflow(Arc<str>),
}
