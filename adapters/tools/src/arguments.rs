//! Checks arguments against a tool's schema.
//!
//! With the feature `tools`, `jsonschema` decides; frequent errors of models (types, required fields, enumerations) get dedicated
//! messages. A schema that it cannot read, or one with references to other documents, is only checked for the frequent errors.

use serde_json::Value;

#[cfg(feature = "tools")]
use super::schema_size::is_bounded;

/// Maximum characters of a displayed fault.
const SHOWN: usize = 400;

/// Returns the beginning of a text that quotes a value or a schema.
pub(crate) fn shown(quoting: &impl ToString) -> String {
    quoting.to_string().chars().take(SHOWN).collect()
}

/// Checker of one tool's arguments.
pub(super) struct Checker {
    schema: Value,
    #[cfg(feature = "tools")]
    whole: Option<jsonschema::Validator>,
}

impl Checker {
    /// Compiles a tool's schema, once.
    pub(super) fn new(schema: Value) -> Self {
        Self {
            #[cfg(feature = "tools")]
            whole: is_bounded(&schema)
                .then(|| jsonschema::validator_for(&schema).ok())
                .flatten(),
            schema,
        }
    }

    /// Returns the schema if it can be checked completely, otherwise one that accepts any arguments.
    pub(super) fn schema(&self) -> Value {
        #[cfg(feature = "tools")]
        if self.whole.is_none() {
            return serde_json::json!({"type": "object"});
        }
        self.schema.clone()
    }

    /// Checks arguments.
    ///
    /// # Errors
    /// One sentence with the location of the fault.
    pub(super) fn check(&self, given: &Value) -> Result<(), String> {
        #[cfg(feature = "tools")]
        if let Some(whole) = &self.whole {
            let Err(fault) = whole.validate(given) else {
                return Ok(());
            };
            check(&self.schema, given)?;
            let place = fault.instance_path().to_string().replace('/', ".");
            return Err(format!("arguments{place}: {}", shown(&fault)));
        }
        check(&self.schema, given)
    }
}

/// Maximum depth of nested schemas that are checked.
const MOST_DEPTH: usize = 16;

fn check(schema: &Value, given: &Value) -> Result<(), String> {
    check_at("arguments", schema, given, 0)
}

fn check_at(place: &str, schema: &Value, given: &Value, depth: usize) -> Result<(), String> {
    if depth > MOST_DEPTH {
        return Ok(());
    }
    let kinds: Vec<&str> = match schema.get("type") {
        Some(Value::String(kind)) => vec![kind],
        Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).collect(),
        Some(_) | None => Vec::new(),
    };
    if !kinds.is_empty() && !kinds.iter().any(|kind| is_kind(kind, given)) {
        return Err(format!("{place} must be of type {}", kinds.join(" or ")));
    }
    if let Some(Value::Array(allowed)) = schema.get("enum")
        && !allowed.contains(given)
    {
        let shown = shown(&Value::Array(allowed.clone()));
        return Err(format!("{place} must be one of {shown}"));
    }
    if let Value::Object(given) = given {
        let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
        for name in required.filter_map(Value::as_str) {
            if !given.contains_key(name) {
                return Err(format!("{place}.{name} is missing"));
            }
        }
        let properties = schema
            .get("properties")
            .and_then(Value::as_object)
            .into_iter()
            .flatten();
        for (name, schema) in properties {
            if let Some(value) = given.get(name) {
                check_at(&format!("{place}.{name}"), schema, value, depth + 1)?;
            }
        }
    }
    if let (Value::Array(given), Some(items)) = (given, schema.get("items")) {
        // `items` does not apply to the items of `prefixItems`.
        let prefix = schema.get("prefixItems").and_then(Value::as_array).map_or(0, Vec::len);
        for (index, value) in given.iter().enumerate().skip(prefix) {
            check_at(&format!("{place}[{index}]"), items, value, depth + 1)?;
        }
    }
    Ok(())
}

fn is_kind(kind: &str, value: &Value) -> bool {
    match kind {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "number" => value.is_number(),
        "integer" => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        // Unknown types accept every value.
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn arguments_that_the_schema_accepts_are_accepted() {
        let tuple = json!({"type": "array", "prefixItems": [{"type": "string"}], "items": {"type": "number"}});
        for (schema, given) in [
            (json!({"properties": {"row": tuple}}), json!({"row": ["a", 1, 2]})),
            // With a reference to itself, only the frequent errors are checked.
            (
                json!({"properties": {"row": tuple, "next": {"$ref": "#"}}}),
                json!({"row": ["a", 1], "next": {}}),
            ),
            #[cfg(feature = "tools")]
            (
                json!({"properties": {"level": {"enum": [1, 2]}}}),
                json!({"level": 1.0}),
            ),
        ] {
            let checker = Checker::new(schema.clone());
            assert_eq!(checker.check(&given), Ok(()), "{schema}");
        }
        let checker = Checker::new(json!({"properties": {"row": tuple}}));
        let refused = checker.check(&json!({"row": ["a", "b"]})).expect_err("not a number");
        assert_eq!(refused, "arguments.row[1] must be of type number");
    }
}
