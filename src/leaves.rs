//! Replacement of the leaves of JSON values.

use serde_json::Value;

/// Returns the value with `leaf` of each string, number, boolean and null in it. Names of fields stay.
pub(crate) fn map_leaves(value: &Value, leaf: &impl Fn(&Value) -> Value) -> Value {
    match value {
        Value::Array(list) => list.iter().map(|item| map_leaves(item, leaf)).collect(),
        Value::Object(fields) => fields
            .iter()
            .map(|(name, value)| (name.clone(), map_leaves(value, leaf)))
            .collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => leaf(value),
    }
}
