//! Cancel, pause, and assignments from outside.

use pirn_definition::definition::VariableScope;
use pirn_definition::error::RunError;
use pirn_definition::event_type::EventType;
use serde_json::json;

use crate::run::ThreadNo;
use crate::run::data::message::{Assignment, Control, Message, ToThread};
use crate::run::state::RunMachine;
use crate::run::step::Step;
use crate::thread::{CancelReason, Input, variable_fields};

impl RunMachine {
    pub(in crate::run) fn control(&mut self, control: &Control) {
        match control {
            Control::Cancel(reason) => {
                let reason = CancelReason::Requested { reason: reason.clone() };
                // The main thread is enough: its end cancels everything that it owns. What a JOIN detached continues.
                return self.cancel(0, reason, 0);
            }
            // Threads that start later read the flag in `register`; the loop below reaches those that exist.
            Control::Pause => self.is_paused = true,
            Control::Resume => self.is_paused = false,
            // The loop cancels every thread: a shutdown, unlike a cancel, also ends detached threads.
            Control::Shutdown => {}
        }
        for thread in 0..self.tree.len() as ThreadNo {
            self.send(thread, ToThread::Input(control.clone().input(0)));
        }
    }

    pub(in crate::run) fn control_thread(&mut self, thread: ThreadNo, control: Control, trigger_depth: u32) {
        match control.input(trigger_depth) {
            Input::Cancel { reason, trigger_depth } => self.cancel(thread, reason, trigger_depth),
            input => self.send(thread, ToThread::Input(input)),
        }
    }

    /// Cancels a thread on behalf of something with this trigger depth. Later events of the thread have this depth too.
    pub(in crate::run) fn cancel(&mut self, thread: ThreadNo, reason: CancelReason, trigger_depth: u32) {
        self.tree.raise_depth(thread, trigger_depth);
        self.send(thread, ToThread::Input(Input::Cancel { reason, trigger_depth }));
    }

    pub(in crate::run) fn assign(&mut self, assignment: Assignment, step: &mut Step<'_>) {
        let Assignment {
            thread,
            scope,
            trigger_id,
            name,
            value,
            trigger_depth,
        } = assignment;
        // Counted even if the assignment fails: the sum is an upper bound, which a measurement corrects.
        self.memory.took(&value);
        match scope {
            VariableScope::Thread => {
                let input = Input::Assign {
                    trigger_id,
                    name,
                    value,
                    trigger_depth,
                };
                // Send it even if the thread has ended: the failed assignment is then reported.
                self.mailbox.send(Message::Thread(thread, ToThread::Input(input)));
            }
            // Assigned at once, because the thread that raised the event may be waiting or have ended.
            VariableScope::Global | VariableScope::Session => match self.globals.assign(step, &name, value, false) {
                Ok(value) => {
                    if scope == VariableScope::Session {
                        self.globals.keep_for_session(&name);
                    }
                    self.emit_caused(thread, trigger_depth, EventType::VariableChanged, step, || {
                        variable_fields(&name, &value, scope).into()
                    });
                }
                Err(error) => self.emit_not_assigned(thread, &trigger_id, &error, trigger_depth, step),
            },
        }
    }

    pub(in crate::run) fn emit_not_assigned(
        &mut self,
        thread: ThreadNo,
        trigger_id: &str,
        error: &RunError,
        trigger_depth: u32,
        step: &mut Step<'_>,
    ) {
        self.emit_caused(thread, trigger_depth, EventType::TriggerFailed, step, || {
            vec![("triggerId", json!(trigger_id)), ("error", json!(error))]
        });
    }
}
