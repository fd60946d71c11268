//! Parked runs: a durable run that has waited for long for people, events or timers only, and whose machine was dropped from
//! memory.
//!
//! 1. The actors stay, with their timers and waits. Rebuilding the machine restarts nothing, and subscribers and callers notice
//!    no difference.
//! 2. The first message for the machine starts its reconstruction from the journal. Messages wait until then and are delivered in
//!    FIFO order.
//! 3. If the machine cannot be rebuilt, the run ends in this process. Its stored state is unchanged.

use std::rc::Rc;

use pirn_core::run::Control;
use pirn_definition::error::{RunError, RunErrorCode};

use crate::protocol::supervisor::SupervisorMsg;
use crate::run::run_context::RunContext;
use crate::supervisor::SupervisorActor;
use crate::thread::ThreadActor;

/// A run without its machine; see the module.
pub(crate) struct ParkedRun {
    pub(crate) supervisor: SupervisorActor,
    pub(crate) threads: Vec<Option<Box<ThreadActor>>>,
    /// Messages for the machine. The machine is being rebuilt if there are any.
    waiting: Vec<SupervisorMsg>,
}

impl ParkedRun {
    pub(crate) fn new(supervisor: SupervisorActor, mut threads: Vec<Option<Box<ThreadActor>>>) -> Self {
        // There may be many parked runs, so spare capacity is released.
        threads.shrink_to_fit();
        Self {
            supervisor,
            threads,
            waiting: Vec::new(),
        }
    }

    /// Handles a message, or queues it for the machine.
    pub(crate) fn receive(&mut self, message: SupervisorMsg, run: &Rc<RunContext>) {
        if self.supervisor.is_over() {
            return message.refuse(None);
        }
        match message {
            SupervisorMsg::Subscribe { mask, deliver } => run.subscribe(mask, 0, deliver),
            // Needs no machine: a reload must not wake every parked run.
            SupervisorMsg::KeepTriggers(workflow) => run.keep_triggers(Some(&workflow)),
            // A run is parked only after all of its inputs are durable.
            SupervisorMsg::AwaitKept(kept) if self.waiting.is_empty() => kept(Ok(())),
            SupervisorMsg::Control(Control::Shutdown) => self.stop(shut_down(), run),
            SupervisorMsg::Closing => {
                run.close();
                // A run is not parked while it waits for its session.
                if run.is_to_leave(|| false) && self.waiting.is_empty() {
                    self.stop(shut_down(), run);
                }
            }
            message => {
                // Only the first message starts the reconstruction; its result delivers them all.
                self.waiting.push(message);
                if self.waiting.len() == 1 {
                    run.wake();
                }
            }
        }
    }

    /// Removes the queued messages.
    pub(crate) fn take_waiting(&mut self) -> Vec<SupervisorMsg> {
        std::mem::take(&mut self.waiting)
    }

    /// Ends the run in this process.
    pub(crate) fn stop(&mut self, error: RunError, run: &Rc<RunContext>) {
        for message in self.take_waiting() {
            message.refuse(Some(&error));
        }
        self.threads.clear();
        self.supervisor.stop(error, run);
    }
}

/// Outcome of a durable run in a process that shuts down. The stored run can be resumed elsewhere.
pub(crate) fn shut_down() -> RunError {
    let message = "the engine shuts down: the run is stored and can be resumed";
    RunError::new(RunErrorCode::Cancelled, message)
}
