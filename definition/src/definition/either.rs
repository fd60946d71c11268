//! Deserialisation of values with several forms, which are distinguished by their JSON type.
//!
//! An error of serde's untagged enums says only that no form fits, and not where; here the error is that of the form that the
//! type selects.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Unexpected, Visitor};

use super::workflows::tool_entry::ToolSettings;
use super::{
    AllWord, ConversationHistoryOptions, HistorySelection, PinnedText, Replacement, Target, TextMessage, ToolEntry,
};

/// Reads a flag or a string with these functions, if present, and every other value as an `S`.
struct ByJsonType<T, S> {
    expected: &'static str,
    /// True if an `S` may be a list. Otherwise lists are refused, because serde reads one as a struct's fields in order.
    takes_lists: bool,
    flag: Option<fn(bool) -> T>,
    text: fn(&str) -> Option<T>,
    structured: fn(S) -> T,
    marker: PhantomData<S>,
}

impl<T, S> ByJsonType<T, S> {
    fn new(expected: &'static str, text: fn(&str) -> Option<T>, structured: fn(S) -> T) -> Self {
        Self {
            expected,
            takes_lists: true,
            flag: None,
            text,
            structured,
            marker: PhantomData,
        }
    }
}

impl<'de, T, S: Deserialize<'de>> Visitor<'de> for ByJsonType<T, S> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_bool<E: Error>(self, flag: bool) -> Result<T, E> {
        match self.flag {
            Some(read) => Ok(read(flag)),
            None => Err(E::invalid_type(Unexpected::Bool(flag), &self)),
        }
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        (self.text)(text).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<T, A::Error> {
        if !self.takes_lists {
            return Err(A::Error::invalid_type(Unexpected::Seq, &self));
        }
        S::deserialize(SeqAccessDeserializer::new(items)).map(self.structured)
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<T, A::Error> {
        S::deserialize(MapAccessDeserializer::new(members)).map(self.structured)
    }
}

impl<'de> Deserialize<'de> for HistorySelection {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let read = ByJsonType::<_, ConversationHistoryOptions>::new("true, false or a selection", |_| None, Self::Some);
        deserializer.deserialize_any(ByJsonType {
            takes_lists: false,
            flag: Some(Self::All),
            ..read
        })
    }
}

impl<'de> Deserialize<'de> for Target {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = |text: &str| text.eq_ignore_ascii_case("all").then_some(Self::Word(AllWord::All));
        let read = ByJsonType::<_, ConversationHistoryOptions>::new("\"all\" or a selection", word, Self::Selection);
        deserializer.deserialize_any(ByJsonType {
            takes_lists: false,
            ..read
        })
    }
}

impl<'de> Deserialize<'de> for Replacement {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = |text: &str| Some(Self::Text(text.to_owned()));
        deserializer.deserialize_any(ByJsonType::<_, Vec<TextMessage>>::new(
            "text or a list of messages",
            text,
            Self::Messages,
        ))
    }
}

impl<'de> Deserialize<'de> for ToolEntry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = |text: &str| Some(Self::from(text.to_owned()));
        let read =
            ByJsonType::<_, ToolSettings>::new("the name of a tool or {name, deferred, consent}", text, Self::from);
        deserializer.deserialize_any(ByJsonType {
            takes_lists: false,
            ..read
        })
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for PinnedText<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = |text: &str| Some(Self::Text(text.to_owned()));
        deserializer.deserialize_any(ByJsonType::<_, T>::new(
            "text or the section's structured form",
            text,
            Self::Structured,
        ))
    }
}
