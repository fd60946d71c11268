//! One step of a journal.

/// Something that came from outside to a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The time the run was told, in milliseconds since 1970.
    pub at: u64,
    /// The effect that it is the outcome of.
    pub effect: Option<String>,
    /// JSON, as the run's machine reads it.
    pub body: String,
}

impl Record {
    /// A record that is no effect's outcome.
    pub fn new(at: u64, body: impl Into<String>) -> Self {
        Self {
            at,
            effect: None,
            body: body.into(),
        }
    }

    /// Names the effect that this is the outcome of.
    #[must_use]
    pub fn effect(mut self, id: impl Into<String>) -> Self {
        self.effect = Some(id.into());
        self
    }
}
