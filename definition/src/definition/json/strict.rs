//! Strict deserialisation of external JSON (requests, arguments, data files), by the rules of JSON and not of Rust: lists are not
//! read as objects, duplicate keys are refused, integers are never rounded, and errors are in JSON terms with a position.

use std::fmt;
use std::sync::LazyLock;

use serde::de::value::{StrDeserializer, StringDeserializer};
use serde::de::{
    self, DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, Expected, IntoDeserializer, MapAccess,
    SeqAccess, Unexpected, VariantAccess, Visitor,
};
use serde::forward_to_deserialize_any;
use serde_json::{Number, Value};

use super::deserialize::{Mismatch, MismatchKind, structure_in_json};
use super::{Json, Lines, Member, Span, Step, Tree, parse, pointer_at, pointer_of};
use crate::definition::load::nearest;

/// Reason why a JSON text is refused, and the position in it.
#[derive(Clone, Debug)]
pub struct JsonError {
    kind: JsonErrorKind,
    message: String,
    pointer: Option<String>,
    place: Option<(u32, u32)>,
}

/// The kind of a [`JsonError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JsonErrorKind {
    /// The text is not JSON.
    Syntax,
    /// An unknown field.
    UnknownField,
    /// A field is missing.
    MissingField,
    /// A value has the wrong type or is out of range, or a key is duplicated.
    Invalid,
}

impl JsonError {
    /// Returns the kind of the error.
    pub fn kind(&self) -> JsonErrorKind {
        self.kind
    }

    /// Description of the fault, without its position.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns the fault as a sentence about the value, which is called `root` if the pointer is empty.
    pub fn sentence(&self, root: &str) -> String {
        let subject = match self.pointer.as_deref() {
            None | Some("") => root,
            Some(pointer) => pointer,
        };
        if self.message.starts_with("must ") || self.message.starts_with("has ") {
            format!("{subject} {}", self.message)
        } else {
            self.message.clone()
        }
    }

    /// JSON pointer to the faulty value; `None` if the text is not JSON.
    pub fn pointer(&self) -> Option<&str> {
        self.pointer.as_deref()
    }

    /// Line and column, from 1; `None` if the value was not read from text.
    pub fn place(&self) -> Option<(u32, u32)> {
        self.place
    }
}

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.pointer {
            Some(pointer) if !pointer.is_empty() => write!(f, "{pointer}: {}", self.message)?,
            Some(_) | None => f.write_str(&self.message)?,
        }
        match self.place {
            Some((line, column)) => write!(f, " (line {line}, column {column})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for JsonError {}

/// Reads a value from the bytes of a JSON text.
///
/// # Errors
/// As [`json_from_str`], and if the bytes are not UTF-8.
pub fn json_from_slice<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, JsonError> {
    match std::str::from_utf8(bytes) {
        Ok(text) => json_from_str(text),
        Err(error) => {
            let before = String::from_utf8_lossy(&bytes[..error.valid_up_to()]);
            Err(JsonError {
                kind: JsonErrorKind::Syntax,
                message: format!("not UTF-8: the byte {:#04x}", bytes[error.valid_up_to()]),
                pointer: None,
                place: Some(Lines::of(&before).place(&before, before.len())),
            })
        }
    }
}

/// Reads a value from a JSON text.
///
/// Lists are not read as objects, even if serde would read their items as fields in order. An integer below -2^63 or above 2^64-1
/// is refused; a decimal is rounded to the nearest 64-bit float.
///
/// ```
/// let refused = pirn_definition::definition::json_from_str::<serde_json::Value>(r#"{"a": 1, "a": 2}"#).unwrap_err();
/// assert_eq!((refused.pointer(), refused.place()), (Some("/a"), Some((1, 10))));
/// ```
///
/// # Errors
/// The text is not JSON, an object has a duplicate key, an integer does not fit in 64 bits, or the value does not fit the type.
pub fn json_from_str<T: DeserializeOwned>(text: &str) -> Result<T, JsonError> {
    let place = |span: Span| Some(Lines::of(text).place(text, span.start as usize));
    let mut parsed = parse(text).map_err(|error| JsonError {
        kind: JsonErrorKind::Syntax,
        message: error.message,
        pointer: None,
        place: place(error.span),
    })?;
    let invalid = |message: String, pointer: String, span: Span| JsonError {
        kind: JsonErrorKind::Invalid,
        message,
        pointer: Some(pointer),
        place: place(span),
    };
    if let Some(twice) = parsed.duplicates.iter().min_by_key(|twice| twice.other.start) {
        // The second member is not in the tree: the innermost value around it is its object.
        let object = pointer_at(&parsed.root, twice.other.start);
        let pointer = format!("{object}{}", pointer_of(&[Step::Key(twice.key.clone())]));
        let message = format!("the key `{}` is given twice in one object", twice.key);
        return Err(invalid(message, pointer, twice.other));
    }
    if let Err((message, span)) = exact(&mut parsed.root, Some(text)) {
        return Err(invalid(message, pointer_at(&parsed.root, span.start), span));
    }
    T::deserialize(Strict(parsed.root)).map_err(|misfit| misfit.error(place))
}

/// Reads a value from a JSON value, by the rules of [`json_from_str`].
///
/// # Errors
/// The value does not fit the type.
pub fn json_from_value<T: DeserializeOwned>(value: Value) -> Result<T, JsonError> {
    T::deserialize(Strict(tree_of(value))).map_err(|misfit| misfit.error(|_| None))
}

fn tree_of(value: Value) -> Tree {
    let nowhere = Span { start: 0, end: 0 };
    let value = match value {
        Value::Null => Json::Null,
        Value::Bool(flag) => Json::Bool(flag),
        Value::Number(number) => Json::Number(number),
        Value::String(text) => Json::Text(text),
        Value::Array(items) => Json::List(items.into_iter().map(tree_of).collect()),
        Value::Object(fields) => {
            let member = |(key, value)| Member {
                key,
                key_span: nowhere,
                value: tree_of(value),
            };
            Json::Object(fields.into_iter().map(member).collect())
        }
    };
    Tree { span: nowhere, value }
}

/// Keys that have a special meaning in serde_json if its cargo features `raw_value` or `arbitrary_precision` are enabled. A value
/// with such a key would be read as another value, now or from the journal.
static TAKEN_KEYS: LazyLock<Vec<&str>> = LazyLock::new(|| {
    let keys = ["$serde_json::private::RawValue", "$serde_json::private::Number"];
    let is_taken = |key: &&str| {
        let read = serde_json::from_str::<Value>(&format!("{{\"{key}\": \"1\"}}"));
        !read.is_ok_and(|value| value.get(*key).is_some())
    };
    keys.into_iter().filter(is_taken).collect()
});

/// Restores the exact notation of every number; returns an error for integers that do not fit, and for reserved keys.
fn exact(tree: &mut Tree, text: Option<&str>) -> Result<(), (String, Span)> {
    let span = tree.span;
    match &mut tree.value {
        Json::Null | Json::Bool(_) | Json::Text(_) => Ok(()),
        Json::Number(number) => {
            let Some(written) = text.and_then(|text| text.get(span.start as usize..span.end as usize)) else {
                return Ok(());
            };
            let is_decimal = written.contains(['.', 'e', 'E']);
            if !is_decimal && number.is_f64() && written != "-0" {
                let message = "an integer must be at least -2^63 and at most 2^64-1; write a larger one as text";
                return Err((message.to_owned(), span));
            }
            if is_decimal && !number.is_f64() {
                // The parser of workflow files has read 5.0 as 5.
                *number = written
                    .parse()
                    .ok()
                    .and_then(Number::from_f64)
                    .unwrap_or_else(|| number.clone());
            }
            Ok(())
        }
        Json::List(items) => items.iter_mut().try_for_each(|item| exact(item, text)),
        Json::Object(members) => members.iter_mut().try_for_each(|member| {
            if member.key.starts_with('$') && TAKEN_KEYS.contains(&member.key.as_str()) {
                let message = format!("the key `{}` is reserved in this program", member.key);
                return Err((message, member.key_span));
            }
            exact(&mut member.value, text)
        }),
    }
}

/// A mismatch and its position.
#[derive(Debug)]
struct LocatedMismatch {
    mismatch: Mismatch,
    /// Innermost step first.
    steps: Vec<Step>,
    span: Option<Span>,
}

impl LocatedMismatch {
    fn of(mismatch: Mismatch) -> Self {
        Self {
            mismatch,
            steps: Vec::new(),
            span: None,
        }
    }

    fn not_a(wanted: &str, found: &Tree) -> Self {
        let message = format!("must be {wanted}, got {}", found.kind());
        Self::of(Mismatch {
            kind: MismatchKind::Invalid,
            message,
        })
    }

    /// Prepends the step from the parent value.
    fn under(mut self, step: impl FnOnce() -> Step, span: Span) -> Self {
        self.steps.push(step());
        self.span.get_or_insert(span);
        self
    }

    fn error(mut self, place: impl FnOnce(Span) -> Option<(u32, u32)>) -> JsonError {
        self.steps.reverse();
        let message = self.mismatch.message;
        let (kind, message) = match self.mismatch.kind {
            MismatchKind::Missing(_) => (JsonErrorKind::MissingField, message),
            MismatchKind::UnknownField(word, known) => {
                let help = match nearest(&word, known.iter().copied()) {
                    Some(near) => format!("; did you mean `{near}`?"),
                    None if known.is_empty() => "; this object has no fields".to_owned(),
                    None => format!("; the fields are {}", known.join(", ")),
                };
                (JsonErrorKind::UnknownField, message + &help)
            }
            MismatchKind::Invalid | MismatchKind::DuplicateField(_) | MismatchKind::UnknownWord(..) => {
                (JsonErrorKind::Invalid, message)
            }
        };
        JsonError {
            kind,
            message,
            pointer: Some(pointer_of(&self.steps)),
            place: place(self.span.unwrap_or(Span { start: 0, end: 0 })),
        }
    }
}

impl fmt::Display for LocatedMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.mismatch.fmt(f)
    }
}

impl std::error::Error for LocatedMismatch {}

impl de::Error for LocatedMismatch {
    fn custom<T: fmt::Display>(message: T) -> Self {
        let message = message.to_string();
        let message = if message.contains("did not match any variant") {
            "does not match an accepted form".to_owned()
        } else {
            // Messages of a nested deserialiser, which a custom `Deserialize` implementation has forwarded.
            let foreign = ["invalid type: ", "invalid value: "];
            let rest = foreign.iter().find_map(|start| message.strip_prefix(start));
            match rest.and_then(|rest| rest.split_once(", expected ")) {
                Some((found, wanted)) => {
                    let wanted = wanted.split(" at line ").next().unwrap_or_default();
                    format!("must be {}, got {}", in_json(wanted), found_in_json(found))
                }
                None => message,
            }
        };
        Self::of(Mismatch {
            kind: MismatchKind::Invalid,
            message,
        })
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        let expected = expected.to_string();
        let mismatch = Mismatch {
            kind: MismatchKind::Invalid,
            message: format!(
                "must be {}, got {}",
                in_json(&expected),
                found_in_json(&found.to_string())
            ),
        };
        Self::of(mismatch)
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::invalid_type(found, expected)
    }

    fn invalid_length(found: usize, expected: &dyn Expected) -> Self {
        Self::custom(format_args!(
            "must be {}, got {found} items",
            in_json(&expected.to_string())
        ))
    }

    fn missing_field(field: &'static str) -> Self {
        Self::of(de::Error::missing_field(field))
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        Self::of(de::Error::unknown_field(field, expected))
    }

    fn duplicate_field(field: &'static str) -> Self {
        Self::of(de::Error::duplicate_field(field))
    }

    fn unknown_variant(word: &str, expected: &'static [&'static str]) -> Self {
        Self::of(Mismatch {
            kind: MismatchKind::UnknownWord(word.to_owned(), expected),
            message: format!("must be one of {}, got \"{word}\"", expected.join(", ")),
        })
    }
}

/// Returns serde's expectation in JSON terms.
fn in_json(wanted: &str) -> String {
    let range = |least: i128, most: u128| format!("a whole number from {least} to {most}");
    match wanted {
        "u8" => range(0, u8::MAX.into()),
        "u16" => range(0, u16::MAX.into()),
        "u32" => range(0, u32::MAX.into()),
        "u64" | "usize" | "u128" => "a whole number that is not negative".to_owned(),
        "i8" => range(i8::MIN.into(), i8::MAX as u128),
        "i16" => range(i16::MIN.into(), i16::MAX as u128),
        "i32" => range(i32::MIN.into(), i32::MAX as u128),
        "i64" | "isize" | "i128" => "a whole number".to_owned(),
        "f64" | "f32" => "a number".to_owned(),
        "a nonzero u8" | "a nonzero u16" | "a nonzero u32" | "a nonzero u64" | "a nonzero usize" => {
            "a whole number of at least 1".to_owned()
        }
        "a string" | "string" | "str" | "a character" | "path string" => "text".to_owned(),
        "a boolean" | "bool" => "true or false".to_owned(),
        "a sequence" => "a list".to_owned(),
        "a map" | "map" => "an object".to_owned(),
        "unit" | "option" | "null" => "null".to_owned(),
        other => {
            let starts = |words: &[&str]| words.iter().any(|word| other.starts_with(word));
            if starts(&["tuple", "a tuple", "an array", "a set"]) {
                "a list".to_owned()
            } else if starts(&["struct", "internally tagged enum", "adjacently tagged enum"]) {
                "an object".to_owned()
            } else if starts(&["enum ", "variant identifier", "variant of ", "unit variant"]) {
                "one of a fixed list of words".to_owned()
            } else if starts(&["unit struct"]) {
                "null".to_owned()
            } else {
                other.to_owned()
            }
        }
    }
}

/// Returns a message of serde in JSON terms.
fn found_in_json(found: &str) -> String {
    let rest = |word: &str| found.strip_prefix(word).map(|rest| rest.trim_matches('`').to_owned());
    if let Some(structure) = structure_in_json(found) {
        return structure.to_owned();
    }
    match found {
        "enum" | "unit variant" | "newtype variant" | "newtype struct" => "a value of another form".to_owned(),
        _ => ["integer ", "floating point ", "boolean "]
            .into_iter()
            .find_map(rest)
            .or_else(|| found.strip_prefix("string ").map(|text| format!("the text {text}")))
            .unwrap_or_else(|| found.to_owned()),
    }
}

/// Consuming deserialiser of a tree: strings are moved into the value.
struct Strict(Tree);

impl<'de> Deserializer<'de> for Strict {
    type Error = LocatedMismatch;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, LocatedMismatch> {
        match self.0.value {
            Json::Null => visitor.visit_unit(),
            Json::Bool(flag) => visitor.visit_bool(flag),
            Json::Number(number) => match (number.as_u64(), number.as_i64(), number.as_f64()) {
                (Some(number), _, _) => visitor.visit_u64(number),
                (None, Some(number), _) => visitor.visit_i64(number),
                (None, None, Some(number)) => visitor.visit_f64(number),
                (None, None, None) => Err(de::Error::custom("number out of range")),
            },
            Json::Text(text) => visitor.visit_string(text),
            Json::List(items) => visitor.visit_seq(Items {
                rest: items.into_iter(),
                index: 0,
            }),
            Json::Object(members) => visitor.visit_map(Members {
                rest: members.into_iter(),
                value: None,
            }),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, LocatedMismatch> {
        match self.0.value {
            Json::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, LocatedMismatch> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, LocatedMismatch> {
        match self.0.value {
            Json::Object(_) => self.deserialize_any(visitor),
            _ => Err(LocatedMismatch::not_a("an object", &self.0)),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        words: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, LocatedMismatch> {
        match self.0.value {
            Json::Text(word) => {
                let word: StringDeserializer<LocatedMismatch> = word.into_deserializer();
                visitor.visit_enum(word)
            }
            Json::Object(mut members) if members.len() == 1 => visitor.visit_enum(Variant(members.remove(0))),
            _ => Err(LocatedMismatch::not_a(&format!("one of {}", words.join(", ")), &self.0)),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map identifier ignored_any
    }
}

struct Items {
    rest: std::vec::IntoIter<Tree>,
    index: usize,
}

impl<'de> SeqAccess<'de> for Items {
    type Error = LocatedMismatch;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, LocatedMismatch> {
        let Some(item) = self.rest.next() else { return Ok(None) };
        let (index, span) = (self.index, item.span);
        self.index += 1;
        let read = seed.deserialize(Strict(item));
        read.map(Some)
            .map_err(|misfit| misfit.under(|| Step::Index(index), span))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.rest.len())
    }
}

struct Members {
    rest: std::vec::IntoIter<Member>,
    value: Option<(String, Tree)>,
}

impl<'de> MapAccess<'de> for Members {
    type Error = LocatedMismatch;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, LocatedMismatch> {
        let Some(member) = self.rest.next() else {
            return Ok(None);
        };
        let read = seed.deserialize(Key(&member.key));
        let read = read.map_err(|misfit| misfit.under(|| Step::Key(member.key.clone()), member.key_span))?;
        self.value = Some((member.key, member.value));
        Ok(Some(read))
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, LocatedMismatch> {
        let Some((key, value)) = self.value.take() else {
            return Err(de::Error::custom("next_value was called before next_key"));
        };
        let span = value.span;
        let read = seed.deserialize(Strict(value));
        read.map_err(|misfit| misfit.under(|| Step::Key(key), span))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.rest.len())
    }
}

/// A key, which is read as a number if the type has numeric keys.
struct Key<'a>(&'a str);

macro_rules! numeric_keys {
    ($($method:ident $visit:ident $number:ty;)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, LocatedMismatch> {
            match self.0.parse::<$number>() {
                Ok(number) => visitor.$visit(number),
                Err(_) => self.deserialize_any(visitor),
            }
        }
    )*};
}

impl<'de> Deserializer<'de> for Key<'_> {
    type Error = LocatedMismatch;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, LocatedMismatch> {
        visitor.visit_str(self.0)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        words: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, LocatedMismatch> {
        let word: StrDeserializer<'_, LocatedMismatch> = self.0.into_deserializer();
        word.deserialize_enum(name, words, visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, LocatedMismatch> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, LocatedMismatch> {
        visitor.visit_some(self)
    }

    numeric_keys! {
        deserialize_u8 visit_u8 u8;
        deserialize_u16 visit_u16 u16;
        deserialize_u32 visit_u32 u32;
        deserialize_u64 visit_u64 u64;
        deserialize_i32 visit_i32 i32;
        deserialize_i64 visit_i64 i64;
    }

    forward_to_deserialize_any! {
        bool i8 i16 i128 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple tuple_struct map struct
        identifier ignored_any
    }
}

/// `{"WORD": value}`: an enum variant with content.
struct Variant(Member);

impl<'de> EnumAccess<'de> for Variant {
    type Error = LocatedMismatch;
    type Variant = Beside;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Beside), LocatedMismatch> {
        let word = seed.deserialize(Key(&self.0.key));
        let word = word.map_err(|misfit| misfit.under(|| Step::Key(self.0.key.clone()), self.0.key_span))?;
        Ok((word, Beside(self.0)))
    }
}

/// Content of an enum variant: the member's key is the variant.
struct Beside(Member);

impl Beside {
    fn read<T>(self, read: impl FnOnce(Strict) -> Result<T, LocatedMismatch>) -> Result<T, LocatedMismatch> {
        let span = self.0.value.span;
        read(Strict(self.0.value)).map_err(|misfit| misfit.under(|| Step::Key(self.0.key), span))
    }
}

impl<'de> VariantAccess<'de> for Beside {
    type Error = LocatedMismatch;

    fn unit_variant(self) -> Result<(), LocatedMismatch> {
        self.read(|value| match value.0.value {
            Json::Null => Ok(()),
            _ => Err(LocatedMismatch::not_a("null", &value.0)),
        })
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, LocatedMismatch> {
        self.read(|value| seed.deserialize(value))
    }

    fn tuple_variant<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, LocatedMismatch> {
        self.read(|value| value.deserialize_tuple(length, visitor))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, LocatedMismatch> {
        self.read(|value| value.deserialize_struct("", fields, visitor))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use serde::{Deserialize, Serialize};
    use serde_json::json;

    use super::*;

    #[derive(Debug, Deserialize, Serialize, PartialEq)]
    #[serde(deny_unknown_fields)]
    struct Order {
        id: u8,
        #[serde(default)]
        lines: Vec<Line>,
        #[serde(default)]
        how: How,
    }

    #[derive(Debug, Deserialize, Serialize, PartialEq)]
    struct Line {
        text: String,
        note: Option<f64>,
        #[serde(default)]
        counts: BTreeMap<u32, bool>,
    }

    #[derive(Debug, Default, Deserialize, Serialize, PartialEq)]
    #[serde(rename_all = "camelCase")]
    enum How {
        #[default]
        Plain,
        Wrapped(u8),
        Sent {
            by: String,
        },
    }

    fn refused<T: DeserializeOwned + fmt::Debug>(text: &str) -> (JsonErrorKind, Option<String>, String) {
        let error = json_from_str::<T>(text).expect_err(text);
        (
            error.kind(),
            error.pointer().map(str::to_owned),
            error.message().to_owned(),
        )
    }

    #[test]
    fn a_refusal_uses_json_terms_and_names_the_location() {
        use JsonErrorKind::{Invalid, MissingField, Syntax, UnknownField};
        for (text, kind, pointer, words) in [
            ("[1, []]", Invalid, Some(""), "must be an object, got a list"),
            (
                r#"{"id": 1, "lines": {}}"#,
                Invalid,
                Some("/lines"),
                "must be a list, got an object",
            ),
            (
                r#"{"id": 1, "lines": [["x", 1]]}"#,
                Invalid,
                Some("/lines/0"),
                "must be an object, got a list",
            ),
            (
                r#"{"id": 1, "lines": [{"text": null}]}"#,
                Invalid,
                Some("/lines/0/text"),
                "must be text, got null",
            ),
            (
                r#"{"id": 1, "lines": [{}]}"#,
                MissingField,
                Some("/lines/0"),
                "`text` is missing",
            ),
            (
                r#"{"id": {}}"#,
                Invalid,
                Some("/id"),
                "must be a whole number from 0 to 255, got an object",
            ),
            (
                r#"{"id": 256}"#,
                Invalid,
                Some("/id"),
                "must be a whole number from 0 to 255, got 256",
            ),
            (
                r#"{"id": 5.0}"#,
                Invalid,
                Some("/id"),
                "must be a whole number from 0 to 255, got 5.0",
            ),
            (
                r#"{"id": 1, "line": 2}"#,
                UnknownField,
                Some("/line"),
                "did you mean `lines`?",
            ),
            (
                r#"{"id": 1, "how": "fast"}"#,
                Invalid,
                Some("/how"),
                "must be one of plain, wrapped, sent",
            ),
            (
                r#"{"id": 1, "how": {"sent": []}}"#,
                Invalid,
                Some("/how/sent"),
                "must be an object, got a list",
            ),
            (r#"{"id": 1, "how": 7}"#, Invalid, Some("/how"), "got a number"),
            (
                r#"{"id": 1, "id": 2}"#,
                Invalid,
                Some("/id"),
                "the key `id` is given twice",
            ),
            (
                r#"{"id": 1, "lines": [{"a/b": {"x": 1, "y": 2, "x": 3}}]}"#,
                Invalid,
                Some("/lines/0/a~1b/x"),
                "twice",
            ),
            (r#"{"id": 1"#, Syntax, None, "the text ends here"),
            (r#"{"id": "\ud800"}"#, Syntax, None, "surrogate"),
        ] {
            let found = refused::<Order>(text);
            assert_eq!((found.0, found.1.as_deref()), (kind, pointer), "{text}: {}", found.2);
            assert!(found.2.contains(words), "{text}: {}", found.2);
        }
        let error = json_from_slice::<Value>(b"{\n \"a\": \"\xff\"}").unwrap_err();
        assert_eq!((error.kind(), error.place()), (Syntax, Some((2, 8))));
        assert_eq!(
            json_from_str::<Order>("{\"id\":\n true}").unwrap_err().to_string(),
            "/id: must be a whole number from 0 to 255, got true (line 2, column 2)"
        );
    }

    #[test]
    fn an_integer_that_would_lose_digits_is_refused() {
        for written in [
            "18446744073709551616",
            "-9223372036854775809",
            "100000000000000000000000000000000000000000",
        ] {
            let (kind, pointer, message) = refused::<Value>(&format!("{{\"a\": [{written}]}}"));
            assert_eq!(
                (kind, pointer.as_deref()),
                (JsonErrorKind::Invalid, Some("/a/0")),
                "{message}"
            );
        }
        for written in [
            "18446744073709551615",
            "-9223372036854775808",
            "0",
            "5.0",
            "1e19",
            "0.1",
            "-0.0",
        ] {
            let read: Value = json_from_str(written).unwrap();
            assert_eq!(read, serde_json::from_str::<Value>(written).unwrap(), "{written}");
        }
    }

    #[test]
    fn keys_reserved_by_serde_json_are_plain_data() {
        for key in ["$serde_json::private::RawValue", "$serde_json::private::Number"] {
            let read: Value = json_from_str(&format!("{{\"{key}\": \"[1,2]\"}}")).unwrap();
            assert_eq!(read, json!({key: "[1,2]"}));
        }
    }

    proptest! {
        #[test]
        fn a_serialized_type_round_trips(
            id: u8,
            texts in proptest::collection::vec((any::<String>(), proptest::option::of(-1e9..1e9), any::<u32>()), 0..4),
            how in 0..3_usize,
        ) {
            let lines = texts.into_iter().map(|(text, note, count)| Line {
                text,
                note,
                counts: [(count, true)].into(),
            });
            let how = [How::Plain, How::Wrapped(id), How::Sent { by: "x".into() }].into_iter().nth(how).unwrap();
            let order = Order { id, lines: lines.collect(), how };
            let text = serde_json::to_string(&order).unwrap();
            prop_assert_eq!(&json_from_str::<Order>(&text).unwrap(), &order);
            prop_assert_eq!(&json_from_value::<Order>(json!(order)).unwrap(), &order);
            let value: Value = json_from_str(&text).unwrap();
            prop_assert_eq!(value, json!(order));
        }
    }
}
