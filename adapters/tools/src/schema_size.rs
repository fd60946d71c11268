//! Computes the size of a JSON Schema with all references expanded. Forty definitions that each refer twice to the next expand to
//! 10^12 checks for one value.

use std::collections::BTreeMap;

use serde_json::Value;

/// Maximum expanded size of a schema, in JSON values.
const MOST_PLACES: usize = 100_000;

/// Maximum depth of an expanded schema.
const DEEPEST: usize = 256;

/// Returns whether the expanded size is within the limits. References that are recursive, point to another document or are not JSON
/// pointers count as unbounded.
pub(super) fn is_bounded(schema: &Value) -> bool {
    let mut sizes = Sizes {
        whole: schema,
        known: BTreeMap::new(),
    };
    sizes.of(schema, 0).is_some()
}

struct Sizes<'a> {
    whole: &'a Value,
    /// Sizes by reference; `None`: too large, or being computed.
    known: BTreeMap<&'a str, Option<usize>>,
}

impl<'a> Sizes<'a> {
    /// Returns the expanded size, or `None` if it is too large.
    fn of(&mut self, part: &'a Value, depth: usize) -> Option<usize> {
        if depth > DEEPEST {
            return None;
        }
        let mut size = 1_usize;
        let mut add = |more: Option<usize>| {
            size = size.saturating_add(more?);
            (size <= MOST_PLACES).then_some(())
        };
        match part {
            Value::Object(fields) => {
                for (name, value) in fields {
                    add(self.of(value, depth + 1))?;
                    let is_reference = ["$ref", "$dynamicRef", "$recursiveRef"].contains(&name.as_str());
                    if let Some(reference) = value.as_str().filter(|_| is_reference) {
                        add(self.of_reference(reference, depth))?;
                    }
                }
            }
            Value::Array(items) => {
                for item in items {
                    add(self.of(item, depth + 1))?;
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
        Some(size)
    }

    fn of_reference(&mut self, reference: &'a str, depth: usize) -> Option<usize> {
        if let Some(size) = self.known.get(reference) {
            return *size;
        }
        self.known.insert(reference, None);
        let whole = self.whole;
        let target = whole.pointer(reference.strip_prefix('#')?)?;
        let size = self.of(target, depth + 1);
        self.known.insert(reference, size);
        size
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::arguments::Checker;

    /// Creates definitions that each refer twice to the next.
    fn doubling(levels: usize) -> Value {
        let both =
            |next: usize| json!({"allOf": [{"$ref": format!("#/$defs/{next}")}, {"$ref": format!("#/$defs/{next}")}]});
        let mut definitions: serde_json::Map<String, Value> =
            (0..levels).map(|n| (n.to_string(), both(n + 1))).collect();
        definitions.insert(levels.to_string(), json!({"type": "object"}));
        json!({"$defs": definitions, "$ref": "#/$defs/0"})
    }

    #[test]
    fn references_count_as_the_schema_they_refer_to() {
        for (schema, bounded) in [
            (
                json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"type": "string"}}}),
                true,
            ),
            (json!({"enum": (0..1_000).collect::<Vec<_>>()}), true),
            (doubling(5), true),
            (doubling(40), false),
            (json!({"$ref": "#"}), false),
            (json!({"properties": {"next": {"$ref": "#"}}}), false),
            (json!({"$ref": "https://elsewhere/schema"}), false),
            (json!({"$ref": "#name", "$defs": {"n": {"$anchor": "name"}}}), false),
            (json!({"enum": vec![0; 200_000]}), false),
        ] {
            assert_eq!(is_bounded(&schema), bounded, "{:.200}", schema.to_string());
        }
    }

    #[test]
    fn an_unbounded_schema_is_checked_only_by_its_plain_keywords() {
        let mut schema = doubling(60);
        schema["required"] = json!(["city"]);
        let checker = Checker::new(schema);
        assert_eq!(checker.check(&json!({"city": 1})), Ok(()));
        assert!(
            checker
                .check(&json!({}))
                .expect_err("it is missing")
                .contains("arguments.city")
        );
    }
}
