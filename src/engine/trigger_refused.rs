//! Error of a trigger that the engine does not add.

use std::fmt;

/// The engine did not add a trigger: its id is in use, its schedule is invalid, or the engine has stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TriggerRefused(pub(super) String);

impl fmt::Display for TriggerRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for TriggerRefused {}
