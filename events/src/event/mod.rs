//! Events.
//!
//! Not here: the rules that fire a trigger ([`crate::trigger`]), and the delivery to subscribers (crate `pirn-actors`).

mod data;
mod waits;

use std::sync::Arc;

use pirn_definition::event_type::EventType;
use pirn_definition::value::{MAX_LEVELS, Output};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub(crate) use data::FieldRef;
pub use data::{EventData, EventFields, Field};
pub use waits::{EventWaits, MAX_KEPT_EVENTS, TakenEvents, WaitNo, is_named, missed_event};

/// A set of event types, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventMask(u64);

impl EventMask {
    /// The set without types.
    pub const NONE: Self = Self(0);
    /// The set of all types.
    pub const ALL: Self = Self(u64::MAX);

    /// Returns the set of one type.
    pub fn of(event_type: EventType) -> Self {
        Self(1 << (event_type as u64))
    }

    /// True if the set has the type.
    pub fn contains(self, event_type: EventType) -> bool {
        self.0 & Self::of(event_type).0 != 0
    }

    /// True if some type is in both sets.
    pub fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns the union of both sets.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the raw bits, for an atomic.
    pub fn bits(self) -> u64 {
        self.0
    }

    /// Creates a set from raw bits.
    pub fn from_bits(bits: u64) -> Self {
        Self(bits)
    }
}

/// An event as a machine raises it; the bus adds `sequence` and `timestamp`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RaisedEvent {
    /// The type.
    #[serde(rename = "type")]
    pub event_type: EventType,
    /// Name of a CUSTOM event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_name: Option<Arc<str>>,
    /// Number of triggers between the run's own steps and this event.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub trigger_depth: u32,
    /// Fields of this type of event; a CUSTOM event has one, `data`.
    #[serde(flatten)]
    pub fields: EventFields,
}

impl RaisedEvent {
    /// Creates an event with fields: `RaisedEvent::new(EventType::NodeStarted, [("nodeId", json!("a"))])`.
    pub fn new<const N: usize>(event_type: EventType, fields: [(&'static str, Value); N]) -> Self {
        Self::with(event_type, EventFields::of_list(fields))
    }

    /// Creates a CUSTOM event. Keys of its data are never interpreted as fields of the event.
    pub fn custom(name: impl Into<Arc<str>>, data: impl Into<EventData>) -> Self {
        let data = Field::Data(Box::new(data.into()));
        Self {
            event_name: Some(name.into()),
            ..Self::with(EventType::Custom, EventFields::of([(DATA, data)]))
        }
    }

    /// Creates an event with these fields.
    pub fn with(event_type: EventType, fields: EventFields) -> Self {
        Self {
            event_type,
            event_name: None,
            trigger_depth: 0,
            fields,
        }
    }

    /// Creates an event with shared fields: `("nodeId", Field::from(&id))`.
    pub fn of<F: Into<Field>>(event_type: EventType, fields: impl IntoIterator<Item = (&'static str, F)>) -> Self {
        let fields = fields.into_iter().map(|(name, field)| (name, field.into()));
        Self::with(event_type, EventFields::of(fields))
    }

    /// Returns true if the event, as an object, is nested more than [`MAX_LEVELS`] deep.
    pub fn is_too_deep(&self) -> bool {
        // `>=`, because the object around the fields is one more level.
        self.fields.levels() >= MAX_LEVELS
    }

    /// Returns the event with a trigger depth of at least `depth`.
    #[must_use]
    pub fn at_depth(mut self, depth: u32) -> Self {
        self.trigger_depth = self.trigger_depth.max(depth);
        self
    }
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde's signature
fn is_zero(depth: &u32) -> bool {
    *depth == 0
}

/// An event as subscribers, triggers and `--events` receive it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// Number of the event within the run: from 1, without gaps.
    pub sequence: u64,
    /// Milliseconds since the Unix epoch (under virtual time: since the run's start).
    pub timestamp: u64,
    /// The run.
    pub run_id: Arc<str>,
    /// The workflow of the thread that raised the event.
    pub workflow_id: Arc<str>,
    /// The thread that raised the event.
    pub thread_id: Arc<str>,
    /// Type and fields of the event.
    #[serde(flatten)]
    pub raised: RaisedEvent,
}

impl Event {
    /// Returns the JSON that scripts, WAIT nodes and registered functions receive. Equal to the output of serde, but cheaper.
    pub fn to_json(&self) -> Value {
        Value::Object(self.fields())
    }

    /// Returns the JSON of [`Event::to_json`], built on first read.
    pub fn lazy_json(self: &Arc<Self>) -> Output {
        let event = Arc::clone(self);
        Output::later(1 + self.raised.fields.levels(), move || event.to_json())
    }

    /// Sets `shown` to the JSON of [`Event::to_json`]. If `shown` is an event with equal field names, its object is reused
    /// without allocating a new one.
    pub fn write_json_into(&self, shown: &mut Value) {
        let is_shown = match shown {
            Value::Object(fields) => self.replace(fields),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => false,
        };
        if !is_shown {
            *shown = self.to_json();
        }
    }

    fn fields(&self) -> Map<String, Value> {
        let mut fields = self.raised.fields.to_map();
        for name in OWN_FIELDS {
            if let Some(value) = self.own(name) {
                fields.insert(name.to_owned(), (&value).into());
            }
        }
        fields
    }

    /// Sets every field to this event's. Returns false if the field names differ.
    fn replace(&self, fields: &mut Map<String, Value>) -> bool {
        // Both lists have one order: a typed field must be the next one of this event, else the object is another event's.
        let mut typed = self.raised.fields.iter().peekable();
        let mut own = 0;
        for (name, shown) in fields.iter_mut() {
            match (typed.next_if(|(next, _)| *next == name), self.own(name)) {
                (Some((_, value)), _) => shown.clone_from(value),
                (None, Some(value)) => {
                    own += 1;
                    value.write_json_into(shown);
                }
                (None, None) => return false,
            }
        }
        typed.next().is_none() && own == self.own_count()
    }

    /// Returns one of the fields of every event.
    fn own(&self, name: &str) -> Option<BuiltinField<'_>> {
        match name {
            "sequence" => Some(BuiltinField::Number(self.sequence)),
            "timestamp" => Some(BuiltinField::Number(self.timestamp)),
            "runId" => Some(BuiltinField::Text(&self.run_id)),
            "workflowId" => Some(BuiltinField::Text(&self.workflow_id)),
            "threadId" => Some(BuiltinField::Text(&self.thread_id)),
            "type" => Some(BuiltinField::Text(self.raised.event_type.as_str())),
            "eventName" => self.raised.event_name.as_deref().map(BuiltinField::Text),
            "triggerDepth" => {
                let depth = u64::from(self.raised.trigger_depth);
                (depth > 0).then_some(BuiltinField::Number(depth))
            }
            _ => None,
        }
    }

    fn own_count(&self) -> usize {
        let is_deep = self.raised.trigger_depth > 0;
        OWN_FIELDS.len() - usize::from(self.raised.event_name.is_none()) - usize::from(!is_deep)
    }
}

/// Field of a CUSTOM event with the data of its raiser.
pub(crate) const DATA: &str = "data";

/// Names of the fields of every event.
pub(crate) const OWN_FIELDS: [&str; 8] = [
    "sequence",
    "timestamp",
    "runId",
    "workflowId",
    "threadId",
    "type",
    "eventName",
    "triggerDepth",
];

/// Value of one of these fields.
enum BuiltinField<'a> {
    Number(u64),
    Text(&'a str),
}

impl BuiltinField<'_> {
    fn write_json_into(&self, shown: &mut Value) {
        match (self, shown) {
            (Self::Text(text), Value::String(shown)) => {
                shown.clear();
                shown.push_str(text);
            }
            (own, shown) => *shown = own.into(),
        }
    }
}

impl From<&BuiltinField<'_>> for Value {
    fn from(own: &BuiltinField<'_>) -> Self {
        match own {
            BuiltinField::Number(number) => (*number).into(),
            BuiltinField::Text(text) => (*text).into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    /// Events with few names, so that equal names occur often.
    fn event() -> impl Strategy<Value = Event> {
        let name = prop_oneof![
            "[ab]",
            Just("data".to_owned()),
            prop::sample::select(&OWN_FIELDS[..]).prop_map(str::to_owned),
        ];
        let value = prop_oneof![
            (0..9_i32).prop_map(|n| json!(n)),
            "[a-z]{0,3}".prop_map(|text| json!(text))
        ];
        (
            prop::sample::select(EventType::ALL),
            prop::option::of("[a-z]{0,4}"),
            0..3_u32,
            prop::collection::btree_map(name, value, 0..4),
            (0..9_u64, "[a-z]{1,9}"),
        )
            .prop_map(|(event_type, event_name, depth, data, (sequence, run_id))| {
                let raised = match event_name {
                    Some(name) => RaisedEvent::custom(name, data.into_iter().collect::<EventData>()),
                    None => RaisedEvent::new(
                        event_type,
                        data.into_iter()
                            .next()
                            .map_or([("a", json!(1))], |(_, value)| [("b", value)]),
                    ),
                };
                Event {
                    sequence,
                    timestamp: 5,
                    thread_id: format!("{run_id}.0").into(),
                    run_id: run_id.into(),
                    workflow_id: "w".into(),
                    raised: raised.at_depth(depth),
                }
            })
    }

    proptest! {
        #[test]
        fn event_data_cannot_override_the_common_fields(event in event()) {
            let written = serde_json::to_string(&event).unwrap();
            prop_assert_eq!(&serde_json::from_str::<Event>(&written).unwrap(), &event, "{}", written);
            let shown = event.to_json();
            prop_assert_eq!(&shown["sequence"], &json!(event.sequence));
            prop_assert_eq!(&shown["runId"], &json!(event.run_id));
            prop_assert_eq!(&shown["type"], &json!(event.raised.event_type));
        }

        #[test]
        fn an_event_as_json_equals_its_serde_form(event in event()) {
            prop_assert_eq!(event.to_json(), serde_json::to_value(&event).unwrap());
        }

        #[test]
        fn showing_an_event_replaces_the_previous_value_completely(
            events in prop::collection::vec(prop_oneof![event().prop_map(Some), Just(None)], 0..6),
        ) {
            let mut shown = Value::Null;
            for event in events {
                match event {
                    Some(event) => {
                        event.write_json_into(&mut shown);
                        prop_assert_eq!(&shown, &event.to_json());
                    }
                    None => shown = json!({"type": null, "b": [1]}),
                }
            }
        }
    }
}
