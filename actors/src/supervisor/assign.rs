//! SET_VARIABLE: what a trigger assigns (SPEC section 5).
//!
//! A global variable is the run's: it is assigned here, at once, whatever its thread does meanwhile. A thread's own is
//! assigned by the thread at its next safe point, its end included. What comes to nothing is said: nothing is lost.

use std::sync::Arc;

use pirn_core::definition::{TriggerDefinition, VariableScope};
use pirn_core::error::{RunError, RunErrorCode};
use pirn_core::event::{Event, EventType};
use pirn_core::thread::variable_fields;
use serde_json::Value;

use super::{SupervisorActor, SupervisorMsg, ThreadNo};
use crate::answer::{Answer, Lost};
use crate::thread::ThreadMsg;

/// What a trigger assigns.
pub(crate) struct Assignment {
    /// The thread that raised the event.
    pub(crate) thread_id: Arc<str>,
    pub(crate) trigger_id: Arc<str>,
    pub(crate) name: Arc<str>,
    pub(crate) value: Arc<Value>,
    pub(crate) trigger_depth: u32,
    /// Whether it could be taken; lost where nobody was there to take it.
    pub(crate) taken: Answer<Result<(), RunError>>,
}

impl Assignment {
    /// What `trigger` assigns on `event`. `refused` hears why it could not be, also where nobody is there any more.
    pub(crate) fn new(
        trigger: &TriggerDefinition,
        event: &Event,
        name: &str,
        value: Arc<Value>,
        refused: impl FnOnce(&RunError) + Send + 'static,
    ) -> Self {
        let name: Arc<str> = name.into();
        let lost = Arc::clone(&name);
        Self {
            thread_id: Arc::clone(&event.thread_id),
            trigger_id: trigger.id.as_str().into(),
            name,
            value,
            trigger_depth: event.raised.trigger_depth + 1,
            taken: Answer::new(move |taken: Result<Result<(), RunError>, Lost>| match taken {
                Ok(Ok(())) => {}
                Ok(Err(error)) => refused(&error),
                Err(Lost) => {
                    let message = format!("the thread that was to have variable {lost} has ended");
                    refused(&RunError::new(RunErrorCode::Cancelled, message));
                }
            }),
        }
    }

    pub(crate) fn in_scope(self, scope: VariableScope) -> SupervisorMsg {
        let assignment = Box::new(self);
        SupervisorMsg::Assign { scope, assignment }
    }
}

impl SupervisorActor {
    /// A trigger assigns a variable, in the name of the thread that raised its event.
    pub(super) fn assign(&mut self, scope: VariableScope, assignment: Box<Assignment>) {
        let Some(thread) = self.threads.number_of(&assignment.thread_id) else {
            return;
        };
        match scope {
            VariableScope::Global => self.assign_global(thread, *assignment),
            // A thread that is gone hears nothing, and the answer is lost.
            VariableScope::Thread => self.tell(thread, ThreadMsg::Assign(assignment)),
        }
    }

    fn assign_global(&self, thread: ThreadNo, assignment: Assignment) {
        let Assignment {
            name,
            value,
            trigger_depth,
            taken,
            thread_id: _,
            trigger_id: _,
        } = assignment;
        taken.give(match self.run.assign_global(&name, value, false) {
            Ok(value) => {
                self.emit_caused(thread, trigger_depth, EventType::VariableChanged, || {
                    variable_fields(&name, &value, VariableScope::Global).into()
                });
                Ok(())
            }
            Err(error) => Err(error),
        });
    }
}
