//! The context of an actor of a run while it handles a message.

use std::rc::{Rc, Weak};

use pirn_core::run::{Effect, Message, RunMachine};
use pirn_definition::Millis;

use super::environment::ActorEnvironment;
use super::run_context::RunContext;

/// The queue of a run, for messages from code on its arbiter.
pub(crate) trait LocalInbox {
    /// Appends a message to the queue, and serves the queue.
    fn deliver(&self, message: Message);
}

/// The context of an actor's turn.
pub(crate) struct Turn<'a> {
    pub(crate) run: &'a Rc<RunContext>,
    pub(crate) machine: &'a mut RunMachine,
    pub(crate) inbox: &'a Weak<dyn LocalInbox>,
    pub(crate) now: Millis,
    pub(crate) effects: &'a mut Vec<Effect>,
}

impl Turn<'_> {
    /// Steps the run's machine with a message.
    pub(crate) fn step(&mut self, message: Message) {
        // Built for each step, because the listeners may change between two steps.
        let mut env = ActorEnvironment::of(self.run);
        self.machine.step(self.now, message, &mut env, self.effects);
    }

    /// Returns a callback that delivers a message, unless the run has ended. The reference is weak, so that timers do not extend
    /// the run's lifetime.
    pub(crate) fn later(&self, message: impl FnOnce() -> Message + 'static) -> impl FnOnce() + 'static {
        let inbox = Weak::clone(self.inbox);
        move || {
            if let Some(inbox) = inbox.upgrade() {
                inbox.deliver(message());
            }
        }
    }
}
