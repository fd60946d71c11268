//! Error of an export that could not start.

use std::fmt;

/// The export of spans or metrics did not start. The message states which option is invalid, or why the thread did not start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartError(String);

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for StartError {}

impl From<String> for StartError {
    fn from(message: String) -> Self {
        Self(message)
    }
}
