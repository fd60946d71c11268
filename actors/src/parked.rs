//! A run whose machine has left memory: it has been quiet for long, and waits for people, events or timers alone.
//!
//! 1. Its actors stay, with the timers and waits that they hold. So nothing is begun again when the machine comes back, and
//!    nobody who listens to the run, waits for it or holds it notices.
//! 2. The first thing that its machine is to hear has that made again, from the run's journal. Until then all of it waits, and
//!    is heard in the order told.
//! 3. Where it can not be made again the run ends here, for this process, and stands in its store as it did.

use std::rc::Rc;

use pirn_core::error::{RunError, RunErrorCode};
use pirn_core::run::Control;

use crate::protocol::supervisor::SupervisorMsg;
use crate::run_context::RunContext;
use crate::supervisor::SupervisorActor;
use crate::thread::ThreadActor;

/// See the module.
pub(crate) struct Parked {
    pub(crate) supervisor: SupervisorActor,
    pub(crate) threads: Vec<Option<Box<ThreadActor>>>,
    /// Messages for the machine when it is back; it is being made again where there are any.
    told: Vec<SupervisorMsg>,
}

impl Parked {
    pub(crate) fn new(supervisor: SupervisorActor, mut threads: Vec<Option<Box<ThreadActor>>>) -> Self {
        threads.shrink_to_fit();
        Self {
            supervisor,
            threads,
            told: Vec::new(),
        }
    }

    /// Hears a message, or keeps it for the machine.
    pub(crate) fn hear(&mut self, message: SupervisorMsg, run: &Rc<RunContext>) {
        if self.supervisor.is_over() {
            return message.refuse(None);
        }
        match message {
            SupervisorMsg::Subscribe { mask, deliver } => run.subscribe(mask, 0, deliver),
            // It leaves memory only when all that it was told is kept.
            SupervisorMsg::AwaitKept(kept) if self.told.is_empty() => kept(Ok(())),
            SupervisorMsg::Control(Control::Shutdown) => self.stop(shut_down(), run),
            SupervisorMsg::Closing => {
                run.close();
                if run.is_to_leave() && self.told.is_empty() {
                    self.stop(shut_down(), run);
                }
            }
            message => {
                self.told.push(message);
                if self.told.len() == 1 {
                    run.wake();
                }
            }
        }
    }

    /// The messages that wait for the machine.
    pub(crate) fn take_told(&mut self) -> Vec<SupervisorMsg> {
        std::mem::take(&mut self.told)
    }

    /// The run ends here, for this process.
    pub(crate) fn stop(&mut self, error: RunError, run: &Rc<RunContext>) {
        for message in self.take_told() {
            message.refuse(Some(&error));
        }
        self.threads.clear();
        self.supervisor.stop(error, run);
    }
}

/// The end of a durable run in this process: it goes on in another, and what it was told stands as it does.
pub(crate) fn shut_down() -> RunError {
    let message = "the engine shuts down: the run is kept, and can be resumed";
    RunError::new(RunErrorCode::Cancelled, message)
}
