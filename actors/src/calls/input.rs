//! The input of a registered function.

use std::fmt;
use std::ops::Deref;
use std::sync::{Mutex, OnceLock, PoisonError};

use pirn_core::thread::Output;
use pirn_events::event::Event;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};

use super::call_context::CallContext;

/// The input of an inline function: JSON that is built on first access, once. Many functions ignore their input, and a JOIN's
/// result or a trigger's event would be expensive to convert for nothing.
///
/// ```
/// # use pirn_actors::ports::Input;
/// # use serde_json::{Value, json};
/// fn double(input: &Input) -> Result<Value, String> {
///     Ok(json!(input["n"].as_i64().ok_or("no number")? * 2))
/// }
/// assert_eq!(double(&Input::from(&json!({"n": 21}))), Ok(json!(42)));
/// ```
pub struct Input<'a> {
    source: Source<'a>,
    caller: Option<&'a Caller<'a>>,
}

/// Returns the origin of a call. Evaluated on access only.
pub(crate) type Caller<'a> = dyn Fn() -> CallContext + Sync + 'a;

enum Source<'a> {
    Value(&'a Value),
    Output(&'a Output),
    Firing {
        event: &'a Event,
        parameters: &'a Parameters<'a>,
        shown: &'a ActionInput,
    },
}

/// Returns the parameters of a trigger's definition.
pub(crate) type Parameters<'a> = dyn Fn() -> Option<&'a Map<String, Value>> + Sync + 'a;

impl<'a> Input<'a> {
    fn of(source: Source<'a>) -> Self {
        Self { source, caller: None }
    }

    /// Adds the origin of the call.
    pub(crate) fn called_from(self, caller: &'a Caller<'a>) -> Self {
        Self {
            caller: Some(caller),
            ..self
        }
    }

    /// Returns the run, thread and node of the call, with the metadata of the run's caller. Built on access. Empty outside of an
    /// engine.
    pub fn context(&self) -> CallContext {
        self.caller.map_or_else(CallContext::default, |caller| caller())
    }

    /// Returns the JSON. Shared with other users of the input.
    pub fn value(&self) -> &Value {
        match self.source {
            Source::Value(value) => value,
            Source::Output(output) => output.value(),
            Source::Firing {
                event,
                parameters,
                shown,
            } => shown.value(event, parameters),
        }
    }

    /// Returns a copy of the JSON.
    #[allow(clippy::should_implement_trait)] // mirrors `Value::clone`: the JSON is cloned, not the input
    #[must_use]
    pub fn clone(&self) -> Value {
        self.value().clone()
    }
}

impl Deref for Input<'_> {
    type Target = Value;

    fn deref(&self) -> &Value {
        self.value()
    }
}

impl<'a> From<&'a Value> for Input<'a> {
    fn from(value: &'a Value) -> Self {
        Self::of(Source::Value(value))
    }
}

impl<'a> From<&'a Output> for Input<'a> {
    fn from(output: &'a Output) -> Self {
        Self::of(Source::Output(output))
    }
}

impl<T: ?Sized> PartialEq<T> for Input<'_>
where
    Value: PartialEq<T>,
{
    fn eq(&self, other: &T) -> bool {
        self.value() == other
    }
}

impl fmt::Debug for Input<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value().fmt(f)
    }
}

impl fmt::Display for Input<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value().fmt(f)
    }
}

impl Serialize for Input<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value().serialize(serializer)
    }
}

/// The input of a CUSTOM action's function, `{event, parameters}`. One JSON object is reused for consecutive calls.
#[derive(Default)]
pub(crate) struct ActionInput {
    /// Object of the current call, once accessed.
    now: OnceLock<Value>,
    /// Object of an earlier call, whose allocation is reused.
    before: Mutex<Value>,
}

impl ActionInput {
    /// Returns the input of the next call.
    pub(crate) fn next<'a>(&'a mut self, event: &'a Event, parameters: &'a Parameters<'a>) -> Input<'a> {
        if let Some(before) = self.now.take() {
            *self.before.get_mut().unwrap_or_else(PoisonError::into_inner) = before;
        }
        Input::of(Source::Firing {
            event,
            parameters,
            shown: self,
        })
    }

    fn value(&self, event: &Event, parameters: &Parameters<'_>) -> &Value {
        self.now.get_or_init(|| {
            // Never contended, because only one caller initialises `now`.
            let mut before = self.before.lock().unwrap_or_else(PoisonError::into_inner);
            let mut shown = before.take();
            match parameters() {
                Some(parameters) => show(event, parameters, &mut shown),
                None => show(event, &Map::new(), &mut shown),
            }
            shown
        })
    }
}

/// Returns the input of a CUSTOM action's async function.
pub(crate) fn firing_value(event: &Event, parameters: &Map<String, Value>) -> Value {
    let mut shown = Value::Null;
    show(event, parameters, &mut shown);
    shown
}

fn show(event: &Event, parameters: &Map<String, Value>, shown: &mut Value) {
    // The first call finds null, as does one after a panic.
    if !shown.is_object() {
        *shown = json!({"event": null, "parameters": null});
    }
    if let Value::Object(input) = shown {
        for (name, value) in input {
            match name.as_str() {
                "event" => event.write_json_into(value),
                // Consecutive calls mostly have equal parameters, and mostly none.
                _ if value.as_object() == Some(parameters) => {}
                _ => *value = Value::Object(parameters.clone()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use pirn_definition::event_type::EventType;
    use pirn_events::event::RaisedEvent;

    use super::*;

    /// An event with a field that counts its conversions to JSON.
    fn event(sequence: u64, made: &Arc<AtomicU32>) -> Event {
        let counted = Arc::clone(made);
        let output = Output::later(1, move || json!(counted.fetch_add(1, Ordering::Relaxed)));
        Event {
            sequence,
            timestamp: 5,
            run_id: "r".into(),
            workflow_id: "w".into(),
            thread_id: "r.0".into(),
            raised: RaisedEvent::of(EventType::NodeCompleted, [("output", &output)]),
        }
    }

    #[test]
    fn the_input_of_a_function_is_not_built_unless_it_is_read() {
        let made = Arc::default();
        let mut shown = ActionInput::default();
        let event = event(1, &made);
        let _input = shown.next(&event, &|| panic!("nobody looks"));
        assert_eq!(made.load(Ordering::Relaxed), 0);
        assert_eq!(shown.now.get(), None);
    }

    #[test]
    fn every_function_that_reads_its_input_sees_its_event_on_each_read() {
        let mut shown = ActionInput::default();
        for sequence in 0..6 {
            let made = Arc::default();
            let event = event(sequence, &made);
            let parameters = Map::from_iter([("n".to_owned(), json!(sequence / 2))]);
            let own = || Some(&parameters);
            let input = shown.next(&event, &own);
            if sequence % 3 == 1 {
                continue;
            }
            let expected = json!({"event": event.to_json(), "parameters": parameters});
            assert_eq!(input, expected);
            assert!(std::ptr::eq(input.value(), &raw const *input));
            assert_eq!((input.clone(), json!(input)), (expected.clone(), expected.clone()));
            assert_eq!(
                (input.to_string(), format!("{input:?}")),
                (expected.to_string(), format!("{expected:?}"))
            );
            assert_eq!(made.load(Ordering::Relaxed), 1);
            assert_eq!(firing_value(&event, &parameters), expected);
        }
    }

    #[test]
    fn an_output_is_made_when_a_function_reads_it() {
        let made = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&made);
        let output = Output::later(1, move || json!({"n": counted.fetch_add(1, Ordering::Relaxed)}));
        let input = Input::from(&output);
        assert_eq!(made.load(Ordering::Relaxed), 0);
        assert_eq!((input["n"].as_u64(), input["n"].as_u64()), (Some(0), Some(0)));
    }
}
