//! Parses expressions that compare a field of the event with a literal: `event.nodeId === "pay"`, of a CUSTOM event
//! `event.data.order === 7`, optionally followed by further `&&` conditions.
//!
//! An index answers these comparisons. The parser is conservative: an expression that it accepts can be true only if the field
//! equals the literal. All other expressions are evaluated for every event of their type and name.

use pirn_definition::event_type::EventType;
use serde_json::Value;
use smol_str::SmolStr;

use crate::event::{FieldRef, OWN_FIELDS, RaisedEvent};

/// `event.<field> === <literal>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Equality {
    /// Field of the event's type, or `data.<key>`.
    pub(super) field: SmolStr,
    /// Literal that the field must equal.
    pub(super) literal: Literal,
    /// `==`, which also matches a string and a number that convert to one value.
    pub(super) is_loose: bool,
    /// The comparison is the whole expression.
    pub(super) is_alone: bool,
}

/// Literal with exact equality, usable as a key of the index.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Literal {
    Text(SmolStr),
    Whole(i64),
    Bool(bool),
}

/// Type of a literal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum LiteralKind {
    Text,
    Whole,
    Bool,
}

/// Value of an event's field, for comparison with a literal.
pub(super) enum FieldValue {
    /// Absent or `null`: equals no literal.
    Absent,
    /// Equals this literal, and by `===` no other.
    Literal(Literal),
    /// Of a type without literals, such as an object: only `==` may match.
    Other,
}

impl Equality {
    /// Parses a condition's expression; `None` if an index cannot answer it.
    pub(super) fn read(expression: &str, event_type: EventType) -> Option<Self> {
        // A `&&` inside a string literal splits the literal. `Literal::read` then finds no closing quote and rejects it.
        let (first, rest) = match expression.split_once("&&") {
            Some((first, rest)) => (first, Some(rest)),
            None => (expression, None),
        };
        // Operators that bind weaker than `&&` could make the expression true without its first part.
        if rest.is_some_and(|rest| rest.contains(['|', '?', ',', ';', '='])) && !is_chain(rest) {
            return None;
        }
        let path = first.trim().strip_prefix("event.")?;
        // Other events have no `data`: their evaluation fails, and the index must not hide that error.
        let data = path.strip_prefix(IN_DATA).filter(|_| event_type == EventType::Custom);
        let name = data.unwrap_or(path);
        // A longer path (`a.b`) stops here too and is rejected below, because no operator follows.
        let end = name.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_')?;
        let (field, operator) = path.split_at(path.len() - name.len() + end);
        let operator = operator.trim_start();
        // The longer operator first: `==` is a prefix of it.
        let (is_loose, literal) = match (operator.strip_prefix("==="), operator.strip_prefix("==")) {
            (Some(literal), _) => (false, literal),
            (None, Some(literal)) => (true, literal),
            (None, None) => return None,
        };
        // The index reads the fields of the event's type, which never contain these.
        let is_own = data.is_none() && OWN_FIELDS.contains(&field);
        if is_own || !is_found_only_where_given(&name[..end]) {
            return None;
        }
        Some(Self {
            field: SmolStr::new(field),
            literal: Literal::read(literal.trim())?,
            is_loose,
            is_alone: rest.is_none(),
        })
    }

    /// True if the expression is true exactly if the field equals the literal.
    pub(super) fn is_whole_expression(&self) -> bool {
        self.is_alone && !self.is_loose
    }
}

/// True if the rest consists of comparisons joined by `&&` alone.
fn is_chain(rest: Option<&str>) -> bool {
    let rest = rest.unwrap_or_default();
    let without = rest
        .replace("===", "")
        .replace("!==", "")
        .replace("==", "")
        .replace("!=", "");
    // A `=` that remains is an assignment or part of `=>`: the expression does more than compare.
    let without = without.replace("<=", "").replace(">=", "");
    !without.contains(['|', '?', ',', ';', '='])
}

/// Prefix of a key of a CUSTOM event's data.
const IN_DATA: &str = "data.";

/// False for names that every JavaScript object inherits: those are never absent.
fn is_found_only_where_given(name: &str) -> bool {
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
    // Includes names such as `__defineGetter__`, which every object inherits too.
    starts_well && !name.starts_with("__") && !EVERYWHERE.contains(&name)
}

impl Literal {
    pub(super) fn kind(&self) -> LiteralKind {
        match self {
            Self::Text(_) => LiteralKind::Text,
            Self::Whole(_) => LiteralKind::Whole,
            Self::Bool(_) => LiteralKind::Bool,
        }
    }

    fn read(source: &str) -> Option<Self> {
        match source {
            "true" => return Some(Self::Bool(true)),
            "false" => return Some(Self::Bool(false)),
            _ => {}
        }
        let quote = source.chars().next()?;
        if matches!(quote, '"' | '\'') {
            // The quote is one byte, so the slice is valid.
            let inside = source[1..].strip_suffix(quote)?;
            // An escape or a quote inside needs the rules of JavaScript, which the evaluation applies.
            let is_plain = !inside.contains([quote, '\\', '\n', '\r']);
            return is_plain.then(|| Self::Text(SmolStr::new(inside)));
        }
        // Up to 15 digits are exact in a JavaScript number. A leading 0 could mean an octal number.
        let digits = source.strip_prefix('-').unwrap_or(source);
        let is_whole = !digits.is_empty()
            && digits.len() <= 15
            && digits.bytes().all(|byte| byte.is_ascii_digit())
            && (digits == "0" || !digits.starts_with('0'));
        is_whole.then(|| source.parse().ok().map(Self::Whole)).flatten()
    }
}

/// Returns the value of a field of the event's type, or of `data.<key>`.
pub(super) fn field_value(event: &RaisedEvent, field: &str) -> FieldValue {
    let looked = match field.strip_prefix(IN_DATA) {
        Some(key) => event.fields.look_data(key),
        None => event.fields.look(field),
    };
    let value = match looked {
        None => return FieldValue::Absent,
        Some(FieldRef::Text(text)) => return FieldValue::Literal(Literal::Text(SmolStr::new(text))),
        Some(FieldRef::Value(value)) => value,
    };
    match value {
        Value::Null => FieldValue::Absent,
        Value::Bool(value) => FieldValue::Literal(Literal::Bool(*value)),
        Value::String(text) => FieldValue::Literal(Literal::Text(SmolStr::new(text))),
        Value::Number(number) => {
            whole(number).map_or(FieldValue::Other, |whole| FieldValue::Literal(Literal::Whole(whole)))
        }
        Value::Array(_) | Value::Object(_) => FieldValue::Other,
    }
}

/// Returns a number as an integer if it has no fraction: 3.0 is 3 in JavaScript.
fn whole(number: &serde_json::Number) -> Option<i64> {
    // From 2^53 on, several integers are one number in JavaScript.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    number.as_i64().or_else(|| {
        let number = number.as_f64()?;
        (number.fract() == 0.0 && number.abs() < EXACT).then_some(number as i64)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(expression: &str) -> Option<(SmolStr, Literal, bool, bool)> {
        Equality::read(expression, EventType::Custom)
            .map(|read| (read.field, read.literal, read.is_loose, read.is_alone))
    }

    #[test]
    fn a_comparison_of_a_field_with_a_literal_is_indexed() {
        let text = Literal::Text("pay".into());
        assert_eq!(
            read("event.nodeId === \"pay\""),
            Some(("nodeId".into(), text.clone(), false, true))
        );
        assert_eq!(
            read(" event.nodeId=='pay' "),
            Some(("nodeId".into(), text.clone(), true, true))
        );
        assert_eq!(
            read("event.n === -3 && event.output.total >= 5 && event.x !== 'y'"),
            Some(("n".into(), Literal::Whole(-3), false, false))
        );
        assert_eq!(
            read("event.ok === true"),
            Some(("ok".into(), Literal::Bool(true), false, true))
        );
        assert_eq!(
            read("event.data.type === 7 && true"),
            Some(("data.type".into(), Literal::Whole(7), false, false))
        );
        assert_eq!(
            Equality::read("event.data.type === 7", EventType::NodeStarted),
            None,
            "its evaluation fails"
        );
    }

    #[test]
    fn a_condition_that_can_hold_without_the_comparison_is_not_indexed() {
        for expression in [
            "event.a === 'x' || event.b === 'y'",
            "event.a === 'x' && event.b || event.c",
            "event.a === 'x' && event.b ? 1 : 2",
            "event.a === 'x' && (event.b, true)",
            "event.a === 'x' && (y = 1)",
            "!event.a === 'x'",
            "event.a === b",
            "event.a.b === 'x'",
            "event.data.a.b === 'x'",
            "event.data.toString == 'x'",
            "event.a === 'x' + 'y'",
            "event.a === 'it\\'s'",
            "event.a === 007",
            "event.a === +5",
            "event.a === 1234567890123456",
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
