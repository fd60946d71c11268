//! Conversion of a run's output to a type of the caller.

use pirn_definition::error::RunError;
use serde::Deserialize;
use serde_path_to_error::{Path, Segment};

use super::data::report::RunReport;
use crate::status::ThreadStatus;

/// Reason that an output cannot be converted.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum OutputError {
    /// The run did not complete, so it has no output.
    NotCompleted {
        /// Status of the run.
        status: ThreadStatus,
        /// Error of the run, if any.
        error: Option<RunError>,
    },
    /// The output does not have the expected form.
    Mismatch {
        /// JSON pointer to the mismatch; empty for the whole output.
        pointer: String,
        /// Found value and expected type: ``invalid type: string "9", expected u32``.
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
    /// Converts the output of a completed run to a type, which may borrow from the report.
    ///
    /// # Errors
    /// Returns an [`OutputError`] if the run did not complete or the output does not have the form of the type.
    pub fn output_as<'report, T: Deserialize<'report>>(&'report self) -> Result<T, OutputError> {
        // The output is null then, which some types accept: an `Option` would hide the failure.
        if self.status != ThreadStatus::Completed {
            return Err(OutputError::NotCompleted {
                status: self.status,
                error: self.error.clone(),
            });
        }
        serde_path_to_error::deserialize(&self.output).map_err(|error| OutputError::Mismatch {
            pointer: pointer_of(error.path()),
            // The outer error repeats the path, which `pointer` states.
            reason: error.inner().to_string(),
        })
    }
}

/// Converts a path to a JSON pointer.
fn pointer_of(path: &Path) -> String {
    path.iter()
        .map(|segment| match segment {
            Segment::Seq { index } => format!("/{index}"),
            // `~` first: the other replacement inserts it.
            Segment::Map { key } => format!("/{}", key.replace('~', "~0").replace('/', "~1")),
            // Not part of the JSON text.
            Segment::Enum { .. } | Segment::Unknown => String::new(),
        })
        .collect()
}
