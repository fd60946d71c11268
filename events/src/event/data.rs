//! The fields of an event and the data of a CUSTOM event, which become JSON when they are read.
//!
//! The field names of an event are fixed by Pirn ([`EventFields`]), so user-defined names cannot collide with them. The payload
//! of a CUSTOM event is the value of one field, `data` ([`EventData`]).
//!
//! Most events are matched by type alone, or by one field, so their fields are stored as shared parts. A map with its own keys
//! and strings would cost more than all other steps between raising an event and delivering it.

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, LazyLock, OnceLock};

use pirn_definition::value::{Output, levels, memory};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use super::{DATA, OWN_FIELDS};

/// Data of a CUSTOM event: a JSON object with arbitrary keys. It is the value of the field `data`.
///
/// ```
/// # use pirn_events::event::{EventData, RaisedEvent};
/// # use serde_json::json;
/// let data = EventData::from([("n", json!(1)), ("by", json!("hand"))]);
/// assert_eq!(data["by"], "hand");
/// assert_eq!(RaisedEvent::custom("paid", data).fields["data"]["n"], 1);
/// ```
#[derive(Clone, Default)]
pub struct EventData(Representation);

/// Fields of an event in addition to those of every event. Their names are fixed by Pirn.
///
/// ```
/// # use pirn_definition::event_type::EventType;
/// # use pirn_events::event::RaisedEvent;
/// # use serde_json::json;
/// let event = RaisedEvent::new(EventType::NodeStarted, [("nodeId", json!("a"))]);
/// assert_eq!(event.fields["nodeId"], "a");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct EventFields(EventData);

#[derive(Clone)]
enum Representation {
    Map(Json),
    Fields(FieldList, OnceLock<Box<Json>>),
}

/// A JSON object, readable as a map and as a value.
#[derive(Clone)]
struct Json(Value);

impl Json {
    fn map(&self) -> &Map<String, Value> {
        static EMPTY: LazyLock<Map<String, Value>> = LazyLock::new(Map::new);
        match &self.0 {
            Value::Object(map) => map,
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => &EMPTY,
        }
    }
}

impl From<Map<String, Value>> for Json {
    fn from(map: Map<String, Value>) -> Self {
        Self(Value::Object(map))
    }
}

/// A single field is stored inline: most user-raised events have only one.
#[derive(Clone)]
enum FieldList {
    One((&'static str, Field)),
    More(Box<[(&'static str, Field)]>),
}

impl FieldList {
    fn as_slice(&self) -> &[(&'static str, Field)] {
        match self {
            Self::One(field) => std::slice::from_ref(field),
            Self::More(fields) => fields,
        }
    }
}

impl Default for Representation {
    fn default() -> Self {
        Self::Map(Map::new().into())
    }
}

/// Value of a field, shared or not yet serialised.
#[derive(Clone, Debug)]
pub enum Field {
    /// A shared string.
    Text(Arc<str>),
    /// A constant.
    Word(&'static str),
    /// A node's output, or another value that is serialised on first read.
    Output(Output),
    /// Any JSON value.
    Value(Value),
    /// Data of a CUSTOM event.
    Data(Box<EventData>),
}

/// Borrowed value of a field.
pub(crate) enum FieldRef<'a> {
    Text(&'a str),
    Value(&'a Value),
}

impl Field {
    fn seen(&self) -> FieldRef<'_> {
        match self {
            Self::Text(text) => FieldRef::Text(text),
            Self::Word(word) => FieldRef::Text(word),
            Self::Output(output) => FieldRef::Value(output.value()),
            Self::Value(value) => FieldRef::Value(value),
            Self::Data(data) => FieldRef::Value(data.value()),
        }
    }

    fn levels(&self) -> usize {
        match self {
            Self::Text(_) | Self::Word(_) => 0,
            Self::Output(output) => output.levels(),
            Self::Value(value) => levels(value),
            Self::Data(data) => 1 + data.levels(),
        }
    }

    fn memory(&self) -> u64 {
        match self {
            Self::Text(_) | Self::Word(_) => 0,
            Self::Output(output) => output.memory(),
            Self::Value(value) => memory(value),
            Self::Data(data) => data.memory(),
        }
    }

    fn to_json(&self) -> Value {
        match self {
            Self::Data(data) => Value::Object(data.to_map()),
            Self::Text(_) | Self::Word(_) | Self::Output(_) | Self::Value(_) => match self.seen() {
                FieldRef::Text(text) => text.into(),
                FieldRef::Value(value) => value.clone(),
            },
        }
    }
}

impl From<&Arc<Value>> for Field {
    fn from(value: &Arc<Value>) -> Self {
        Self::Output(Arc::clone(value).into())
    }
}

impl From<Value> for Field {
    fn from(value: Value) -> Self {
        Self::Value(value)
    }
}

impl From<&Arc<str>> for Field {
    fn from(text: &Arc<str>) -> Self {
        Self::Text(Arc::clone(text))
    }
}

impl From<Option<&Arc<str>>> for Field {
    fn from(text: Option<&Arc<str>>) -> Self {
        text.map_or(Self::Value(Value::Null), Self::from)
    }
}

impl From<&'static str> for Field {
    fn from(word: &'static str) -> Self {
        Self::Word(word)
    }
}

impl From<&Output> for Field {
    fn from(output: &Output) -> Self {
        Self::Output(output.clone())
    }
}

impl EventData {
    /// Nesting depth of lists and objects in the fields, as [`Output::levels`] counts.
    pub(crate) fn levels(&self) -> usize {
        match &self.0 {
            Representation::Map(json) => json.map().values().map(levels).max(),
            Representation::Fields(FieldList::One((_, field)), _) => return field.levels(),
            Representation::Fields(FieldList::More(fields), _) => fields.iter().map(|(_, field)| field.levels()).max(),
        }
        .unwrap_or(0)
    }

    /// Estimates the memory of the values in bytes, without shared strings and constants.
    fn memory(&self) -> u64 {
        match &self.0 {
            Representation::Map(json) => memory(&json.0),
            Representation::Fields(fields, _) => fields.as_slice().iter().map(|(_, field)| field.memory()).sum(),
        }
    }

    fn of(fields: impl IntoIterator<Item = (&'static str, Field)>) -> Self {
        let mut fields = fields.into_iter();
        if fields.size_hint() == (1, Some(1))
            && let Some(field) = fields.next()
        {
            return Self(Representation::Fields(FieldList::One(field), OnceLock::new()));
        }
        Self(Representation::Fields(
            FieldList::More(fields.collect()),
            OnceLock::new(),
        ))
    }

    /// Like [`Self::of`], for an array, which is moved as a whole.
    fn of_list<F: Into<Field>, const N: usize>(fields: [(&'static str, F); N]) -> Self {
        let fields = fields.map(|(name, field)| (name, field.into()));
        if N == 1 {
            return Self::of(fields);
        }
        Self(Representation::Fields(
            FieldList::More(Box::new(fields)),
            OnceLock::new(),
        ))
    }

    fn field(&self, name: &str) -> Option<FieldLookup<'_>> {
        match &self.0 {
            Representation::Map(json) => json.map().get(name).map(FieldLookup::Value),
            Representation::Fields(fields, _) => {
                let mut named = fields.as_slice().iter().rev().filter(|(own, _)| *own == name);
                named.next().map(|(_, field)| FieldLookup::Field(field))
            }
        }
    }

    /// Returns one field without building the map of all fields.
    fn look(&self, name: &str) -> Option<FieldRef<'_>> {
        self.field(name).map(|looked| match looked {
            FieldLookup::Field(field) => field.seen(),
            FieldLookup::Value(value) => FieldRef::Value(value),
        })
    }

    /// Returns a copy of the fields as a map.
    pub fn to_map(&self) -> Map<String, Value> {
        match &self.0 {
            Representation::Map(json) => json.map().clone(),
            Representation::Fields(fields, made) => match made.get() {
                Some(json) => json.map().clone(),
                None => map_of(fields.as_slice()),
            },
        }
    }

    fn json(&self) -> &Json {
        match &self.0 {
            Representation::Map(json) => json,
            Representation::Fields(fields, made) => made.get_or_init(|| Box::new(map_of(fields.as_slice()).into())),
        }
    }

    fn value(&self) -> &Value {
        &self.json().0
    }
}

/// A field, or its value if the fields are stored as a map.
enum FieldLookup<'a> {
    Field(&'a Field),
    Value(&'a Value),
}

fn map_of(fields: &[(&'static str, Field)]) -> Map<String, Value> {
    let fields = fields.iter();
    fields
        .map(|(name, field)| ((*name).to_owned(), field.to_json()))
        .collect()
}

impl Deref for EventData {
    type Target = Map<String, Value>;

    fn deref(&self) -> &Self::Target {
        self.json().map()
    }
}

impl From<Map<String, Value>> for EventData {
    fn from(map: Map<String, Value>) -> Self {
        Self(Representation::Map(map.into()))
    }
}

impl<const N: usize> From<[(&'static str, Value); N]> for EventData {
    /// Creates data with these keys; of two equal keys the last counts. The map is built on first access to all fields.
    fn from(fields: [(&'static str, Value); N]) -> Self {
        Self::of_list(fields)
    }
}

impl FromIterator<(String, Value)> for EventData {
    fn from_iter<I: IntoIterator<Item = (String, Value)>>(fields: I) -> Self {
        Map::from_iter(fields).into()
    }
}

impl PartialEq for EventData {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl fmt::Debug for EventData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl Serialize for EventData {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let fields = match &self.0 {
            Representation::Map(json) => return json.map().serialize(serializer),
            Representation::Fields(fields, _) => fields.as_slice(),
        };
        // Written field by field: a map of all fields would be a copy of every value, retained as long as the event.
        let first = |place: usize, name: &str| fields[..place].iter().all(|(earlier, _)| *earlier != name);
        let names = fields.iter().enumerate().map(|(place, (name, _))| (place, *name));
        serializer.collect_map(names.filter(|(place, name)| first(*place, name)).map(|(place, name)| {
            let last = fields[place..].iter().rfind(|(later, _)| *later == name);
            (name, last.map(|(_, field)| field))
        }))
    }
}

impl Serialize for Field {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Data(data) => data.serialize(serializer),
            Self::Text(_) | Self::Word(_) | Self::Output(_) | Self::Value(_) => match self.seen() {
                FieldRef::Text(text) => serializer.serialize_str(text),
                FieldRef::Value(value) => value.serialize(serializer),
            },
        }
    }
}

impl<'de> Deserialize<'de> for EventData {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Map::deserialize(deserializer).map(Self::from)
    }
}

impl EventFields {
    /// Creates fields with these names; of two equal names the last counts.
    pub fn of(fields: impl IntoIterator<Item = (&'static str, Field)>) -> Self {
        Self::checked(EventData::of(fields))
    }

    /// Like [`Self::of`], for an array, which is moved as a whole.
    pub fn of_list<F: Into<Field>, const N: usize>(fields: [(&'static str, F); N]) -> Self {
        Self::checked(EventData::of_list(fields))
    }

    fn checked(fields: EventData) -> Self {
        debug_assert!(
            OWN_FIELDS.iter().all(|own| fields.field(own).is_none()),
            "the fields of an event type must not repeat a common field: {fields:?}"
        );
        Self(fields)
    }

    /// Returns a string field. Does not build the map of all fields, which [`Deref`] does.
    pub fn text(&self, name: &str) -> Option<&str> {
        match self.look(name)? {
            FieldRef::Text(text) => Some(text),
            FieldRef::Value(value) => value.as_str(),
        }
    }

    /// Sets one field.
    pub fn set(&mut self, name: &'static str, value: Value) {
        let mut fields = self.0.to_map();
        fields.insert(name.to_owned(), value);
        *self = Self::checked(fields.into());
    }

    /// Returns a copy of all fields.
    pub fn to_map(&self) -> Map<String, Value> {
        self.0.to_map()
    }

    /// Estimates the memory of the values in bytes, without shared strings and constants. A value that is shared with other
    /// events or with a variable counts in full.
    pub fn memory(&self) -> u64 {
        self.0.memory()
    }

    /// Nesting depth of lists and objects in the fields, as [`Output::levels`] counts.
    pub(crate) fn levels(&self) -> usize {
        self.0.levels()
    }

    /// Returns one field without building the map of all fields.
    pub(crate) fn look(&self, name: &str) -> Option<FieldRef<'_>> {
        self.0.look(name)
    }

    /// Returns one key of a CUSTOM event's data without building the map of all keys.
    pub(crate) fn look_data(&self, key: &str) -> Option<FieldRef<'_>> {
        match self.0.field(DATA)? {
            FieldLookup::Field(Field::Data(data)) => data.look(key),
            FieldLookup::Field(field) => match field.seen() {
                FieldRef::Text(_) => None,
                FieldRef::Value(value) => value.get(key).map(FieldRef::Value),
            },
            FieldLookup::Value(value) => value.get(key).map(FieldRef::Value),
        }
    }
}

impl Deref for EventFields {
    type Target = Map<String, Value>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<'de> Deserialize<'de> for EventFields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let fields = EventData::deserialize(deserializer)?;
        if let Some(own) = OWN_FIELDS.iter().find(|own| fields.contains_key(**own)) {
            let message = format!("`{own}` is reserved: every event has a field of this name");
            return Err(serde::de::Error::custom(message));
        }
        Ok(Self(fields))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn field() -> impl Strategy<Value = Field> {
        prop_oneof![
            "[a-z]{0,3}".prop_map(|text| Field::Text(text.into())),
            Just(Field::from("WORD")),
            (0..9_i32).prop_map(|n| Field::from(&Output::from(json!([n])))),
            (0..9_i32).prop_map(|n| Field::from(&Output::later(1, move || json!({"n": n})))),
            Just(Field::from(None::<&Arc<str>>)),
            any::<bool>().prop_map(|flag| Field::from(json!(flag))),
            (0..9_i32).prop_map(|n| Field::Data(Box::new(EventData::from([("type", json!(n))])))),
        ]
    }

    fn json_of(field: &Field) -> Value {
        match field {
            Field::Text(text) => json!(text),
            Field::Word(word) => json!(word),
            Field::Output(output) => json!(output),
            Field::Value(value) => value.clone(),
            Field::Data(data) => json!(data),
        }
    }

    fn seen(field: Option<FieldRef<'_>>) -> Option<Value> {
        field.map(|seen| match seen {
            FieldRef::Text(text) => json!(text),
            FieldRef::Value(value) => value.clone(),
        })
    }

    proptest! {
        #[test]
        fn event_fields_behave_like_a_map(
            fields in prop::collection::vec((prop::sample::select(&["a", "b", "c", "data"][..]), field()), 0..6),
            is_read_before in any::<bool>(),
        ) {
            let expected: Map<String, Value> = fields.iter().map(|(name, field)| ((*name).to_owned(), json_of(field))).collect();
            let mut data = EventFields::of(fields);
            for name in ["a", "b", "c", "data"] {
                prop_assert_eq!(seen(data.look(name)), expected.get(name).cloned());
            }
            let inside = expected.get("data").and_then(|data| data.get("type"));
            prop_assert_eq!(seen(data.look_data("type")), inside.cloned());
            if is_read_before {
                prop_assert_eq!(&*data, &expected);
            }
            prop_assert_eq!(data.to_map(), expected.clone());
            prop_assert_eq!(json!(data), json!(expected));
            // The order of the fields depends on a feature of serde_json. Equal lengths: no field is written twice.
            let (text, other) = (serde_json::to_string(&data).unwrap(), serde_json::to_string(&expected).unwrap());
            prop_assert_eq!(text.len(), other.len());
            prop_assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), json!(expected));
            prop_assert_eq!(data.text("a"), expected.get("a").and_then(Value::as_str));
            prop_assert_eq!(&data.clone(), &serde_json::from_value(json!(expected)).unwrap());
            prop_assert!(data.levels() >= expected.values().map(levels).max().unwrap_or(0));
            let mut changed = expected;
            changed.insert("b".to_owned(), json!("new"));
            data.set("b", json!("new"));
            prop_assert_eq!(&*data, &changed);
            prop_assert!(matches!(data.look("b"), Some(FieldRef::Value(value)) if value == "new"));
        }
    }

    #[test]
    fn serializing_an_event_makes_no_copy_of_its_values() {
        let output = Output::from(json!({"text": "x".repeat(1_000)}));
        let fields = EventFields::of([("nodeId", Field::from("n")), ("output", Field::from(&output))]);
        let written = serde_json::to_string(&fields).unwrap();
        assert_eq!(written, json!({"nodeId": "n", "output": output}).to_string());
        assert_eq!(fields.text("nodeId"), Some("n"));
        let Representation::Fields(_, made) = &fields.0.0 else {
            panic!("the fields became a map");
        };
        assert!(made.get().is_none(), "a map of all fields was built");
    }

    #[test]
    fn a_stored_event_cannot_repeat_a_common_field() {
        for own in OWN_FIELDS {
            let refused = serde_json::from_value::<EventFields>(json!({"nodeId": "a", own: "x"})).unwrap_err();
            let expected = format!("`{own}` is reserved: every event has a field of this name");
            assert_eq!(refused.to_string(), expected);
        }
    }
}
