//! Parser of `NAME=VALUE` arguments.

use std::collections::BTreeSet;

use pirn_definition::definition::{JsonErrorKind, json_from_str};
use serde_json::Value;

use crate::failure::Failure;

/// Parses `NAME=VALUE`, where the value is JSON or plain text.
pub(crate) fn named_value(text: &str) -> Result<(String, Value), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), json_or_text(value)?)),
        Some(_) => Err("the name before the `=` is missing".to_owned()),
        None => Err("the `=` is missing".to_owned()),
    }
}

/// Parses JSON, or else returns the text as a string. JSON that would be read with a changed value is an error.
pub(crate) fn json_or_text(text: &str) -> Result<Value, String> {
    match json_from_str(text) {
        Ok(value) => Ok(value),
        Err(error) if error.kind() == JsonErrorKind::Syntax => Ok(Value::from(text)),
        Err(error) => Err(error.to_string()),
    }
}

/// Refuses an option with two values for one name.
pub(super) fn said_once(option: &str, given: &[(String, Value)]) -> Result<(), Failure> {
    let mut names = BTreeSet::new();
    match given.iter().find(|(name, _)| !names.insert(name)) {
        None => Ok(()),
        Some((name, _)) => {
            let message = format!("{option} {name}= is given twice");
            let failure = Failure::usage("USAGE", message);
            Err(failure.with_help("a name has one value; pass several values as JSON: NAME='[1, 2]'"))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_value_is_parsed_as_json_or_taken_as_a_string() {
        for (text, name, value) in [
            ("tenant=acme", "tenant", json!("acme")),
            ("a=b=c", "a", json!("b=c")),
            ("n=7", "n", json!(7)),
            (r#"n="7""#, "n", json!("7")),
            (r#"user={"id": 1}"#, "user", json!({"id": 1})),
            ("empty=", "empty", json!("")),
        ] {
            assert_eq!(named_value(text), Ok((name.to_owned(), value)), "{text}");
        }
        let twice = named_value(r#"a={"x": 1, "x": 2}"#).unwrap_err();
        assert!(twice.starts_with("/x: the key `x` is given twice"), "{twice}");
        assert_eq!(named_value("tenant"), Err("the `=` is missing".to_owned()));
        assert_eq!(
            named_value("=acme"),
            Err("the name before the `=` is missing".to_owned())
        );
    }
}
