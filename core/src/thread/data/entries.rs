//! Conversion of an object to a list.

use serde_json::{Map, Value, json};

/// Returns the fields as a list of `{key, value}`.
pub(in crate::thread) fn entries(fields: &Map<String, Value>) -> Value {
    let entries = fields.iter().map(|(key, value)| json!({"key": key, "value": value}));
    entries.collect()
}
