//! Callers that wait until their input is durable.

use pirn_definition::error::RunError;

/// Called once an input is durable, or with the reason why it never will be.
pub(crate) type Acknowledge = Box<dyn FnOnce(Result<(), RunError>) + Send>;

/// Waiting callers, ordered by step.
#[derive(Default)]
pub(crate) struct Acknowledgements(Vec<(u64, Acknowledge)>);

impl Acknowledgements {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a caller that waits until the run is durable up to this step.
    pub(crate) fn wait(&mut self, step: u64, acknowledge: Acknowledge) {
        self.0.push((step, acknowledge));
    }

    /// Notifies the callers of all steps up to this one.
    pub(crate) fn kept(&mut self, step: u64) {
        // Callers wait for the current step, which never decreases, so the list is sorted.
        let first_later = self.0.partition_point(|(of, _)| *of <= step);
        for (_, acknowledge) in self.0.drain(..first_later) {
            acknowledge(Ok(()));
        }
    }

    /// Notifies all callers of the failure: no later step becomes durable in this process.
    pub(crate) fn lost(&mut self, error: &RunError) {
        for (_, acknowledge) in self.0.drain(..) {
            acknowledge(Err(error.clone()));
        }
    }
}
