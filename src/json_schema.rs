//! Values against a JSON Schema.

use serde_json::Value;

/// Checks a value against a schema; the error says what is wrong with it.
#[cfg(any(feature = "providers", feature = "tools"))]
pub(crate) fn fits(schema: &Value, value: &Value) -> Result<(), String> {
    /// Characters of a fault that are shown: it quotes what was given.
    const SHOWN: usize = 400;
    let schema = jsonschema::validator_for(schema).map_err(|error| format!("its schema is no JSON Schema: {error}"))?;
    schema.validate(value).map_err(|fault| {
        let shown: String = fault.to_string().chars().take(SHOWN).collect();
        match fault.instance_path().to_string() {
            place if place.is_empty() => shown,
            place => format!("at {place}: {shown}"),
        }
    })
}

/// Without the library everything fits.
#[cfg(not(any(feature = "providers", feature = "tools")))]
#[allow(clippy::unnecessary_wraps)] // the other one's signature
pub(crate) fn fits(_: &Value, _: &Value) -> Result<(), String> {
    Ok(())
}
