//! The fields of an event, which become JSON when they are read.
//!
//! Most events are matched by type alone, or by one field. The parts they are made of are shared: building a map with keys
//! and texts of its own costs more than everything else between raising an event and delivering it.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::value::{Output, levels};

/// An event's fields: a map of JSON, to be read and changed as one.
///
/// ```
/// # use pirn_core::event::{EventType, RaisedEvent};
/// # use serde_json::json;
/// let event = RaisedEvent::new(EventType::NodeStarted, [("nodeId", json!("a"))]);
/// assert_eq!(event.data["nodeId"], "a");
/// let data = pirn_core::event::EventData::from([("n", json!(1)), ("by", json!("hand"))]);
/// assert_eq!(data["by"], "hand");
/// ```
#[derive(Clone, Default)]
pub struct EventData(Representation);

#[derive(Clone)]
enum Representation {
    Map(Map<String, Value>),
    Fields(FieldList, OnceLock<Box<Map<String, Value>>>),
}

/// One field has its place in the event: most events that users raise have no other.
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
        Self::Map(Map::new())
    }
}

/// One field as it lies somewhere.
#[derive(Clone, Debug)]
pub enum Field {
    /// A text that others have too.
    Text(Arc<str>),
    /// A word of Pirn's own.
    Word(&'static str),
    /// A node's output, or what else is made when somebody looks.
    Output(Output),
    /// Anything.
    Value(Value),
}

/// A field as one looks at it.
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
        }
    }

    fn levels(&self) -> usize {
        match self {
            Self::Text(_) | Self::Word(_) => 0,
            Self::Output(output) => output.levels(),
            Self::Value(value) => levels(value),
        }
    }

    fn to_json(&self) -> Value {
        match self.seen() {
            FieldRef::Text(text) => text.into(),
            FieldRef::Value(value) => value.clone(),
        }
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
            Representation::Map(map) => map.values().map(levels).max(),
            Representation::Fields(fields, _) => fields.as_slice().iter().map(|(_, field)| field.levels()).max(),
        }
        .unwrap_or(0)
    }

    /// These fields; of two with one name the last counts.
    pub fn of(fields: impl IntoIterator<Item = (&'static str, Field)>) -> Self {
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

    /// As [`Self::of`], for a list whose length is known: it is moved as a whole.
    pub(crate) fn of_list<F: Into<Field>, const N: usize>(fields: [(&'static str, F); N]) -> Self {
        let fields = fields.map(|(name, field)| (name, field.into()));
        if N == 1 {
            return Self::of(fields);
        }
        Self(Representation::Fields(
            FieldList::More(Box::new(fields)),
            OnceLock::new(),
        ))
    }

    /// One of the fields, without a map of all.
    pub(crate) fn look(&self, name: &str) -> Option<FieldRef<'_>> {
        match &self.0 {
            Representation::Map(map) => map.get(name).map(FieldRef::Value),
            Representation::Fields(fields, _) => {
                let mut named = fields.as_slice().iter().rev().filter(|(own, _)| *own == name);
                named.next().map(|(_, field)| field.seen())
            }
        }
    }

    /// A map of its own.
    pub fn to_map(&self) -> Map<String, Value> {
        match &self.0 {
            Representation::Map(map) => map.clone(),
            Representation::Fields(fields, made) => match made.get() {
                Some(map) => (**map).clone(),
                None => map_of(fields.as_slice()),
            },
        }
    }
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
        match &self.0 {
            Representation::Map(map) => map,
            Representation::Fields(fields, made) => made.get_or_init(|| Box::new(map_of(fields.as_slice()))),
        }
    }
}

impl DerefMut for EventData {
    fn deref_mut(&mut self) -> &mut Self::Target {
        match self.0 {
            Representation::Map(ref mut map) => map,
            Representation::Fields(..) => {
                self.0 = Representation::Map(self.to_map());
                self.deref_mut()
            }
        }
    }
}

impl From<Map<String, Value>> for EventData {
    fn from(map: Map<String, Value>) -> Self {
        Self(Representation::Map(map))
    }
}

impl<const N: usize> From<[(&'static str, Value); N]> for EventData {
    /// These fields; of two with one name the last counts. No map is made before somebody looks at all of them.
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
        (**self).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for EventData {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Map::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn field() -> impl Strategy<Value = Field> {
        prop_oneof![
            "[a-z]{0,3}".prop_map(|text| Field::from(&Arc::from(text.as_str()))),
            Just(Field::from("WORD")),
            (0..9_i32).prop_map(|n| Field::from(&Output::from(json!([n])))),
            (0..9_i32).prop_map(|n| Field::from(&Output::later(1, move || json!({"n": n})))),
            Just(Field::from(None::<&Arc<str>>)),
            any::<bool>().prop_map(|flag| Field::from(json!(flag))),
        ]
    }

    fn json_of(field: &Field) -> Value {
        match field {
            Field::Text(text) => json!(text),
            Field::Word(word) => json!(word),
            Field::Output(output) => json!(output),
            Field::Value(value) => value.clone(),
        }
    }

    proptest! {
        #[test]
        fn fields_are_read_and_changed_as_the_map_that_they_stand_for(
            fields in prop::collection::vec((prop::sample::select(&["a", "b", "c", "d"][..]), field()), 0..6),
            is_read_before in any::<bool>(),
        ) {
            let expected: Map<String, Value> = fields.iter().map(|(name, field)| ((*name).to_owned(), json_of(field))).collect();
            let mut data = EventData::of(fields);
            for name in ["a", "b", "c", "d"] {
                let seen = data.look(name).map(|seen| match seen {
                    FieldRef::Text(text) => json!(text),
                    FieldRef::Value(value) => value.clone(),
                });
                prop_assert_eq!(seen.as_ref(), expected.get(name));
            }
            if is_read_before {
                prop_assert_eq!(&*data, &expected);
            }
            prop_assert_eq!(data.to_map(), expected.clone());
            prop_assert_eq!(json!(data), json!(expected));
            prop_assert_eq!(&data.clone(), &EventData::from(expected.clone()));
            let mut changed = expected;
            changed.insert("b".to_owned(), json!("new"));
            data.insert("b".to_owned(), json!("new"));
            prop_assert_eq!(&*data, &changed);
            prop_assert!(matches!(data.look("b"), Some(FieldRef::Value(value)) if value == "new"));
        }
    }
}
