//! Reducers: combine the values that several paths gave one variable.

use std::collections::HashSet;
use std::hash::{BuildHasher, Hash, Hasher};

use foldhash::fast::FixedState;
use pirn_definition::definition::ReducerWord;
use pirn_definition::error::ScriptFault;
use pirn_definition::value::ValueBudget;
use serde_json::{Map, Number, Value};

/// A value that equals another if their numbers are equal by value: `1` and `1.0` are one number, as in an expression.
#[derive(Clone, Copy)]
pub(super) struct ByValue<'a>(pub(super) &'a Value);

impl PartialEq for ByValue<'_> {
    fn eq(&self, other: &Self) -> bool {
        match (self.0, other.0) {
            (Value::Number(a), Value::Number(b)) => by_value(a) == by_value(b),
            (Value::Array(a), Value::Array(b)) => a.iter().map(ByValue).eq(b.iter().map(ByValue)),
            (Value::Object(a), Value::Object(b)) => {
                let is_in_b = |(name, a)| b.get(name).is_some_and(|b| ByValue(a) == ByValue(b));
                a.len() == b.len() && a.iter().all(is_in_b)
            }
            (a, b) => a == b,
        }
    }
}

impl Eq for ByValue<'_> {}

impl Hash for ByValue<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::mem::discriminant(self.0).hash(state);
        match self.0 {
            Value::Null => {}
            Value::Bool(value) => value.hash(state),
            Value::Number(number) => by_value(number).hash(state),
            Value::String(text) => text.hash(state),
            Value::Array(items) => {
                items.len().hash(state);
                for item in items {
                    ByValue(item).hash(state);
                }
            }
            Value::Object(fields) => {
                // The sum does not depend on the order of the fields, which may be that of their insertion.
                let hashes = fields
                    .iter()
                    .map(|(name, value)| FixedState::default().hash_one((name, ByValue(value))));
                hashes.fold(0, u64::wrapping_add).hash(state);
            }
        }
    }
}

/// Returns the integer if the number is one, else the bits of the floating-point number.
fn by_value(number: &Number) -> Result<i128, u64> {
    if let Some(integer) = number.as_i128() {
        return Ok(integer);
    }
    let float = number.as_f64().unwrap_or_default();
    // Within the range of the type the conversion is exact. All integers of JSON are far below the limit.
    if float.fract() == 0.0 && float.abs() < 1e38 {
        Ok(float as i128)
    } else {
        Err(float.to_bits())
    }
}

/// Combines the values of the paths, in path order. Returns `None` if a value has a type that the reducer does not accept. Linear
/// in the total size of the values.
///
/// # Errors
/// `SCRIPT_LIMIT_EXCEEDED` if the value becomes too large: a loop around the FORK may double it.
pub(super) fn reduce<'a>(
    reducer: ReducerWord,
    values: impl IntoIterator<Item = &'a Value>,
) -> Result<Option<Value>, ScriptFault> {
    let mut values = values.into_iter();
    Ok(match reducer {
        // Without a budget, because a copy of one value cannot grow in a loop.
        ReducerWord::Last => values.last().cloned(),
        ReducerWord::Append => Some(Value::Array(listed(values, |_| true)?)),
        ReducerWord::Union => Some(Value::Array(listed(values, first_of_each(ByValue))?)),
        ReducerWord::Merge => merge(values)?.map(Value::Object),
        ReducerWord::Sum | ReducerWord::Min | ReducerWord::Max => {
            let Some(first) = values.next().cloned() else {
                return Ok(None);
            };
            values.try_fold(first, |a, b| combine(reducer, a, b))
        }
    })
}

/// Returns the index of the first value of a type that the reducer cannot combine with the others; `None` if it accepts all types and
/// the result is out of range.
pub(super) fn misfit(reducer: ReducerWord, values: &[&Value]) -> Option<usize> {
    let is_accepted = |value: &Value| match reducer {
        ReducerWord::Sum => value.is_number(),
        ReducerWord::Min | ReducerWord::Max => value.is_number() || value.is_string(),
        ReducerWord::Merge => value.is_object(),
        ReducerWord::Last | ReducerWord::Append | ReducerWord::Union => true,
    };
    let first = values.first()?;
    // Numbers and strings are ordered, but not with each other.
    let is_like_first = |value: &Value| value.is_string() == first.is_string();
    let alone = values.iter().position(|&value| !is_accepted(value));
    alone.or_else(|| values.iter().position(|&value| !is_like_first(value)))
}

/// Returns a predicate that is true for items without a predecessor of an equal key. The set's order is never observable.
fn first_of_each<'a, T: 'a, K: Hash + Eq>(key: impl Fn(&'a T) -> K) -> impl FnMut(&&'a T) -> bool {
    let mut known: HashSet<K, FixedState> = HashSet::default();
    move |item| known.insert(key(*item))
}

/// Concatenates the items of all lists that satisfy the predicate; a value that is not a list is an item.
fn listed<'a>(
    values: impl Iterator<Item = &'a Value>,
    mut is_wanted: impl FnMut(&&'a Value) -> bool,
) -> Result<Vec<Value>, ScriptFault> {
    let mut room = ValueBudget::default();
    let mut all = Vec::new();
    for value in values {
        let items = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
        for item in items.iter().filter(&mut is_wanted) {
            // Before the copy, so that the limit also bounds the memory in use.
            room.take(item, 1)?;
            all.push(item.clone());
        }
    }
    Ok(all)
}

fn merge<'a>(values: impl Iterator<Item = &'a Value>) -> Result<Option<Map<String, Value>>, ScriptFault> {
    let mut room = ValueBudget::default();
    let mut fields = Map::new();
    for value in values {
        let Some(more) = value.as_object() else {
            return Ok(None);
        };
        // Fields that a later path replaces count too: the sum is an upper bound.
        room.take(value, 0)?;
        fields.extend(more.iter().map(|(name, value)| (name.clone(), value.clone())));
    }
    Ok(Some(fields))
}

fn combine(reducer: ReducerWord, a: Value, b: &Value) -> Option<Value> {
    match reducer {
        ReducerWord::Sum => sum(&a, b),
        ReducerWord::Min => is_less(b, &a).map(|less| if less { b.clone() } else { a }),
        ReducerWord::Max => is_less(&a, b).map(|less| if less { b.clone() } else { a }),
        ReducerWord::Last | ReducerWord::Append | ReducerWord::Union | ReducerWord::Merge => None,
    }
}

fn sum(a: &Value, b: &Value) -> Option<Value> {
    if let (Some(a), Some(b)) = (a.as_i64(), b.as_i64())
        && let Some(sum) = a.checked_add(b)
    {
        return Some(sum.into());
    }
    // Also after an overflow of the integers. An infinite sum is no JSON number and gives `None`.
    let sum = a.as_f64()? + b.as_f64()?;
    serde_json::Number::from_f64(sum).map(Value::Number)
}

/// Compares numbers by value, and strings by characters.
fn is_less(a: &Value, b: &Value) -> Option<bool> {
    match (a, b) {
        (Value::String(a), Value::String(b)) => Some(a < b),
        // Two different integers above 2^53 may be equal as `f64`. JSON has no NaN: two numbers always compare.
        (_, _) => match (a.as_number()?.as_i128(), b.as_number()?.as_i128()) {
            (Some(a), Some(b)) => Some(a < b),
            _ => Some(a.as_f64()? < b.as_f64()?),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::hash::Hasher;

    use super::*;
    use serde_json::json;

    #[test]
    fn each_reducer_combines_the_values_of_the_paths() {
        let of = |reducer, values: Value| reduce(reducer, values.as_array().expect("values")).expect("small");
        for (reducer, values, expected) in [
            (ReducerWord::Last, json!([1, "x", 3]), Some(json!(3))),
            (
                ReducerWord::Append,
                json!([[1], 2, [3, [4]]]),
                Some(json!([1, 2, 3, [4]])),
            ),
            (ReducerWord::Union, json!([[1, 1], [2, 1], 3]), Some(json!([1, 2, 3]))),
            (
                ReducerWord::Union,
                json!([1, 1.0, -0.0, 0, 0.5, 0.5, {"a": [2], "b": 1}, {"b": 1.0, "a": [2.0]}, 1e300, "1", true, []]),
                Some(json!([1, -0.0, 0.5, {"a": [2], "b": 1}, 1e300, "1", true])),
            ),
            (
                ReducerWord::Union,
                // Two integers that are equal as floating-point numbers, and the number that equals one of them.
                json!([
                    9_007_199_254_740_993_i64,
                    9_007_199_254_740_992_i64,
                    9_007_199_254_740_992.0
                ]),
                Some(json!([9_007_199_254_740_993_i64, 9_007_199_254_740_992_i64])),
            ),
            (ReducerWord::Sum, json!([1, 2, 3]), Some(json!(6))),
            (
                ReducerWord::Min,
                json!([9_007_199_254_740_993_i64, 9_007_199_254_740_992_i64]),
                Some(json!(9_007_199_254_740_992_i64)),
            ),
            (
                ReducerWord::Max,
                json!([9_007_199_254_740_992_i64, 9_007_199_254_740_993_i64, -1]),
                Some(json!(9_007_199_254_740_993_i64)),
            ),
            (
                ReducerWord::Max,
                json!([u64::MAX, u64::MAX - 1, -1]),
                Some(json!(u64::MAX)),
            ),
            (ReducerWord::Sum, json!([1, 0.5]), Some(json!(1.5))),
            (
                ReducerWord::Sum,
                json!([i64::MAX, 1]),
                Some(json!(9.223_372_036_854_776e18)),
            ),
            (ReducerWord::Sum, json!([1, "2"]), None),
            (ReducerWord::Min, json!([3, 1.5, 2]), Some(json!(1.5))),
            (ReducerWord::Max, json!([3, 1.5, 4]), Some(json!(4))),
            (ReducerWord::Max, json!(["a", "c", "b"]), Some(json!("c"))),
            (ReducerWord::Min, json!(["a", 1]), None),
            (
                ReducerWord::Merge,
                json!([{"a": 1, "b": 1}, {"b": 2}]),
                Some(json!({"a": 1, "b": 2})),
            ),
            (ReducerWord::Merge, json!([{"a": 1}, 2]), None),
            (ReducerWord::Sum, json!([7]), Some(json!(7))),
        ] {
            assert_eq!(of(reducer, values.clone()), expected, "{reducer:?} of {values}");
        }
    }

    /// An item that counts its comparisons.
    struct Item<'c>(usize, &'c Cell<usize>);

    impl PartialEq for Item<'_> {
        fn eq(&self, other: &Self) -> bool {
            self.1.set(self.1.get() + 1);
            self.0 == other.0
        }
    }
    impl Eq for Item<'_> {}
    impl Hash for Item<'_> {
        fn hash<H: Hasher>(&self, state: &mut H) {
            self.0.hash(state);
        }
    }

    #[test]
    fn a_union_needs_a_linear_number_of_comparisons() {
        for count in [1_000, 10_000, 100_000] {
            let comparisons = Cell::new(0);
            // Half of them occur twice.
            let items: Vec<Item<'_>> = (0..count).map(|no| Item(no / 2, &comparisons)).collect();
            assert_eq!(items.iter().filter(first_of_each(|item| item)).count(), count / 2);
            assert!(comparisons.get() < 2 * count, "{} of {count}", comparisons.get());
        }
    }

    #[test]
    fn a_union_of_ten_thousand_paths_contains_each_item_once() {
        let values: Vec<Value> = (0..10_000).map(|path| json!([path, path / 2])).collect();
        let all = reduce(ReducerWord::Union, &values).expect("small").expect("lists");
        assert_eq!(all, json!((0..10_000).collect::<Vec<u32>>()));
    }

    #[test]
    fn a_reduced_value_over_the_size_limit_is_refused() {
        for reducer in [ReducerWord::Append, ReducerWord::Union] {
            let half = json!((0..700_000).collect::<Vec<u32>>());
            let other = json!((700_000..1_400_000).collect::<Vec<u32>>());
            assert!(reduce(reducer, [&half, &other]).is_err(), "{reducer:?}");
            assert!(reduce(reducer, [&half]).is_ok(), "{reducer:?}");
        }
        let large = json!({ "a": "x".repeat(40 << 20) });
        assert!(reduce(ReducerWord::Merge, [&large, &large]).is_err());
    }
}
