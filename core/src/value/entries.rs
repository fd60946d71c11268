//! An object as a list.

use serde_json::{Map, Value, json};

/// The fields as `{key, value}`.
pub(crate) fn entries(fields: &Map<String, Value>) -> Value {
    let entries = fields.iter().map(|(key, value)| json!({"key": key, "value": value}));
    entries.collect()
}
