//! Validation by JSON Schema.

use pirn_definition::value::SchemaMismatch;
use serde_json::Value;

/// Checks a value against a schema; the error describes the mismatch.
#[cfg(feature = "schema")]
pub fn fits(schema: &Value, value: &Value) -> Result<(), SchemaMismatch> {
    let validator = jsonschema::validator_for(schema);
    let validator = validator.map_err(|error| SchemaMismatch::new(format!("its schema {}", no_schema(&error))))?;
    validator.validate(value).map_err(|fault| {
        SchemaMismatch::new(match fault.instance_path().to_string() {
            place if place.is_empty() => shown(&fault),
            place => format!("at {place}: {}", shown(&fault)),
        })
    })
}

/// Returns the fault of an invalid schema, or `None` if it is valid.
#[cfg(feature = "schema")]
pub fn schema_fault(schema: &Value) -> Option<String> {
    let error = jsonschema::validator_for(schema).err()?;
    Some(no_schema(&error))
}

#[cfg(feature = "schema")]
fn no_schema(error: &jsonschema::ValidationError<'_>) -> String {
    /// The values of `type`.
    const TYPES: [&str; 7] = ["array", "boolean", "integer", "null", "number", "object", "string"];
    let place = error.instance_path().to_string();
    if let Some(word) = error.instance().as_str().filter(|_| place.ends_with("/type")) {
        let meant = pirn_definition::definition::nearest(word, TYPES.into_iter());
        let help = meant.map_or_else(
            || format!("the types are {}", TYPES.join(", ")),
            |near| format!("did you mean `{near}`?"),
        );
        let word: String = word.chars().take(SHOWN).collect();
        return format!("is not a JSON Schema: at {place}: unknown type `{word}`; {help}");
    }
    match place {
        place if place.is_empty() => format!("is not a JSON Schema: {}", shown(error)),
        place => format!("is not a JSON Schema: at {place}: {}", shown(error)),
    }
}

/// Maximum number of characters of a message or a value that are shown.
#[cfg(feature = "schema")]
const SHOWN: usize = 400;

/// Returns the beginning of an error message, which quotes the value.
#[cfg(feature = "schema")]
fn shown(error: &jsonschema::ValidationError<'_>) -> String {
    error.to_string().chars().take(SHOWN).collect()
}

/// Accepts every value in builds without the library.
#[cfg(not(feature = "schema"))]
#[allow(clippy::unnecessary_wraps)] // the other one's signature
pub fn fits(_: &Value, _: &Value) -> Result<(), SchemaMismatch> {
    Ok(())
}

/// Accepts every schema in builds without the library.
#[cfg(not(feature = "schema"))]
pub fn schema_fault(_: &Value) -> Option<String> {
    None
}
