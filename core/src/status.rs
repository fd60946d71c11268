//! Thread status.

use serde::{Deserialize, Serialize};

/// The status of a thread. The last four are final.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ThreadStatus {
    /// Made, not yet started.
    Created,
    /// Between its first node and its end.
    Running,
    /// Held at a safe point.
    Paused,
    /// Reached END, its JOIN, or CONTINUE_FROM_TRIGGER.
    Completed,
    /// Ended with an error.
    Failed,
    /// Stopped by someone.
    Cancelled,
    /// Stopped by its time limit.
    Timeout,
}

impl ThreadStatus {
    /// True if nothing can follow.
    pub fn is_final(self) -> bool {
        match self {
            Self::Created | Self::Running | Self::Paused => false,
            Self::Completed | Self::Failed | Self::Cancelled | Self::Timeout => true,
        }
    }

    /// True if `self -> next` is a legal change: CREATED to RUNNING (or straight to an end that comes before
    /// the start), RUNNING to PAUSED or an end, PAUSED to RUNNING, CANCELLED or TIMEOUT.
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
