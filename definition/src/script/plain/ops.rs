//! Results of operators and built-ins for which JavaScript's result is certain.

use std::borrow::Cow;
use std::cmp::Ordering;

use serde_json::{Number, Value};

use super::{Global, Method, Op};
use crate::script::Path;

/// A value during an evaluation.
#[derive(Clone, Debug)]
pub(super) enum Val<'a> {
    Undefined,
    Null,
    Bool(bool),
    Number(f64),
    Text(Cow<'a, str>),
    /// The list or object at a path, copied only if it is the result.
    At(&'a Path),
    /// A list or object that the expression creates.
    Made(Value),
}

/// Larger integers have no exact double.
const LARGEST_EXACT: f64 = 9_007_199_254_740_992.0;

/// Converts a number to JSON; `None` for numbers that JSON cannot represent.
pub(super) fn json_number(number: f64) -> Option<Value> {
    if number.fract() == 0.0 && number.abs() <= LARGEST_EXACT {
        return Some(Value::from(number as i64));
    }
    Number::from_f64(number).map(Value::Number)
}

impl Val<'_> {
    pub(super) fn is_truthy(&self) -> bool {
        match self {
            Self::Undefined | Self::Null => false,
            Self::Bool(truth) => *truth,
            Self::Number(number) => *number != 0.0 && !number.is_nan(),
            Self::Text(text) => !text.is_empty(),
            Self::At(_) | Self::Made(_) => true,
        }
    }

    pub(super) fn type_name(&self) -> &'static str {
        match self {
            Self::Undefined => "undefined",
            Self::Null | Self::At(_) | Self::Made(_) => "object",
            Self::Bool(_) => "boolean",
            Self::Number(_) => "number",
            Self::Text(_) => "string",
        }
    }

    /// Converts for arithmetic; `None` for strings, lists and objects.
    pub(super) fn number(&self) -> Option<f64> {
        match self {
            Self::Undefined => Some(f64::NAN),
            Self::Null => Some(0.0),
            Self::Bool(truth) => Some(f64::from(u8::from(*truth))),
            Self::Number(number) => Some(*number),
            Self::Text(_) | Self::At(_) | Self::Made(_) => None,
        }
    }

    /// Converts to a string; `None` for lists, objects and numbers that JavaScript writes with an exponent.
    pub(super) fn text(&self) -> Option<Cow<'_, str>> {
        Some(match self {
            Self::Undefined => "undefined".into(),
            Self::Null => "null".into(),
            Self::Bool(truth) => if *truth { "true" } else { "false" }.into(),
            Self::Number(number) => match number {
                _ if number.is_nan() => "NaN".into(),
                _ if *number == 0.0 => "0".into(),
                _ if (1e-6..1e21).contains(&number.abs()) => number.to_string().into(),
                _ => return None,
            },
            Self::Text(text) => Cow::Borrowed(text),
            Self::At(_) | Self::Made(_) => return None,
        })
    }

    /// Evaluates `===`; `None` if both are lists or objects.
    fn is_same(&self, other: &Self) -> Option<bool> {
        Some(match (self, other) {
            (Self::At(_) | Self::Made(_), Self::At(_) | Self::Made(_)) => return None,
            (Self::Undefined, Self::Undefined) | (Self::Null, Self::Null) => true,
            (Self::Bool(one), Self::Bool(other)) => one == other,
            #[allow(clippy::float_cmp)] // as JavaScript does
            (Self::Number(one), Self::Number(other)) => one == other,
            (Self::Text(one), Self::Text(other)) => one == other,
            _ => false,
        })
    }

    /// Evaluates `==`; `None` if JavaScript would convert an operand.
    fn is_equal(&self, other: &Self) -> Option<bool> {
        let is_nothing = |value: &Self| matches!(value, Self::Undefined | Self::Null);
        if is_nothing(self) || is_nothing(other) {
            return Some(is_nothing(self) && is_nothing(other));
        }
        if self.type_name() == other.type_name() {
            return self.is_same(other);
        }
        None
    }

    /// Evaluates an ordering operator such as `<`; NaN is false. `None` if JavaScript would convert a string.
    fn is_ordered(&self, other: &Self, holds: fn(Ordering) -> bool) -> Option<bool> {
        if let (Self::Text(one), Self::Text(other)) = (self, other) {
            return Some(holds(one.encode_utf16().cmp(other.encode_utf16())));
        }
        let order = self.number()?.partial_cmp(&other.number()?);
        Some(order.is_some_and(holds))
    }
}

/// Evaluates a binary operator, except those that may skip the second operand.
pub(super) fn binary<'a>(op: Op, left: &Val<'a>, right: &Val<'a>) -> Option<Val<'a>> {
    let truth = |truth: bool| Some(Val::Bool(truth));
    let ordered = |holds: fn(Ordering) -> bool| Some(Val::Bool(left.is_ordered(right, holds)?));
    let arithmetic = |compute: fn(f64, f64) -> f64| Some(Val::Number(compute(left.number()?, right.number()?)));
    match op {
        Op::Same => truth(left.is_same(right)?),
        Op::NotSame => truth(!left.is_same(right)?),
        Op::Equal => truth(left.is_equal(right)?),
        Op::NotEqual => truth(!left.is_equal(right)?),
        Op::Less => ordered(Ordering::is_lt),
        Op::AtMost => ordered(Ordering::is_le),
        Op::Greater => ordered(Ordering::is_gt),
        Op::AtLeast => ordered(Ordering::is_ge),
        Op::Add if matches!(left, Val::Text(_)) || matches!(right, Val::Text(_)) => {
            Some(Val::Text(Cow::Owned([left.text()?, right.text()?].concat())))
        }
        Op::Add => arithmetic(|left, right| left + right),
        Op::Subtract => arithmetic(|left, right| left - right),
        Op::Multiply => arithmetic(|left, right| left * right),
        Op::Divide => arithmetic(|left, right| left / right),
        Op::Remainder => arithmetic(|left, right| left % right),
        Op::And | Op::Or | Op::Coalesce | Op::Not | Op::Negate | Op::ToNumber | Op::Typeof => None,
    }
}

/// Evaluates a unary operator.
pub(super) fn unary<'a>(op: Op, value: &Val<'a>) -> Option<Val<'a>> {
    match op {
        Op::Not => Some(Val::Bool(!value.is_truthy())),
        Op::Negate => Some(Val::Number(-value.number()?)),
        Op::ToNumber => Some(Val::Number(value.number()?)),
        Op::Typeof => Some(Val::Text(value.type_name().into())),
        _ => None,
    }
}

/// Calls a method of a string; `None` if the result depends on Unicode tables, or an argument would be converted.
pub(super) fn method<'a>(method: Method, text: &str, argument: Option<&Val<'_>>) -> Option<Val<'a>> {
    let truth = |truth: bool| Some(Val::Bool(truth));
    match (method, argument) {
        (Method::Includes, Some(Val::Text(part))) => truth(text.contains(&**part)),
        (Method::StartsWith, Some(Val::Text(part))) => truth(text.starts_with(&**part)),
        (Method::EndsWith, Some(Val::Text(part))) => truth(text.ends_with(&**part)),
        (Method::IndexOf, Some(Val::Text(part))) => {
            let place = text.find(&**part).map(|at| text[..at].encode_utf16().count());
            Some(Val::Number(place.map_or(-1.0, |place| place as f64)))
        }
        (Method::Trim, None) if text.is_ascii() => {
            let is_space = |letter| matches!(letter, '\t' | '\n' | '\u{b}' | '\u{c}' | '\r' | ' ');
            Some(Val::Text(Cow::Owned(text.trim_matches(is_space).to_owned())))
        }
        (Method::ToLowerCase, None) if text.is_ascii() => Some(Val::Text(Cow::Owned(text.to_ascii_lowercase()))),
        (Method::ToUpperCase, None) if text.is_ascii() => Some(Val::Text(Cow::Owned(text.to_ascii_uppercase()))),
        _ => None,
    }
}

/// Calls `includes` or `indexOf` on a list; `None` if the result is not certain.
pub(super) fn method_of_list<'a>(method: Method, items: &[Value], argument: Option<&Val<'_>>) -> Option<Val<'a>> {
    let wanted = argument?;
    if matches!(wanted, Val::At(_) | Val::Made(_)) {
        return None;
    }
    let is_wanted = |item: &Value| match (item, wanted) {
        (Value::Null, Val::Null) => true,
        (Value::Bool(item), Val::Bool(wanted)) => item == wanted,
        #[allow(clippy::float_cmp)] // as JavaScript does; a list of JSON has no NaN
        (Value::Number(item), Val::Number(wanted)) => item.as_f64() == Some(*wanted),
        (Value::String(item), Val::Text(wanted)) => item == &**wanted,
        _ => false,
    };
    match method {
        Method::Includes => Some(Val::Bool(items.iter().any(is_wanted))),
        Method::IndexOf => {
            let place = items.iter().position(is_wanted);
            Some(Val::Number(place.map_or(-1.0, |place| place as f64)))
        }
        Method::StartsWith | Method::EndsWith | Method::Trim | Method::ToLowerCase | Method::ToUpperCase => None,
    }
}

/// Calls a JavaScript function, except those for lists.
pub(super) fn global<'a>(global: Global, arguments: &[Val<'a>]) -> Option<Val<'a>> {
    let numbers = || arguments.iter().map(Val::number).collect::<Option<Vec<f64>>>();
    match (global, arguments) {
        (Global::Boolean, [value]) => Some(Val::Bool(value.is_truthy())),
        (Global::Number, [value]) => Some(Val::Number(value.number()?)),
        (Global::String, [value]) => Some(Val::Text(Cow::Owned(value.text()?.into_owned()))),
        (Global::Abs, [value]) => Some(Val::Number(value.number()?.abs())),
        (Global::Ceil, [value]) => Some(Val::Number(value.number()?.ceil())),
        (Global::Floor, [value]) => Some(Val::Number(value.number()?.floor())),
        (Global::Trunc, [value]) => Some(Val::Number(value.number()?.trunc())),
        (Global::Max, _) => Some(Val::Number(extreme(&numbers()?, f64::NEG_INFINITY, |one, other| {
            one > other
        }))),
        (Global::Min, _) => Some(Val::Number(extreme(&numbers()?, f64::INFINITY, |one, other| {
            one < other
        }))),
        (
            Global::Boolean
            | Global::Number
            | Global::String
            | Global::Abs
            | Global::Ceil
            | Global::Floor
            | Global::Trunc
            | Global::IsArray,
            _,
        ) => None,
    }
}

fn extreme(numbers: &[f64], none: f64, is_better: fn(f64, f64) -> bool) -> f64 {
    numbers.iter().fold(none, |best, number| match number {
        _ if best.is_nan() || number.is_nan() => f64::NAN,
        _ if is_better(*number, best) => *number,
        _ => best,
    })
}
