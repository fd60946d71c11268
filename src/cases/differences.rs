//! Differences of values and texts, for people.

use std::collections::BTreeSet;

use pirn_definition::definition::pointer_token;
use serde_json::Value;

use crate::engine::durable::shortened;

/// Maximum number of listed differences of two values.
const MAX_DIFFERENCES: usize = 10;

/// Maximum number of characters of a quoted value.
const QUOTED: usize = 200;

/// Number of equal characters that are quoted before the first difference of two texts.
const BEFORE: usize = 20;

/// Number of characters that are quoted from the first difference of two texts on.
const AFTER: usize = 60;

/// Returns the differences of two values, each with its JSON pointer; the whole value is `name`.
pub(crate) fn of_values(name: &str, expected: &Value, got: &Value) -> Vec<String> {
    let mut found = Vec::new();
    compare(Some(expected), Some(got), name, "", &mut found);
    found
}

fn compare(expected: Option<&Value>, got: Option<&Value>, name: &str, at: &str, found: &mut Vec<String>) {
    if expected == got || found.len() >= MAX_DIFFERENCES {
        return;
    }
    match (expected, got) {
        (Some(Value::Object(expected)), Some(Value::Object(got))) => {
            let names: BTreeSet<&String> = expected.keys().chain(got.keys()).collect();
            for field in names {
                let at = format!("{at}/{}", pointer_token(field));
                compare(expected.get(field), got.get(field), name, &at, found);
            }
        }
        (Some(Value::Array(expected)), Some(Value::Array(got))) => {
            for place in 0..expected.len().max(got.len()) {
                let at = format!("{at}/{place}");
                compare(expected.get(place), got.get(place), name, &at, found);
            }
        }
        (Some(Value::String(expected)), Some(Value::String(got))) if expected.len() + got.len() > QUOTED => {
            found.push(format!("{name}{at}: {}", of_texts("expected", expected, "got", got)));
        }
        (expected, got) => {
            let shown = |value: Option<&Value>| value.map_or_else(|| "nothing".to_owned(), quoted);
            found.push(format!("{name}{at}: expected {}, got {}", shown(expected), shown(got)));
        }
    }
}

/// Describes the first difference of two texts.
pub(crate) fn of_texts(one: &str, first: &str, other: &str, second: &str) -> String {
    let equal = equal_characters(first, second);
    let shown = |text: &str| {
        let from = equal.saturating_sub(BEFORE);
        let part: String = text.chars().skip(from).take(equal - from + AFTER).collect();
        let is_cut = text.chars().nth(equal + AFTER).is_some();
        let (start, end) = (if from > 0 { "..." } else { "" }, if is_cut { "..." } else { "" });
        format!("{:?}", format!("{start}{part}{end}"))
    };
    format!(
        "character {}: {one} {}, {other} {}",
        equal + 1,
        shown(first),
        shown(second)
    )
}

/// Returns the number of equal characters at the start of two texts.
pub(crate) fn equal_characters(one: &str, other: &str) -> usize {
    one.chars()
        .zip(other.chars())
        .take_while(|(one, other)| one == other)
        .count()
}

/// Returns a value as JSON, shortened.
pub(crate) fn quoted(value: &Value) -> String {
    shortened(&value.to_string(), QUOTED)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_difference_has_its_pointer_and_equal_values_have_none() {
        let found = of_values(
            "output",
            &json!({"a": [1, 2], "b": "x", "c/d": null}),
            &json!({"a": [1, 3, 4], "b": "x"}),
        );
        let expected = [
            "output/a/1: expected 2, got 3",
            "output/a/2: expected nothing, got 4",
            "output/c~1d: expected null, got nothing",
        ];
        assert_eq!(found, expected);
        assert!(of_values("output", &json!([1, {"a": null}]), &json!([1, {"a": null}])).is_empty());
        assert_eq!(
            of_values("output", &json!(1), &json!("1")),
            ["output: expected 1, got \"1\""]
        );
    }

    #[test]
    fn long_texts_are_quoted_from_shortly_before_their_first_difference() {
        let (one, other) = (format!("{}one{}", "x".repeat(200), "y".repeat(200)), "x".repeat(203));
        let found = of_values("output", &json!(one), &json!(other));
        let expected = format!(
            "output: character 201: expected \"...{}one{}...\", got \"...{}xxx\"",
            "x".repeat(20),
            "y".repeat(57),
            "x".repeat(20)
        );
        assert_eq!(found, [expected]);
    }
}
