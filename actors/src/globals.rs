//! The run's global variables: whoever assigns them does it here, at once, and every thread sees it from then on.

use std::sync::Arc;

use pirn_core::definition::VariableScope;
use pirn_core::error::RunError;
use pirn_core::event::{EventType, RaisedEvent};
use pirn_core::thread::variable_fields;
use serde_json::Value;

use crate::host::Sign;
use crate::run::RunShared;

/// What a firing hands back to global variables, in the name of its main thread.
#[derive(Clone, Debug)]
pub(crate) struct HandedGlobals {
    pub(crate) values: Vec<(Arc<str>, Arc<Value>)>,
    pub(crate) workflow_id: Arc<str>,
    pub(crate) thread_id: Arc<str>,
    pub(crate) trigger_depth: u32,
}

impl RunShared {
    /// Assigns one, and says the value as its type has it.
    pub(crate) fn assign_global(
        &self,
        name: &Arc<str>,
        value: Arc<Value>,
        readonly: bool,
    ) -> Result<Arc<Value>, RunError> {
        let value = self.globals.borrow_mut().assign(name, value, readonly)?;
        self.host.tell(|| Sign::Shared {
            run: Arc::clone(&self.run_id),
            name: format!("variable {name} {readonly}"),
            text: value.to_string(),
        });
        Ok(value)
    }

    /// Why these can not be assigned, all of them.
    pub(crate) fn check_globals(&self, handed: &HandedGlobals) -> Result<(), RunError> {
        self.globals.borrow().clone().assign_all(&handed.values)
    }

    /// Assigns what was checked, and says so.
    pub(crate) fn take_globals(&self, handed: HandedGlobals) -> Result<(), RunError> {
        for (name, value) in handed.values {
            let value = self.assign_global(&name, value, false)?;
            if self.listens(EventType::VariableChanged) {
                let event = RaisedEvent::of(
                    EventType::VariableChanged,
                    variable_fields(&name, &value, VariableScope::Global),
                );
                self.emit(
                    &handed.workflow_id,
                    &handed.thread_id,
                    event.at_depth(handed.trigger_depth),
                );
            }
        }
        Ok(())
    }
}
