//! Strict check of JSON: serde_json accepts duplicate keys, and gives one key a special meaning.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::LazyLock;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

/// Why a text is refused.
#[derive(Debug)]
pub(crate) struct Refusal {
    /// Number of the faulty byte, from 1; `None` if the whole text is meant.
    pub(crate) byte: Option<usize>,
    /// Description with the JSON pointer of the value.
    pub(crate) why: String,
}

impl From<String> for Refusal {
    fn from(why: String) -> Self {
        Self { byte: None, why }
    }
}

impl Refusal {
    /// Converts an error of serde_json, which read `text`.
    pub(crate) fn of(error: &serde_json::Error, text: &str) -> Self {
        let why = error.to_string();
        let why = why.rsplit_once(" at line ").map_or(&*why, |(why, _)| why);
        let byte = match why.strip_suffix(KEY_ENDS) {
            // serde_json reports the end of the key.
            Some(_) => text[..error.column().saturating_sub(1)]
                .rfind('"')
                .map_or(1, |start| start + 1),
            // The text ends too early, after the line break.
            None if error.line() > 1 => text.trim_end().len(),
            None => error.column().max(1),
        };
        let why = match why.strip_suffix(KEY_ENDS).unwrap_or(why) {
            "recursion limit exceeded" => "nested more than 127 levels deep",
            why => why,
        };
        Self {
            byte: Some(byte),
            why: why.to_owned(),
        }
    }

    /// Moves the position: the text is a part of another one, in which this number of bytes precedes it.
    pub(crate) fn after(mut self, bytes: usize) -> Self {
        self.byte = self.byte.map(|byte| byte + bytes);
        self
    }
}

/// Marks a message about the key that was read last.
const KEY_ENDS: &str = "\0";

/// Checks that a text is one JSON value of at most 127 levels without duplicate or reserved keys.
pub(crate) fn check(text: &str) -> Result<(), Refusal> {
    let mut json = serde_json::Deserializer::from_str(text);
    let checked = Node(None).deserialize(&mut json).and_then(|()| json.end());
    checked.map_err(|error| Refusal::of(&error, text))
}

/// True if serde_json reads an object with its key for raw values as another value, which its cargo feature `raw_value` causes.
static IS_RESERVED: LazyLock<bool> = LazyLock::new(|| {
    let read = serde_json::from_str::<Value>(&format!("{{\"{RAW}\": \"1\"}}"));
    !read.is_ok_and(|value| value.get(RAW).is_some())
});

const RAW: &str = "$serde_json::private::RawValue";

/// A value and the steps to it, innermost first.
#[derive(Clone, Copy)]
struct Node<'a>(Option<(&'a Node<'a>, Step<'a>)>);

#[derive(Clone, Copy)]
enum Step<'a> {
    Key(&'a str),
    Index(usize),
}

/// The JSON pointer.
impl fmt::Display for Node<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            None => Ok(()),
            Some((parent, Step::Key(key))) => write!(f, "{parent}/{}", key.replace('~', "~0").replace('/', "~1")),
            Some((parent, Step::Index(index))) => write!(f, "{parent}/{index}"),
        }
    }
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let mut index = 0;
        while items
            .next_element_seed(Node(Some((&self, Step::Index(index)))))?
            .is_some()
        {
            index += 1;
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let mut keys = BTreeSet::new();
        while let Some(key) = members.next_key::<String>()? {
            let node = Node(Some((&self, Step::Key(&key))));
            if keys.contains(&key) {
                let why = format!("{node}: the key `{key}` is given twice in one object{KEY_ENDS}");
                return Err(A::Error::custom(why));
            }
            if key == RAW && *IS_RESERVED {
                let why = format!("{node}: the key `{key}` is reserved in this program{KEY_ENDS}");
                return Err(A::Error::custom(why));
            }
            members.next_value_seed(node)?;
            keys.insert(key);
        }
        Ok(())
    }
}
