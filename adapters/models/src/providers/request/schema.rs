//! Converts a JSON Schema to the form in which a provider enforces it.
//!
//! OpenAI's strict schemas are objects, require every property and allow no others: an optional property becomes a nullable one, and
//! its null is removed from the reply (see [`crate::structured`]). Anthropic's schemas allow optional properties and have neither
//! bounds nor conditions. The reply is checked against the original schema.

use serde::de::IgnoredAny;
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

/// The property of the object in which a schema is sent that is not one.
const VALUE: &str = "value";

/// Returns the schema of an object with this schema as its only property, or `None` if this is the schema of an object: OpenAI
/// refuses all others, also if they are not strict.
pub(in crate::providers) fn in_object(schema: &Value) -> Option<Value> {
    if schema["type"] == "object" && schema.get("anyOf").is_none() {
        return None;
    }
    let mut inner = schema.clone();
    move_references(&mut inner);
    let mut outer = json!({"type": "object", "properties": {}, "required": [VALUE], "additionalProperties": false});
    for word in DEFINITIONS {
        if let Some(named) = inner.as_object_mut().and_then(|inner| inner.remove(word)) {
            outer[word] = named;
        }
    }
    outer["properties"][VALUE] = inner;
    Some(outer)
}

/// Returns the JSON text of the value in such an object, or `None` if this text is no such object.
pub(in crate::providers) fn out_of_object(text: &str) -> Option<&str> {
    // The text is cut and not parsed, so that numbers keep every digit.
    let (name, value) = text.trim().strip_prefix('{')?.split_once(':')?;
    let value = value.strip_suffix('}')?.trim();
    let is_value = name.trim().strip_prefix('"')?.strip_suffix('"')? == VALUE;
    (is_value && serde_json::from_str::<IgnoredAny>(value).is_ok()).then_some(value)
}

/// Names of the definitions of a schema, which stay at its root.
const DEFINITIONS: [&str; 2] = ["$defs", "definitions"];

/// Changes references to parts of the root, which becomes a property. Those to definitions stay.
fn move_references(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            for (name, field) in fields {
                match field {
                    Value::String(target) if name == "$ref" => {
                        let local = target.strip_prefix('#');
                        let named = |rest: &str| rest.split('/').nth(1).is_some_and(|word| DEFINITIONS.contains(&word));
                        if let Some(rest) =
                            local.filter(|rest| (rest.is_empty() || rest.starts_with('/')) && !named(rest))
                        {
                            *target = format!("#/properties/{VALUE}{rest}");
                        }
                    }
                    field => move_references(field),
                }
            }
        }
        Value::Array(list) => list.iter_mut().for_each(move_references),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

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
    for word in ["properties"].into_iter().chain(DEFINITIONS) {
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
    fn a_schema_of_no_object_becomes_a_property_with_its_definitions_at_the_root() {
        let outer = |value: Value| json!({"type": "object", "properties": {"value": value}, "required": ["value"], "additionalProperties": false});
        for schema in [
            json!({"type": "string"}),
            json!({"type": ["object", "null"], "properties": {}}),
            json!({"anyOf": [{"type": "string"}, {"type": "null"}]}),
            json!({"type": "object", "anyOf": [{"properties": {"a": {"type": "string"}}}]}),
            json!(true),
        ] {
            assert_eq!(in_object(&schema), Some(outer(schema.clone())), "{schema}");
        }
        assert_eq!(in_object(&json!({"type": "object", "not": {}})), None);
        let list =
            |item: &str, all: &str| json!({"type": "array", "items": {"anyOf": [{"$ref": item}, {"$ref": all}]}});
        let text = json!({"text": {"type": "string"}});
        let mut schema = list("#/$defs/text", "#");
        schema["$defs"] = text.clone();
        let mut expected = outer(list("#/$defs/text", "#/properties/value"));
        expected["$defs"] = text;
        let wrapped = in_object(&schema).expect("a list");
        assert_eq!(wrapped, expected);
        assert_eq!(strict(&wrapped), Some(expected));
    }

    #[test]
    fn the_value_of_a_wrapped_reply_keeps_its_text() {
        for (text, expected) in [
            (" {\"value\": [1, {\"value\": 2}]}\n", Some("[1, {\"value\": 2}]")),
            (
                "{ \"value\" : 123456789012345678901234567890 }",
                Some("123456789012345678901234567890"),
            ),
            ("{\"value\": \"a: }\"}", Some("\"a: }\"")),
            ("{\"value\": 1, \"more\": 2}", None),
            ("{\"other\": 1}", None),
            ("{\"value\": [1", None),
            ("{}", None),
            ("[1]", None),
            ("", None),
        ] {
            assert_eq!(out_of_object(text), expected, "{text}");
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
