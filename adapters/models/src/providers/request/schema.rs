//! Converts a JSON Schema to the form in which a provider enforces it.
//!
//! OpenAI's strict schemas are objects, require every property and allow no others: an optional property becomes a nullable one, and
//! its null is removed from the reply (see [`crate::structured`]). Anthropic's schemas allow optional properties and have neither
//! bounds nor conditions. The reply is checked against the original schema.

use serde_json::{Map, Value, json};

/// Keywords that prevent a strict schema.
const LOOSE: [&str; 11] = [
    "allOf",
    "oneOf",
    "not",
    "if",
    "then",
    "else",
    "patternProperties",
    "propertyNames",
    "dependentRequired",
    "dependentSchemas",
    "unevaluatedProperties",
];

/// Keywords that Anthropic rejects: they are checked in the reply.
const BOUNDS: [&str; 20] = [
    "not",
    "if",
    "then",
    "else",
    "propertyNames",
    "dependentRequired",
    "dependentSchemas",
    "unevaluatedProperties",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "uniqueItems",
    "minProperties",
    "maxProperties",
];

/// Values of `format` that OpenAI and Anthropic accept.
const FORMATS: [&str; 9] = [
    "date-time",
    "time",
    "date",
    "duration",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "uuid",
];

/// Returns the strict form, or `None` if there is none, for example for an object with arbitrary properties, or a list.
pub(in crate::providers) fn strict(schema: &Value) -> Option<Value> {
    if schema["type"] != "object" || schema.get("anyOf").is_some() {
        return None;
    }
    rewrite(schema, &|object| {
        if let Some(Value::Array(list)) = object.get("enum")
            && list.iter().all(Value::is_string)
        {
            object.insert("type".to_owned(), json!("string"));
        }
        if object.get("const").is_some_and(Value::is_string) {
            object.insert("type".to_owned(), json!("string"));
        }
        let is_typed = ["type", "$ref", "anyOf"].iter().any(|word| object.contains_key(*word));
        if !is_typed || LOOSE.iter().any(|word| object.contains_key(*word)) {
            return None;
        }
        object.remove("default");
        keep_formats(object, |format| FORMATS.contains(&format));
        closed(object)?;
        let required = required(object.get("required"));
        let Some(Value::Object(properties)) = object.get_mut("properties") else {
            return Some(());
        };
        for (name, property) in properties.iter_mut() {
            if !required.contains(name) {
                *property = nullable(property.take());
            }
        }
        let all: Vec<Value> = properties.keys().map(|name| json!(name)).collect();
        object.insert("required".to_owned(), Value::Array(all));
        Some(())
    })
}

/// Returns the form without bounds and with closed objects, or `None` if an object allows arbitrary properties.
pub(in crate::providers) fn unbounded(schema: &Value) -> Option<Value> {
    rewrite(schema, &|object| {
        if object.contains_key("patternProperties") {
            return None;
        }
        for word in BOUNDS {
            object.remove(word);
        }
        // The reply is checked for the match of a single one.
        if let Some(branches) = object.remove("oneOf") {
            object.entry("anyOf").or_insert(branches);
        }
        keep_formats(object, |format| format == "uri" || FORMATS.contains(&format));
        closed(object)
    })
}

/// Removes `format` if it has another value.
fn keep_formats(object: &mut Map<String, Value>, accepts: impl Fn(&str) -> bool) {
    let format = object.get("format").and_then(Value::as_str);
    if format.is_some_and(|format| !accepts(format)) {
        object.remove("format");
    }
}

/// Sets `additionalProperties` of an object to false. Returns `None` if the schema allows them.
fn closed(object: &mut Map<String, Value>) -> Option<()> {
    let is_object = object.contains_key("properties") || object.get("type").is_some_and(is_object_type);
    if !is_object {
        return Some(());
    }
    match object.get("additionalProperties") {
        None if object.contains_key("properties") => {}
        Some(Value::Bool(false)) => {}
        None | Some(_) => return None,
    }
    object.insert("additionalProperties".to_owned(), json!(false));
    Some(())
}

fn is_object_type(kind: &Value) -> bool {
    match kind {
        Value::Array(kinds) => kinds.iter().any(|kind| kind == "object"),
        kind => kind == "object",
    }
}

fn required(list: Option<&Value>) -> Vec<String> {
    let list = list.and_then(Value::as_array).into_iter().flatten();
    list.filter_map(|name| name.as_str().map(str::to_owned)).collect()
}

fn nullable(schema: Value) -> Value {
    let takes_null = schema["type"] == "null"
        || schema["type"]
            .as_array()
            .is_some_and(|kinds| kinds.iter().any(|kind| kind == "null"));
    if takes_null {
        return schema;
    }
    json!({"anyOf": [schema, {"type": "null"}]})
}

/// Rewrites a schema and all its subschemas, outermost first.
fn rewrite(schema: &Value, one: &impl Fn(&mut Map<String, Value>) -> Option<()>) -> Option<Value> {
    let mut object = schema.as_object()?.clone();
    for word in ["properties", "$defs", "definitions"] {
        if let Some(Value::Object(named)) = object.get_mut(word) {
            for inner in named.values_mut() {
                *inner = rewrite(inner, one)?;
            }
        }
    }
    for word in ["items", "anyOf", "oneOf", "allOf", "prefixItems"] {
        match object.get_mut(word) {
            Some(Value::Array(list)) => {
                for inner in list {
                    *inner = rewrite(inner, one)?;
                }
            }
            Some(inner) => *inner = rewrite(inner, one)?,
            None => {}
        }
    }
    one(&mut object)?;
    Some(Value::Object(object))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn optional_properties_become_nullable_and_every_property_is_required() {
        let schema = json!({
            "type": "object", "required": ["a"],
            "properties": {"a": {"enum": ["x"]}, "b": {"type": "integer"}, "c": {"type": ["string", "null"]},
                "d": {"type": "array", "items": {"type": "object", "properties": {"e": {"type": "number"}}}}},
        });
        let strict = strict(&schema).expect("it has a strict form");
        assert_eq!(strict["required"], json!(["a", "b", "c", "d"]));
        assert_eq!(strict["additionalProperties"], false);
        assert_eq!(strict["properties"]["a"], json!({"enum": ["x"], "type": "string"}));
        assert_eq!(
            strict["properties"]["b"],
            json!({"anyOf": [{"type": "integer"}, {"type": "null"}]})
        );
        assert_eq!(strict["properties"]["c"], json!({"type": ["string", "null"]}));
        let inner = &strict["properties"]["d"]["anyOf"][0]["items"];
        assert_eq!(inner["required"], json!(["e"]));
    }

    #[test]
    fn a_list_and_an_open_or_untyped_value_have_no_strict_form() {
        for schema in [
            json!({"type": "object"}),
            json!({"type": "object", "properties": {}, "additionalProperties": true}),
            json!({"oneOf": [{"type": "string"}]}),
            json!({"type": "array", "items": {"type": "string"}}),
            json!({"anyOf": [{"type": "string"}]}),
            json!({"type": "object", "properties": {"a": {}}}),
            json!({"type": "object", "properties": {"a": true}}),
            json!({"type": "object", "properties": {"a": {"type": "array", "items": {"type": "object"}}}}),
        ] {
            assert_eq!(strict(&schema), None, "{schema}");
        }
    }

    #[test]
    fn formats_of_no_provider_are_removed() {
        let schema = |formats: [Option<&str>; 3]| {
            let of = |format: Option<&str>| match format {
                Some(format) => json!({"type": "string", "format": format}),
                None => json!({"type": "string"}),
            };
            let [date, uri, regex] = formats.map(of);
            json!({"type": "object", "required": ["date", "format", "uri"], "additionalProperties": false,
                "properties": {"date": date, "format": regex, "uri": uri}})
        };
        let written = schema([Some("date"), Some("uri"), Some("regex")]);
        assert_eq!(strict(&written), Some(schema([Some("date"), None, None])));
        assert_eq!(unbounded(&written), Some(schema([Some("date"), Some("uri"), None])));
    }

    #[test]
    fn conditions_are_removed_for_anthropic() {
        let either = json!([{"type": "string"}, {"type": "integer"}]);
        let schema = json!({"type": "object", "properties": {"a": {"oneOf": either}}, "not": {"required": ["z"]},
            "if": {"required": ["a"]}, "then": {"minProperties": 1}});
        let expected = json!({"type": "object", "properties": {"a": {"anyOf": either}}, "additionalProperties": false});
        assert_eq!(unbounded(&schema), Some(expected));
        let open = json!({"type": "object", "properties": {}, "patternProperties": {"^x": {"type": "string"}}});
        assert_eq!(unbounded(&open), None);
    }

    #[test]
    fn bounds_are_removed_from_the_schema_and_checked_later() {
        let schema = json!({"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}});
        let expected =
            json!({"type": "object", "properties": {"n": {"type": "integer"}}, "additionalProperties": false});
        assert_eq!(unbounded(&schema), Some(expected));
    }
}
