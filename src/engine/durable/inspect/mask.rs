//! Masking of secrets in parameters of model calls.

use serde_json::{Map, Value};

/// Text that replaces a secret.
const MASK: &str = "***";

/// Words in the names of fields with secrets, without case, hyphens and underscores.
// `token` alone is not one of them: `maxTokens` is a number that the reader needs.
const SECRET: [&str; 8] = [
    "apikey",
    "authorization",
    "secret",
    "password",
    "passwd",
    "accesstoken",
    "authtoken",
    "bearer",
];

/// Returns the parameters with every value masked whose name is that of a secret.
pub(in crate::engine::durable) fn masked(parameters: Map<String, Value>) -> Map<String, Value> {
    let field = |(name, value): (String, Value)| {
        let value = if is_secret(&name) && !value.is_null() {
            Value::from(MASK)
        } else {
            masked_value(value)
        };
        (name, value)
    };
    parameters.into_iter().map(field).collect()
}

fn masked_value(value: Value) -> Value {
    match value {
        // Nesting of a parameter is limited by the loader, so the recursion is too.
        Value::Object(fields) => Value::Object(masked(fields)),
        Value::Array(items) => items.into_iter().map(masked_value).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value,
    }
}

fn is_secret(name: &str) -> bool {
    let letters = name.chars().filter(|letter| !matches!(letter, '-' | '_' | ' '));
    let name: String = letters.flat_map(char::to_lowercase).collect();
    SECRET.iter().any(|word| name.contains(word))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_of_secret_fields_are_masked_at_every_depth() {
        let parameters =
            json!({"maxTokens": 5, "API-Key": "k", "extra": [{"x_api_key": "k", "Authorization": ["k"], "n": "k"}]});
        let Value::Object(parameters) = parameters else {
            unreachable!()
        };
        let expected = json!({"maxTokens": 5, "API-Key": "***", "extra": [{"x_api_key": "***", "Authorization": "***", "n": "k"}]});
        assert_eq!(Value::Object(masked(parameters)), expected);
    }
}
