//! Journal records.

/// External input of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Time at which the run received the input, in milliseconds since 1970.
    pub at: u64,
    /// Effect that had this outcome.
    pub effect: Option<String>,
    /// Input as JSON of the run's machine.
    pub body: String,
}

impl Record {
    /// Creates a record that is not the outcome of an effect.
    pub fn new(at: u64, body: impl Into<String>) -> Self {
        Self {
            at,
            effect: None,
            body: body.into(),
        }
    }

    /// Sets the effect that had this outcome.
    #[must_use]
    pub fn effect(mut self, id: impl Into<String>) -> Self {
        self.effect = Some(id.into());
        self
    }
}
