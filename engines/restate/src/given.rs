//! Mail of a process: runs that it has from then on, with what it needs to go on with them, and questions.

use serde::{Deserialize, Serialize};

use crate::head::Head;
use crate::wire::{GivenText, KeptRecord, NotClaimed};

/// A run that a process has claimed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Given {
    pub(crate) run: String,
    pub(crate) epoch: u64,
    /// None: there is much of it, which is read where it lies.
    pub(crate) kept: Option<KeptRun>,
}

/// All of a run, where that is little.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct KeptRun {
    pub(crate) head: Head,
    pub(crate) names: Vec<String>,
    pub(crate) records: Vec<KeptRecord>,
    /// The small ones of the texts that it started from.
    pub(crate) texts: Vec<GivenText>,
}

pub(crate) type ClaimReply = Result<Box<Given>, NotClaimed>;

/// Something for a process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Mail {
    /// A run that nobody carried, and that the process has now.
    Run(Box<Given>),
    /// In place of a run that has ended by now, or is carried.
    Nothing,
    /// Something that a run of the process is told.
    Tell { promise: String, run: String, body: String },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Numbered {
    pub(crate) number: u64,
    pub(crate) mail: Mail,
}
