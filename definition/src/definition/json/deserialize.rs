//! Tree as a serde deserialiser: without a copy into `Value`, and with the keys in source order.

use std::fmt;

use serde::de::value::StrDeserializer;
use serde::de::{
    self, DeserializeSeed, Deserializer, Expected, IntoDeserializer, MapAccess, SeqAccess, Unexpected, Visitor,
};
use serde::forward_to_deserialize_any;

use super::{Json, Member, Tree};

/// Maximum number of valid words listed in a message.
const MAX_LISTED: usize = 8;

/// Types in which `null` is a value, not an absent field.
const NULLABLE: [&str; 1] = ["PinContext"];

/// Reason why a tree does not fit a type.
#[derive(Clone, Debug)]
pub(crate) struct Mismatch {
    pub(crate) kind: MismatchKind,
    pub(crate) message: String,
}

/// Kind of a mismatch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MismatchKind {
    Invalid,
    Missing(&'static str),
    UnknownField(String, &'static [&'static str]),
    /// A field is set under two of its names.
    DuplicateField(&'static str),
    UnknownWord(String, &'static [&'static str]),
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Mismatch {}

impl de::Error for Mismatch {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self {
            kind: MismatchKind::Invalid,
            message: message.to_string(),
        }
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self {
            kind: MismatchKind::Invalid,
            message: format!("expected {}, found {}", Wanted { expected, found }, Found(found)),
        }
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::invalid_type(found, expected)
    }

    fn missing_field(field: &'static str) -> Self {
        Self {
            kind: MismatchKind::Missing(field),
            message: format!("`{field}` is missing"),
        }
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        let message = format!("unknown field `{field}`");
        Self {
            kind: MismatchKind::UnknownField(field.to_owned(), expected),
            message,
        }
    }

    fn duplicate_field(field: &'static str) -> Self {
        Self {
            kind: MismatchKind::DuplicateField(field),
            message: format!("`{field}` is given under two names; remove one"),
        }
    }

    fn unknown_variant(word: &str, expected: &'static [&'static str]) -> Self {
        let message = if expected.len() > MAX_LISTED {
            format!("unknown word `{word}`")
        } else {
            format!("expected one of {}, found `{word}`", expected.join(", "))
        };
        Self {
            kind: MismatchKind::UnknownWord(word.to_owned(), expected),
            message,
        }
    }
}

/// Formats serde's names of Rust types in JSON terms, given that `found` was read.
struct Wanted<'a> {
    expected: &'a dyn Expected,
    found: Unexpected<'a>,
}

impl fmt::Display for Wanted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wanted = self.expected.to_string();
        if let Some(most) = most_of(&wanted).filter(|most| is_beyond(self.found, *most)) {
            return write!(f, "a whole number of at most {most}");
        }
        match wanted.as_str() {
            "u64" | "u32" | "usize" => f.write_str("a whole number that is not negative"),
            "i64" | "i32" => f.write_str("a whole number"),
            "f64" | "f32" => f.write_str("a number"),
            "a string" | "string" => f.write_str("text"),
            "a boolean" => f.write_str("true or false"),
            "a sequence" => f.write_str("a list"),
            "a map" => f.write_str("an object"),
            other if other.starts_with("struct ") || other.starts_with("struct variant ") => f.write_str("an object"),
            other if other.starts_with("enum ") => f.write_str("one of a fixed list of words"),
            other => f.write_str(other),
        }
    }
}

/// Formats a value of the wrong type in JSON terms.
struct Found<'a>(Unexpected<'a>);

impl fmt::Display for Found<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = self.0.to_string();
        f.write_str(structure_in_json(&found).unwrap_or(&found))
    }
}

/// Returns the JSON term for a structure or null that serde describes as `found`.
pub(super) fn structure_in_json(found: &str) -> Option<&'static str> {
    match found {
        "map" | "struct variant" => Some("an object"),
        "sequence" | "byte array" | "tuple variant" => Some("a list"),
        "unit value" | "Option value" | "null" => Some("null"),
        _ => None,
    }
}

/// Returns the maximum of a Rust integer type.
fn most_of(wanted: &str) -> Option<u64> {
    match wanted {
        "u64" => Some(u64::MAX),
        "usize" => Some(usize::MAX as u64),
        "u32" => Some(u32::MAX.into()),
        "i64" => Some(i64::MAX as u64),
        "i32" => Some(i32::MAX as u64),
        _ => None,
    }
}

fn is_beyond(found: Unexpected<'_>, most: u64) -> bool {
    match found {
        Unexpected::Unsigned(found) => found > most,
        // integers that do not fit in 64 bits were read as floats
        Unexpected::Float(found) => found.fract() == 0.0 && found >= most as f64,
        _ => false,
    }
}

impl<'de> Deserializer<'de> for &'de Tree {
    type Error = Mismatch;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mismatch> {
        match &self.value {
            Json::Null => visitor.visit_unit(),
            Json::Bool(flag) => visitor.visit_bool(*flag),
            Json::Number(number) => match (number.as_u64(), number.as_i64(), number.as_f64()) {
                (Some(number), _, _) => visitor.visit_u64(number),
                (None, Some(number), _) => visitor.visit_i64(number),
                (None, None, Some(number)) => visitor.visit_f64(number),
                (None, None, None) => Err(de::Error::custom("number out of range")),
            },
            Json::Text(text) => visitor.visit_borrowed_str(text),
            Json::List(items) => visitor.visit_seq(Items(items.iter())),
            Json::Object(members) => visitor.visit_map(Members::of(members, &[])),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mismatch> {
        match self.value {
            Json::Null => visitor.visit_none(),
            Json::Bool(_) | Json::Number(_) | Json::Text(_) | Json::List(_) | Json::Object(_) => {
                visitor.visit_some(self)
            }
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Mismatch> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        words: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Mismatch> {
        match &self.value {
            Json::Text(word) => {
                let known = words.iter().find(|known| is_same_word(known, word));
                let word: StrDeserializer<'_, Mismatch> =
                    known.map_or(word.as_str(), |known| known).into_deserializer();
                visitor.visit_enum(word)
            }
            Json::Null | Json::Bool(_) | Json::Number(_) | Json::List(_) | Json::Object(_) => {
                let message = format!("expected one of {}, found {}", words.join(", "), self.kind());
                Err(Mismatch {
                    kind: MismatchKind::Invalid,
                    message,
                })
            }
        }
    }

    /// A `null` field counts as absent. Lists are refused: serde would read one as an object's fields in order.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Mismatch> {
        let optional = if NULLABLE.contains(&name) { &[] } else { fields };
        match &self.value {
            Json::Object(members) => visitor.visit_map(Members::of(members, optional)),
            Json::Null | Json::Bool(_) | Json::Number(_) | Json::Text(_) | Json::List(_) => {
                let message = format!("expected an object, found {}", self.kind());
                Err(Mismatch {
                    kind: MismatchKind::Invalid,
                    message,
                })
            }
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map identifier ignored_any
    }
}

/// Words are accepted in either case, and with `-` instead of `_`.
fn is_same_word(known: &str, word: &str) -> bool {
    let fold = |byte: u8| if byte == b'-' { b'_' } else { byte.to_ascii_lowercase() };
    known.bytes().map(fold).eq(word.bytes().map(fold))
}

struct Items<'de>(std::slice::Iter<'de, Tree>);

impl<'de> SeqAccess<'de> for Items<'de> {
    type Error = Mismatch;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Mismatch> {
        self.0.next().map(|item| seed.deserialize(item)).transpose()
    }
}

struct Members<'de> {
    rest: std::slice::Iter<'de, Member>,
    value: Option<&'de Tree>,
    /// Members with these names are skipped if they are `null`.
    optional: &'static [&'static str],
}

impl<'de> Members<'de> {
    fn of(members: &'de [Member], optional: &'static [&'static str]) -> Self {
        Self {
            rest: members.iter(),
            value: None,
            optional,
        }
    }
}

impl<'de> MapAccess<'de> for Members<'de> {
    type Error = Mismatch;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Mismatch> {
        let is_absent =
            |member: &&Member| matches!(member.value.value, Json::Null) && self.optional.contains(&member.key.as_str());
        let Some(member) = self.rest.by_ref().find(|member| !is_absent(member)) else {
            return Ok(None);
        };
        self.value = Some(&member.value);
        let key: StrDeserializer<'_, Mismatch> = member.key.as_str().into_deserializer();
        seed.deserialize(key).map(Some)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Mismatch> {
        match self.value.take() {
            Some(value) => seed.deserialize(value),
            None => Err(de::Error::custom("next_value was called before next_key")),
        }
    }
}
