//! The status of one path of a fork, as its join sees it.

use serde::{Deserialize, Serialize};

use crate::status::ThreadStatus;

/// The end of a path's thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum PathEnd {
    /// It reached the paired JOIN.
    Completed,
    /// It ended with an error, or could not be started.
    Failed,
    /// Its own time limit stopped it.
    Timeout,
    /// Someone stopped it. After the verdict that is usually the join itself.
    Cancelled,
}

impl PathEnd {
    /// The end a thread's status stands for; none while the thread can still go on.
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

/// A path as its join sees it. Frozen by the verdict: what a path does afterwards is not the join's business.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum PathStatus {
    /// Waits for its turn.
    Pending,
    /// Started, not ended.
    Running,
    /// Reached the JOIN before the verdict.
    Completed,
    /// Failed before the verdict.
    Failed,
    /// Stopped by its own time limit before the verdict.
    Timeout,
    /// Stopped before the verdict, by someone else than this join. It counts as failed.
    Cancelled,
    /// Was running at the verdict and is cancelled by it.
    Stopped,
    /// Was never started; the verdict came first.
    Skipped,
    /// Was running at the verdict and runs on, its result ignored (`onDecided: detach`).
    Detached,
}

impl PathStatus {
    /// The thread status that outputs and errors show. A path that its join stopped or never started is
    /// CANCELLED, like one that someone else stopped.
    pub fn thread_status(self) -> ThreadStatus {
        match self {
            Self::Pending => ThreadStatus::Created,
            Self::Running | Self::Detached => ThreadStatus::Running,
            Self::Completed => ThreadStatus::Completed,
            Self::Failed => ThreadStatus::Failed,
            Self::Timeout => ThreadStatus::Timeout,
            Self::Cancelled | Self::Stopped | Self::Skipped => ThreadStatus::Cancelled,
        }
    }

    /// True if it counts as failed: FAILED, TIMEOUT, or cancelled by someone else.
    pub fn counts_as_failed(self) -> bool {
        match self {
            Self::Failed | Self::Timeout | Self::Cancelled => true,
            Self::Pending | Self::Running | Self::Completed | Self::Stopped | Self::Skipped | Self::Detached => false,
        }
    }

    /// True if the join itself cancelled it, running or not.
    pub fn cancelled_by_join(self) -> bool {
        match self {
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
