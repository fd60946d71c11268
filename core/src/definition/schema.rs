//! The JSON Schema of a workflow file: generated from the canonical types, then widened by the loader's own table of
//! fields, so that it describes what the loader reads and not only what it makes of it.

use serde_json::{Map, Value, json};

use super::load::{ACTIONS, BUNDLE, Field, Holds, NODE, NODE_TYPES, Shape, every_shape};
use super::{Profile, TriggerDefinition, WorkflowDefinition};

/// The JSON Schema (draft 2020-12) of a whole file: a workflow, a trigger, a profile, a list of these, or a bundle.
pub fn schema() -> Value {
    let mut generator = schemars::SchemaGenerator::default();
    for add in [
        schemars::SchemaGenerator::subschema_for::<WorkflowDefinition>,
        schemars::SchemaGenerator::subschema_for::<TriggerDefinition>,
        schemars::SchemaGenerator::subschema_for::<Profile>,
    ] {
        add(&mut generator);
    }
    let mut defs = generator.take_definitions(true);
    fold_words(&mut defs);
    for shape in every_shape() {
        let def = defs.get_mut(shape.type_name).and_then(Value::as_object_mut);
        // a choice of objects is widened by its own table
        if let Some(def) = def.filter(|def| def.contains_key("properties")) {
            widen(def, shape);
        }
    }
    widen_actions(&mut defs);
    widen_nodes(&mut defs);
    defs.insert(BUNDLE.type_name.to_owned(), bundle());

    let one = ["WorkflowDefinition", "TriggerDefinition", "Profile"].map(reference);
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Pirn workflow file",
        "description": "A workflow, a trigger, a profile, a list of these, or a bundle of workflows, triggers and profiles.",
        "anyOf": [one[0], one[1], one[2], {"type": "array", "items": {"anyOf": one}}, reference(BUNDLE.type_name)],
        "$defs": defs,
    })
}

fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/$defs/{name}")})
}

fn bundle() -> Value {
    let list = |name: &str| json!({"type": "array", "items": reference(name)});
    json!({
        "type": "object",
        "properties": {
            "workflows": list("WorkflowDefinition"),
            "triggers": list("TriggerDefinition"),
            "profiles": list("Profile"),
        },
        "additionalProperties": false,
    })
}

/// Words are read in either case; these two are not folded.
const AS_WRITTEN: &[&str] = &["TodoStatus", "PinSection"];

/// Other words the loader reads, beside the canonical ones.
const MORE_WORDS: &[(&str, &str)] = &[
    ("EventType", "NODE_CUSTOM_EVENT"),
    ("TodoStatus", "todo"),
    ("TodoStatus", "open"),
    ("TodoStatus", "inProgress"),
    ("TodoStatus", "doing"),
    ("TodoStatus", "done"),
];

fn fold_words(defs: &mut Map<String, Value>) {
    for (name, def) in defs.iter_mut() {
        let Some(mut words) = words_of(def) else { continue };
        words.extend(
            MORE_WORDS
                .iter()
                .filter(|(owner, _)| owner == name)
                .map(|(_, word)| (*word).to_owned()),
        );
        let listed: Vec<String> = if AS_WRITTEN.contains(&name.as_str()) {
            words
        } else {
            words.iter().flat_map(|word| cases(word)).collect()
        };
        let mut folded = json!({"type": "string", "enum": listed});
        if let Some(description) = def.get("description") {
            folded["description"] = description.clone();
        }
        *def = folded;
    }
}

/// The words of a definition that is nothing but words.
fn words_of(def: &Value) -> Option<Vec<String>> {
    if let Some(words) = def.get("enum").and_then(Value::as_array) {
        return words.iter().map(|word| word.as_str().map(str::to_owned)).collect();
    }
    let variants = def.get("oneOf")?.as_array()?;
    let mut words = Vec::new();
    for variant in variants {
        match variant.get("enum") {
            Some(_) => words.extend(words_of(variant)?),
            None => words.push(variant.get("const")?.as_str()?.to_owned()),
        }
    }
    Some(words)
}

fn cases(word: &str) -> Vec<String> {
    let mut cases = vec![word.to_uppercase(), word.to_lowercase()];
    cases.dedup();
    cases
}

/// Adds what the loader reads beside the canonical fields, and closes the object.
fn widen(def: &mut Map<String, Value>, shape: &Shape) {
    let mut properties = match def.remove("properties") {
        Some(Value::Object(properties)) => properties,
        Some(_) | None => Map::new(),
    };
    let mut required: Vec<String> = def
        .remove("required")
        .and_then(|list| serde_json::from_value(list).ok())
        .unwrap_or_default();
    let mut either = Vec::new();
    for field in shape.fields {
        let own = properties
            .entry(field.name)
            .or_insert_with(|| other_form(field))
            .clone();
        for alias in field.aliases {
            properties.insert((*alias).to_owned(), own.clone());
        }
        if !field.aliases.is_empty()
            && let Some(place) = required.iter().position(|name| name == field.name)
        {
            required.remove(place);
            let names = std::iter::once(&field.name).chain(field.aliases);
            let forms: Vec<Value> = names.map(|name| json!({"required": [name]})).collect();
            either.push(json!({"anyOf": forms}));
        }
    }
    def.insert("properties".to_owned(), Value::Object(properties));
    def.insert("additionalProperties".to_owned(), Value::Bool(false));
    if !required.is_empty() {
        def.insert("required".to_owned(), json!(required));
    }
    if !either.is_empty() {
        def.insert("allOf".to_owned(), Value::Array(either));
    }
}

/// A field that the canonical types do not have: another form of one that they have.
fn other_form(field: &Field) -> Value {
    match field.name {
        "forkPaths" => json!({
            "type": "array",
            "description": "Another form of `forkPathIds` and `childNodeIds`.",
            "items": {
                "type": "object",
                "properties": {"pathId": {"type": "string"}, "childNodeId": {"type": "string"}},
                "required": ["pathId", "childNodeId"],
                "additionalProperties": false,
            },
        }),
        "forkId" | "joinId" => {
            json!({"type": "string", "deprecated": true, "description": "The form before `forkPathIds`."})
        }
        "type" => json!({"enum": cases("event"), "description": "The only type there is."}),
        "status" => json!({
            "enum": ["ENABLED", "enabled", "DISABLED", "disabled"],
            "description": "Another form of `enabled`.",
        }),
        _ => match field.holds {
            Holds::Value | Holds::Plain | Holds::Upper | Holds::Lower | Holds::Object(_) | Holds::Either(..) => {
                Value::Bool(true)
            }
        },
    }
}

/// Action words in either case, parameters with their aliases, and none where none are needed.
fn widen_actions(defs: &mut Map<String, Value>) {
    let inner: Map<String, Value> = defs
        .iter()
        .filter(|(name, _)| *name == "ExecuteTriggeredSubgraph")
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect();
    let Some(variants) = defs
        .get_mut("TriggerAction")
        .and_then(|def| def.get_mut("oneOf"))
        .and_then(Value::as_array_mut)
    else {
        return;
    };
    for variant in variants {
        let Some(word) = variant["properties"]["type"]["const"].as_str().map(str::to_owned) else {
            continue;
        };
        variant["properties"]["type"] = json!({"type": "string", "enum": cases(&word)});
        let Some((_, shape)) = ACTIONS.iter().find(|(known, _)| *known == word) else {
            continue;
        };
        if let Some(parameters) = variant["properties"]["parameters"].as_object_mut()
            && parameters.contains_key("properties")
        {
            widen(parameters, shape);
        }
        let own = &variant["properties"]["parameters"];
        let needed = needs_something(own) || inner.get(shape.type_name).is_some_and(needs_something);
        variant["required"] = if needed {
            json!(["type", "parameters"])
        } else {
            json!(["type"])
        };
        variant["additionalProperties"] = Value::Bool(false);
    }
}

fn needs_something(def: &Value) -> bool {
    def.get("required").is_some() || def.get("allOf").is_some() || def.get("oneOf").is_some()
}

/// A node is one of the types, each with its own config under `config` or `data`.
fn widen_nodes(defs: &mut Map<String, Value>) {
    if let Some(Value::Array(variants)) = defs.get_mut("ContextOperation").and_then(|def| def.get_mut("oneOf")) {
        for variant in variants {
            if let Some(word) = variant["properties"]["operation"]["const"].as_str().map(str::to_owned) {
                variant["properties"]["operation"] = json!({"type": "string", "enum": cases(&word)});
                // the fields may also stand in an object of the operation's name
                let fields = variant.clone();
                let nested = nested_operation(&word, fields);
                *variant = json!({"anyOf": [variant.clone(), nested]});
            }
        }
    }
    let Some(node) = defs.get("NodeDefinition").cloned() else {
        return;
    };
    let variants: Vec<Value> = NODE_TYPES
        .iter()
        .map(|(word, shape)| node_of(word, shape, &node, defs))
        .collect();
    let description = node.get("description").cloned().unwrap_or_default();
    defs.insert(
        "NodeDefinition".to_owned(),
        json!({"description": description, "oneOf": variants}),
    );
}

fn nested_operation(word: &str, mut fields: Value) -> Value {
    let mut operation = Value::Null;
    if let Some(properties) = fields.get_mut("properties").and_then(Value::as_object_mut) {
        operation = properties.remove("operation").unwrap_or_default();
    }
    if let Some(required) = fields.get_mut("required").and_then(Value::as_array_mut) {
        required.retain(|name| name != "operation");
    }
    json!({
        "type": "object",
        "properties": {"operation": operation, word: fields},
        "required": ["operation", word],
        "additionalProperties": false,
    })
}

fn node_of(word: &str, shape: &Shape, node: &Value, defs: &Map<String, Value>) -> Value {
    let mut properties = node
        .get("properties")
        .and_then(Value::as_object)
        .cloned()
        .unwrap_or_default();
    let (config, needed) = match defs.get(shape.type_name) {
        Some(def) => (reference(shape.type_name), needs_something(def)),
        None => (json!({"type": "object", "additionalProperties": false}), false),
    };
    properties.insert("type".to_owned(), json!({"type": "string", "enum": cases(word)}));
    for field in NODE.fields.iter().filter(|field| field.name == "config") {
        for name in std::iter::once(&field.name).chain(field.aliases) {
            properties.insert((*name).to_owned(), config.clone());
        }
    }
    let mut variant = json!({
        "type": "object",
        "properties": properties,
        "required": ["id", "type"],
        "additionalProperties": false,
    });
    if needed {
        variant["anyOf"] = json!([{"required": ["config"]}, {"required": ["data"]}]);
    }
    variant
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::super::load::every_shape;
    use super::schema;

    #[test]
    fn the_schema_and_the_loader_know_the_same_fields() {
        let schema = schema();
        let mut seen = 0;
        for shape in every_shape() {
            let Some(properties) = schema["$defs"][shape.type_name]["properties"].as_object() else {
                continue;
            };
            let described: BTreeSet<&str> = properties.keys().map(String::as_str).collect();
            let read: BTreeSet<&str> = shape
                .fields
                .iter()
                .flat_map(|field| std::iter::once(field.name).chain(field.aliases.iter().copied()))
                .collect();
            assert_eq!(described, read, "{}", shape.type_name);
            seen += 1;
        }
        assert!(seen > 30, "only {seen} shapes are in the schema");
    }

    #[test]
    fn every_reference_in_the_schema_leads_somewhere() {
        let schema = schema();
        let mut open = vec![&schema];
        while let Some(here) = open.pop() {
            match here {
                Value::Object(members) => {
                    if let Some(target) = members.get("$ref").and_then(Value::as_str) {
                        assert!(schema.pointer(target.trim_start_matches('#')).is_some(), "{target}");
                    }
                    open.extend(members.values());
                }
                Value::Array(items) => open.extend(items),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
            }
        }
    }
}
