//! Status of one path of a fork, from the view of its join.

use serde::{Deserialize, Serialize};

use crate::status::ThreadStatus;

/// The end of a path's thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum PathEnd {
    /// The thread reached the paired JOIN.
    Completed,
    /// The thread ended with an error, or could not be started.
    Failed,
    /// The thread exceeded its time limit.
    Timeout,
    /// The thread was cancelled. After the verdict that is usually done by the join itself.
    Cancelled,
}

impl PathEnd {
    /// Returns the end for a thread's status; `None` if the thread has not ended.
    pub fn of_thread(status: ThreadStatus) -> Option<Self> {
        match status {
            ThreadStatus::Created | ThreadStatus::Running | ThreadStatus::Paused => None,
            ThreadStatus::Completed => Some(Self::Completed),
            ThreadStatus::Failed => Some(Self::Failed),
            ThreadStatus::Timeout => Some(Self::Timeout),
            ThreadStatus::Cancelled => Some(Self::Cancelled),
        }
    }
}

/// Status of a path from the view of its join. The verdict freezes it: later ends of the path are ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum PathStatus {
    /// The path is not started.
    Pending,
    /// The path was started and has not ended.
    Running,
    /// Reached the JOIN before the verdict.
    Completed,
    /// Failed before the verdict.
    Failed,
    /// Exceeded its time limit before the verdict.
    Timeout,
    /// Cancelled before the verdict, but not by this join. Counts as failed.
    Cancelled,
    /// Was running at the verdict and is cancelled by it.
    Stopped,
    /// Was never started; the verdict came first.
    Skipped,
    /// Was running at the verdict and continues, its result ignored (`onDecided: detach`).
    Detached,
}

impl PathStatus {
    /// Returns the thread status for outputs and errors. A path that its join cancelled or never started is CANCELLED, like one
    /// that was cancelled from outside.
    pub fn thread_status(self) -> ThreadStatus {
        match self {
            Self::Pending => ThreadStatus::Created,
            // The status at the verdict: a detached thread may have ended since.
            Self::Running | Self::Detached => ThreadStatus::Running,
            Self::Completed => ThreadStatus::Completed,
            Self::Failed => ThreadStatus::Failed,
            Self::Timeout => ThreadStatus::Timeout,
            Self::Cancelled | Self::Stopped | Self::Skipped => ThreadStatus::Cancelled,
        }
    }

    /// True if the path counts as failed: FAILED, TIMEOUT, or cancelled from outside.
    pub fn counts_as_failed(self) -> bool {
        match self {
            // A cancel by the join itself is excluded: it follows from the verdict and cannot be a reason for it.
            Self::Failed | Self::Timeout | Self::Cancelled => true,
            Self::Pending | Self::Running | Self::Completed | Self::Stopped | Self::Skipped | Self::Detached => false,
        }
    }

    /// True if the join itself cancelled the path, whether it was running or not.
    pub fn cancelled_by_join(self) -> bool {
        match self {
            // `Cancelled` is excluded: that cancel came from outside.
            Self::Stopped | Self::Skipped => true,
            Self::Pending
            | Self::Running
            | Self::Completed
            | Self::Failed
            | Self::Timeout
            | Self::Cancelled
            | Self::Detached => false,
        }
    }
}

impl From<PathEnd> for PathStatus {
    fn from(end: PathEnd) -> Self {
        match end {
            PathEnd::Completed => Self::Completed,
            PathEnd::Failed => Self::Failed,
            PathEnd::Timeout => Self::Timeout,
            PathEnd::Cancelled => Self::Cancelled,
        }
    }
}
