//! The callers that wait until what they told a run is durable.

use pirn_core::error::RunError;

/// Hears that what was told is durable, or why it may not be.
pub(crate) type Acknowledge = Box<dyn FnOnce(Result<(), RunError>) + Send>;

/// In the order of their steps.
#[derive(Default)]
pub(crate) struct Acknowledgements(Vec<(u64, Acknowledge)>);

impl Acknowledgements {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// To be told once the run is durable up to this step.
    pub(crate) fn wait(&mut self, step: u64, acknowledge: Acknowledge) {
        self.0.push((step, acknowledge));
    }

    /// The run is durable up to this step.
    pub(crate) fn kept(&mut self, step: u64) {
        let first_later = self.0.partition_point(|(of, _)| *of <= step);
        for (_, acknowledge) in self.0.drain(..first_later) {
            acknowledge(Ok(()));
        }
    }

    /// Nothing more of the run becomes durable in this process.
    pub(crate) fn lost(&mut self, error: &RunError) {
        for (_, acknowledge) in self.0.drain(..) {
            acknowledge(Err(error.clone()));
        }
    }
}
