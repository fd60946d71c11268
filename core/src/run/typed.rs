//! The output of a run as a type of the caller's.

use serde::Deserialize;

use super::report::RunReport;
use crate::conversation::pointer_of;
use crate::error::RunError;
use crate::status::ThreadStatus;

/// Why a run has no output of a type.
#[derive(Clone, Debug, PartialEq)]
pub enum OutputError {
    /// The run did not complete, so it has no output.
    NotCompleted {
        /// The status it has instead.
        status: ThreadStatus,
        /// The reason, where there is one.
        error: Option<RunError>,
    },
    /// The output is another.
    Mismatch {
        /// The place in the output, as a JSON pointer; empty: the whole.
        pointer: String,
        /// The value found and the type expected: ``invalid type: string "9", expected u32``.
        reason: String,
    },
}

impl std::fmt::Display for OutputError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotCompleted { status, error: None } => write!(f, "the run did not complete: {}", status.as_str()),
            Self::NotCompleted {
                status,
                error: Some(error),
            } => write!(f, "the run did not complete: {}: {error}", status.as_str()),
            Self::Mismatch { pointer, reason } if pointer.is_empty() => write!(f, "the run's output: {reason}"),
            Self::Mismatch { pointer, reason } => write!(f, "the run's output at {pointer}: {reason}"),
        }
    }
}

impl std::error::Error for OutputError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::NotCompleted { error, .. } => error.as_ref().map(|error| error as &dyn std::error::Error),
            Self::Mismatch { .. } => None,
        }
    }
}

impl RunReport {
    /// The output of a completed run as a type, which may borrow its texts.
    ///
    /// # Errors
    /// [`OutputError`]: the run did not complete, or its output is not of that form; then where, and what was expected.
    pub fn output_as<'report, T: Deserialize<'report>>(&'report self) -> Result<T, OutputError> {
        if self.status != ThreadStatus::Completed {
            return Err(OutputError::NotCompleted {
                status: self.status,
                error: self.error.clone(),
            });
        }
        serde_path_to_error::deserialize(&self.output).map_err(|error| OutputError::Mismatch {
            pointer: pointer_of(error.path()),
            reason: error.inner().to_string(),
        })
    }
}
