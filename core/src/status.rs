//! Status of a thread.

use serde::{Deserialize, Serialize};

/// Status of a thread. The last four are final.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ThreadStatus {
    /// Created, not started.
    Created,
    /// Executing nodes, or waiting inside one.
    Running,
    /// Paused at a safe point.
    Paused,
    /// Reached END, its JOIN, or CONTINUE_FROM_TRIGGER.
    Completed,
    /// Ended with an error.
    Failed,
    /// Cancelled by a person, a trigger, its parent or the engine.
    Cancelled,
    /// Exceeded its time limit.
    Timeout,
}

impl ThreadStatus {
    /// True if no other status can follow.
    pub fn is_final(self) -> bool {
        match self {
            Self::Created | Self::Running | Self::Paused => false,
            Self::Completed | Self::Failed | Self::Cancelled | Self::Timeout => true,
        }
    }

    /// True if `self -> next` is a legal transition: CREATED to RUNNING, CANCELLED or FAILED (if the thread ends before its start);
    /// RUNNING to PAUSED or a final status; PAUSED to RUNNING, CANCELLED or TIMEOUT.
    pub fn may_become(self, next: Self) -> bool {
        match self {
            Self::Created => matches!(next, Self::Running | Self::Cancelled | Self::Failed),
            Self::Running => next == Self::Paused || next.is_final(),
            Self::Paused => matches!(next, Self::Running | Self::Cancelled | Self::Timeout),
            Self::Completed | Self::Failed | Self::Cancelled | Self::Timeout => false,
        }
    }

    /// The upper-case word used in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Created => "CREATED",
            Self::Running => "RUNNING",
            Self::Paused => "PAUSED",
            Self::Completed => "COMPLETED",
            Self::Failed => "FAILED",
            Self::Cancelled => "CANCELLED",
            Self::Timeout => "TIMEOUT",
        }
    }
}
