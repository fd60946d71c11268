//! Reducers: the one value of a variable that several paths have set.

use serde_json::Value;

use crate::definition::ReducerWord;

/// The values of the paths, in path order, as one; none where they are not of a type that the reducer takes.
pub(super) fn reduce<'a>(reducer: ReducerWord, values: impl IntoIterator<Item = &'a Value>) -> Option<Value> {
    let mut values = values.into_iter();
    let first = values.next()?.clone();
    values.try_fold(first, |a, b| combine(reducer, a, b))
}

fn combine(reducer: ReducerWord, a: Value, b: &Value) -> Option<Value> {
    match reducer {
        ReducerWord::Last => Some(b.clone()),
        ReducerWord::Append => {
            let mut items = listed(a);
            items.extend(listed(b.clone()));
            Some(Value::Array(items))
        }
        ReducerWord::Union => {
            let mut items: Vec<Value> = Vec::new();
            for item in listed(a).into_iter().chain(listed(b.clone())) {
                if !items.contains(&item) {
                    items.push(item);
                }
            }
            Some(Value::Array(items))
        }
        ReducerWord::Sum => sum(&a, b),
        ReducerWord::Min => is_less(b, &a).map(|less| if less { b.clone() } else { a }),
        ReducerWord::Max => is_less(&a, b).map(|less| if less { b.clone() } else { a }),
        ReducerWord::Merge => match (a, b) {
            (Value::Object(mut fields), Value::Object(more)) => {
                fields.extend(more.clone());
                Some(Value::Object(fields))
            }
            (_, _) => None,
        },
    }
}

fn listed(value: Value) -> Vec<Value> {
    match value {
        Value::Array(items) => items,
        other => vec![other],
    }
}

fn sum(a: &Value, b: &Value) -> Option<Value> {
    if let (Some(a), Some(b)) = (a.as_i64(), b.as_i64())
        && let Some(sum) = a.checked_add(b)
    {
        return Some(sum.into());
    }
    let sum = a.as_f64()? + b.as_f64()?;
    serde_json::Number::from_f64(sum).map(Value::Number)
}

/// Numbers by size, texts by their characters.
fn is_less(a: &Value, b: &Value) -> Option<bool> {
    match (a, b) {
        (Value::String(a), Value::String(b)) => Some(a < b),
        (_, _) => Some(a.as_f64()? < b.as_f64()?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_reducer_makes_one_value_of_those_of_the_paths() {
        let of = |reducer, values: Value| reduce(reducer, values.as_array().expect("values"));
        for (reducer, values, expected) in [
            (ReducerWord::Last, json!([1, "x", 3]), Some(json!(3))),
            (
                ReducerWord::Append,
                json!([[1], 2, [3, [4]]]),
                Some(json!([1, 2, 3, [4]])),
            ),
            (ReducerWord::Union, json!([[1, 1], [2, 1], 3]), Some(json!([1, 2, 3]))),
            (ReducerWord::Sum, json!([1, 2, 3]), Some(json!(6))),
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
}
