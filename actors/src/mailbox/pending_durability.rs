//! State of a durable run that waits for the journal: held-back effects, callers, and a requested end in this process.

use pirn_core::run::{Effect, Outbox};
use pirn_definition::Millis;
use pirn_definition::error::RunError;

use crate::acknowledgements::{Acknowledge, Acknowledgements};
use crate::host::TimerHandle;
use crate::protocol::supervisor::SupervisorMsg;

/// Effects and callers that wait for the journal.
#[derive(Default)]
pub(crate) struct PendingDurability {
    effects: Outbox,
    /// Callers that sent an input.
    acknowledgements: Acknowledgements,
    /// Last step for which a journal write was requested.
    asked: Option<u64>,
    /// The run is new, and its start was not requested to be written yet.
    pub(crate) is_unwritten: bool,
    /// Timer that parks the run after its quiet period.
    pub(crate) parking: Option<TimerHandle>,
    /// Messages for a run that ends in this process as soon as no commit is in flight. None if no end was requested.
    leaving: Option<Vec<SupervisorMsg>>,
}

impl PendingDurability {
    /// State of a run that is durable up to this step.
    pub(crate) fn after(step: u64) -> Self {
        Self {
            effects: Outbox::after(step),
            ..Self::default()
        }
    }

    /// Records a request to write the steps up to this one. Returns false if nothing waits for them, or if it was requested
    /// before.
    pub(crate) fn asks(&mut self, step: u64) -> bool {
        if !self.is_awaited() {
            return false;
        }
        self.is_unwritten = false;
        self.asked.replace(step) != Some(step)
    }

    /// True if nothing waits and the run is durable up to this step.
    pub(crate) fn is_kept(&self, step: u64) -> bool {
        !self.is_awaited() && self.effects.is_durable(step)
    }

    /// True if an effect or a caller waits for the journal.
    pub(crate) fn is_awaited(&self) -> bool {
        self.effects.waits() || !self.acknowledgements.is_empty()
    }

    /// Requests the end of the run in this process once no commit is in flight. Returns false if none is in flight now, and none is
    /// needed for the start of the run.
    pub(crate) fn leave(&mut self) -> bool {
        let is_under_way = self.is_being_kept() || self.is_unwritten;
        if is_under_way {
            // A repeated request must not discard the messages that wait since the first.
            self.leaving.get_or_insert_default();
        }
        is_under_way
    }

    /// Queues a message for a run that is about to end in this process. Returns a message that is still handled.
    pub(crate) fn hold_back(&mut self, message: SupervisorMsg) -> Option<SupervisorMsg> {
        let Some(later) = &mut self.leaving else {
            return Some(message);
        };
        match message {
            // These change no state that must be stored.
            SupervisorMsg::Begin
            | SupervisorMsg::Over
            | SupervisorMsg::Lost(_)
            | SupervisorMsg::Closing
            | SupervisorMsg::Kept { .. }
            | SupervisorMsg::Subscribe { .. } => Some(message),
            // The commit in flight may contain the inputs that this caller waits for, unless a later input was queued.
            SupervisorMsg::AwaitKept(_) if later.is_empty() => Some(message),
            message => {
                later.push(message);
                None
            }
        }
    }

    /// True if the run is about to end in this process.
    pub(crate) fn is_leaving(&self) -> bool {
        self.leaving.is_some()
    }

    /// True if the effects that may now run include the end of the run.
    pub(crate) fn settles(&self) -> bool {
        self.effects.settles()
    }

    /// True if the run must end in this process now: no commit is in flight, and the last one did not end the run.
    pub(crate) fn is_left(&self) -> bool {
        self.is_leaving() && !self.is_being_kept() && !self.settles()
    }

    /// Removes the messages that arrived after the end in this process was requested.
    pub(crate) fn take_later(&mut self) -> Vec<SupervisorMsg> {
        self.leaving.take().unwrap_or_default()
    }

    /// True if a commit is in flight.
    fn is_being_kept(&self) -> bool {
        self.asked.is_some_and(|step| !self.effects.is_durable(step))
    }

    /// Queues an effect that follows from the inputs up to `step`. Returns it if it need not wait.
    pub(crate) fn pass(&mut self, step: u64, at: Millis, effect: Effect) -> Option<Effect> {
        self.effects.pass(step, at, effect)
    }

    /// Calls `acknowledge` once the run is durable up to `step`.
    pub(crate) fn acknowledge(&mut self, step: u64, acknowledge: Acknowledge) {
        // No later write would notify a caller of a step that is durable already.
        if self.effects.is_durable(step) {
            acknowledge(Ok(()));
        } else {
            self.acknowledgements.wait(step, acknowledge);
        }
    }

    /// Marks the run as durable up to `step`. Callers are notified before the released effects run: an effect may end the run,
    /// and an ended run notifies no one.
    pub(crate) fn kept(&mut self, step: u64) {
        self.effects.durable(step);
        self.acknowledgements.kept(step);
    }

    /// Returns the next effect that need not wait, with the time of its input.
    pub(crate) fn release(&mut self, now: Millis) -> Option<(Millis, Effect)> {
        self.effects.release(now)
    }

    /// Discards the effects and notifies the callers of the failure: no later step becomes durable in this process.
    pub(crate) fn lost(&mut self, error: &RunError) {
        self.acknowledgements.lost(error);
        self.effects.clear();
    }
}
