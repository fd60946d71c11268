//! What a trigger's function gets to see.

use pirn_core::event::Event;
use serde_json::{Map, Value, json};

/// What a CUSTOM action's function is called with, `{event, parameters}`: one object for one call after another.
pub(crate) struct FunctionInput(Value);

impl Default for FunctionInput {
    fn default() -> Self {
        Self(json!({"event": null, "parameters": null}))
    }
}

impl FunctionInput {
    pub(crate) fn of(&mut self, event: &Event, parameters: &Map<String, Value>) -> &Value {
        if let Value::Object(input) = &mut self.0 {
            for (name, value) in input {
                match name.as_str() {
                    "event" => event.show_in(value),
                    // Those of most triggers are the same, mostly none.
                    _ if value.as_object() == Some(parameters) => {}
                    _ => *value = Value::Object(parameters.clone()),
                }
            }
        }
        &self.0
    }
}
