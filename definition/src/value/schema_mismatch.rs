//! Error of a value that does not fit a JSON Schema.

/// A value does not fit a JSON Schema, or the schema is invalid.
///
/// The validator is chosen by the embedding layer, so the reason is a sentence and not one of its errors.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct SchemaMismatch {
    /// Explanation, one sentence.
    pub reason: String,
}

impl SchemaMismatch {
    /// Creates the error from its explanation.
    pub fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into() }
    }
}
