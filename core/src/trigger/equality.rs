//! Expressions that ask whether a field of the event equals a literal: `event.nodeId === "pay"`, and more after `&&`.
//!
//! They are what an index can answer. Reading is careful: an expression that is read here is true only where the field
//! equals the literal, whatever else it says. All others are evaluated for every event of their row.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::event::{self, OWN_FIELDS, RaisedEvent};

/// `event.<field> === <literal>`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Equality {
    /// A field of the event's data.
    pub(super) field: String,
    /// What it must equal.
    pub(super) literal: Literal,
    /// `==`, which also holds between a text and a number that reads the same.
    pub(super) is_loose: bool,
    /// The expression says nothing else: the index has answered it.
    pub(super) is_all: bool,
}

/// A literal that equality can be looked up by.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Literal {
    Text(String),
    Whole(i64),
    Bool(bool),
}

/// A literal, or a value that can equal one, as it lies somewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Seen<'a> {
    Text(&'a str),
    Whole(i64),
    Bool(bool),
}

/// What a literal is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) enum Kind {
    Text,
    Whole,
    Bool,
}

/// What an index knows of a field's value.
pub(super) enum Known<'a> {
    /// It can only equal this literal.
    Is(Seen<'a>),
    /// It equals no literal.
    Nothing,
    /// It is of another kind: `==` may hold all the same.
    Other,
}

impl Equality {
    /// Reads a condition's expression; none where an index can not answer it.
    pub(super) fn read(expression: &str) -> Option<Self> {
        let (first, rest) = match expression.split_once("&&") {
            Some((first, rest)) => (first, Some(rest)),
            None => (expression, None),
        };
        // Whatever binds weaker than `&&` could make the whole true without its first part.
        if rest.is_some_and(|rest| rest.contains(['|', '?', ',', ';', '='])) && !is_chain(rest) {
            return None;
        }
        let path = first.trim().strip_prefix("event.")?;
        let end = path.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_')?;
        let (field, operator) = path.split_at(end);
        let operator = operator.trim_start();
        let (is_loose, literal) = match (operator.strip_prefix("==="), operator.strip_prefix("==")) {
            (Some(literal), _) => (false, literal),
            (None, Some(literal)) => (true, literal),
            (None, None) => return None,
        };
        if !is_data_field(field) {
            return None;
        }
        Some(Self {
            field: field.to_owned(),
            literal: Literal::read(literal.trim())?,
            is_loose,
            is_all: rest.is_none(),
        })
    }

    /// Whether the expression holds wherever the field is the literal.
    pub(super) fn says_all(&self) -> bool {
        self.is_all && !self.is_loose
    }
}

/// More comparisons joined by `&&` alone.
fn is_chain(rest: Option<&str>) -> bool {
    let rest = rest.unwrap_or_default();
    let without = rest
        .replace("===", "")
        .replace("!==", "")
        .replace("==", "")
        .replace("!=", "");
    let without = without.replace("<=", "").replace(">=", "");
    !without.contains(['|', '?', ',', ';', '='])
}

/// The event's own fields are not in its data, and names that every JavaScript object has are never missing.
fn is_data_field(name: &str) -> bool {
    const EVERYWHERE: [&str; 8] = [
        "constructor",
        "hasOwnProperty",
        "isPrototypeOf",
        "propertyIsEnumerable",
        "toLocaleString",
        "toString",
        "valueOf",
        "__proto__",
    ];
    let starts_well = name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
    starts_well && !name.starts_with("__") && !OWN_FIELDS.contains(&name) && !EVERYWHERE.contains(&name)
}

impl Literal {
    pub(super) fn seen(&self) -> Seen<'_> {
        match self {
            Self::Text(text) => Seen::Text(text),
            Self::Whole(whole) => Seen::Whole(*whole),
            Self::Bool(flag) => Seen::Bool(*flag),
        }
    }

    pub(super) fn kind(&self) -> Kind {
        self.seen().kind()
    }

    fn read(source: &str) -> Option<Self> {
        match source {
            "true" => return Some(Self::Bool(true)),
            "false" => return Some(Self::Bool(false)),
            _ => {}
        }
        let quote = source.chars().next()?;
        if matches!(quote, '"' | '\'') {
            let inside = source[1..].strip_suffix(quote)?;
            let is_plain = !inside.contains([quote, '\\', '\n', '\r']);
            return is_plain.then(|| Self::Text(inside.to_owned()));
        }
        let digits = source.strip_prefix('-').unwrap_or(source);
        let is_whole = !digits.is_empty()
            && digits.len() <= 15
            && digits.bytes().all(|byte| byte.is_ascii_digit())
            && (digits == "0" || !digits.starts_with('0'));
        is_whole.then(|| source.parse().ok().map(Self::Whole)).flatten()
    }
}

impl Seen<'_> {
    pub(super) fn kind(self) -> Kind {
        match self {
            Self::Text(_) => Kind::Text,
            Self::Whole(_) => Kind::Whole,
            Self::Bool(_) => Kind::Bool,
        }
    }
}

/// What the index knows of this field of the event.
pub(super) fn known<'a>(event: &'a RaisedEvent, field: &str) -> Known<'a> {
    let value = match event.data.look(field) {
        None => return Known::Nothing,
        Some(event::Seen::Text(text)) => return Known::Is(Seen::Text(text)),
        Some(event::Seen::Value(value)) => value,
    };
    match value {
        Value::Null => Known::Nothing,
        Value::Bool(value) => Known::Is(Seen::Bool(*value)),
        Value::String(text) => Known::Is(Seen::Text(text)),
        Value::Number(number) => whole(number).map_or(Known::Other, |whole| Known::Is(Seen::Whole(whole))),
        Value::Array(_) | Value::Object(_) => Known::Other,
    }
}

/// A number that is a whole one, however it is written; 3.0 is 3 to JavaScript.
fn whole(number: &serde_json::Number) -> Option<i64> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    number.as_i64().or_else(|| {
        let number = number.as_f64()?;
        (number.fract() == 0.0 && number.abs() < EXACT).then_some(number as i64)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(expression: &str) -> Option<(String, Literal, bool, bool)> {
        Equality::read(expression).map(|read| (read.field, read.literal, read.is_loose, read.is_all))
    }

    #[test]
    fn a_comparison_of_a_field_with_a_literal_is_read() {
        let text = Literal::Text("pay".to_owned());
        assert_eq!(
            read("event.nodeId === \"pay\""),
            Some(("nodeId".to_owned(), text.clone(), false, true))
        );
        assert_eq!(
            read(" event.nodeId=='pay' "),
            Some(("nodeId".to_owned(), text.clone(), true, true))
        );
        assert_eq!(
            read("event.n === -3 && event.output.total >= 5 && event.x !== 'y'"),
            Some(("n".to_owned(), Literal::Whole(-3), false, false))
        );
        assert_eq!(
            read("event.ok === true"),
            Some(("ok".to_owned(), Literal::Bool(true), false, true))
        );
    }

    #[test]
    fn what_can_be_true_without_the_comparison_is_not_read() {
        for expression in [
            "event.a === 'x' || event.b === 'y'",
            "event.a === 'x' && event.b || event.c",
            "event.a === 'x' && event.b ? 1 : 2",
            "event.a === 'x' && (event.b, true)",
            "event.a === 'x' && (y = 1)",
            "!event.a === 'x'",
            "event.a === b",
            "event.a.b === 'x'",
            "event.a === 'x' + 'y'",
            "event.a === 'it\\'s'",
            "event.a === 007",
            "event.a !== 'x'",
            "event.type === 'CUSTOM'",
            "event.toString == 'x'",
            "event['a'] === 'x'",
            "events.a === 'x'",
            "event.a",
            "",
        ] {
            assert_eq!(read(expression), None, "{expression}");
        }
    }
}
