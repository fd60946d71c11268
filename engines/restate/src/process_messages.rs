//! Messages to a process: runs assigned to it, with the state needed to resume them, and inputs for its runs.

use serde::{Deserialize, Serialize};

use crate::head::Head;
use crate::wire::{CommitContent, JournalRecord, NotClaimed};

/// A run that a process has claimed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ClaimedRun {
    pub(crate) run: String,
    pub(crate) epoch: u64,
    /// State of the run; none if it is large, and is then read from the server.
    pub(crate) kept: Option<RunSnapshot>,
}

/// Complete state of a small run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct RunSnapshot {
    pub(crate) head: Head,
    pub(crate) names: Vec<String>,
    pub(crate) records: Vec<JournalRecord>,
    /// Small contents of the run's first commit.
    pub(crate) texts: Vec<CommitContent>,
}

pub(crate) type ClaimReply = Result<Box<ClaimedRun>, NotClaimed>;

/// Message to a process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum ProcessMessage {
    /// Run without an owner, now claimed by the process.
    Run(Box<ClaimedRun>),
    /// Sent instead of a run that has ended or has an owner.
    Nothing,
    /// Input for a run of the process.
    Tell { promise: String, run: String, body: String },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct NumberedMessage {
    pub(crate) number: u64,
    pub(crate) mail: ProcessMessage,
}
