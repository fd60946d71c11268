//! JSON Schema of a workflow file: generated from the canonical types, then extended by the other forms that the loader accepts.

use serde_json::{Map, Value, json};

use super::aliases::ALIASES;
use super::load::SCHEMA_FIELD;
use super::{Profile, TriggerDefinition, WorkflowDefinition};

/// Returns the JSON Schema (draft 2020-12) of a file: a workflow, a trigger, a profile, a list of these, or a bundle.
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
    for (name, def) in &mut defs {
        if let Some(def) = def.as_object_mut() {
            widen(def, name);
        }
    }
    widen_actions(&mut defs);
    widen_nodes(&mut defs);
    defs.values_mut().for_each(allow_null);
    defs.insert("Bundle".to_owned(), bundle());
    for name in ["WorkflowDefinition", "TriggerDefinition", "Profile", "Bundle"] {
        let properties = defs.get_mut(name).and_then(|def| def.get_mut("properties"));
        if let Some(properties) = properties.and_then(Value::as_object_mut) {
            let about = "Path or URL of the JSON Schema, for editors. Only at the top of a file.";
            properties.insert(SCHEMA_FIELD.to_owned(), json!({"type": "string", "description": about}));
        }
    }

    let one = ["WorkflowDefinition", "TriggerDefinition", "Profile"].map(reference);
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Pirn workflow file",
        "description": "A workflow, a trigger, a profile, a list of these, or a bundle of workflows, triggers and profiles.",
        "anyOf": [one[0], one[1], one[2], {"type": "array", "items": {"anyOf": one}}, reference("Bundle")],
        "$defs": defs,
    })
}

fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/$defs/{name}")})
}

fn bundle() -> Value {
    let list = |name: &str| json!({"type": ["array", "null"], "items": reference(name)});
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

/// Words that the loader accepts in addition to the canonical ones.
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
        let listed: Vec<String> = words.iter().flat_map(|word| cases(word)).collect();
        let mut folded = json!({"type": "string", "enum": listed});
        if let Some(description) = def.get("description") {
            folded["description"] = description.clone();
        }
        *def = folded;
    }
}

/// Returns the words of a definition that only lists words.
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

/// Returns a word as written, and in upper and lower case.
fn cases(word: &str) -> Vec<String> {
    let mut cases = vec![word.to_owned()];
    for case in [word.to_uppercase(), word.to_lowercase()] {
        if !cases.contains(&case) {
            cases.push(case);
        }
    }
    cases
}

/// Adds aliases and other forms of an object's fields.
fn widen(def: &mut Map<String, Value>, type_name: &str) {
    let Some(Value::Object(properties)) = def.get_mut("properties") else {
        return;
    };
    for (name, form) in other_forms(type_name) {
        properties.insert(name.to_owned(), form);
    }
    let mut either = Vec::new();
    for (_, field, alias) in ALIASES.iter().filter(|(owner, _, _)| *owner == type_name) {
        if let Some(own) = properties.get(*field).cloned() {
            properties.insert((*alias).to_owned(), own);
            either.push((*field, *alias));
        }
    }
    if type_name == "TriggerDefinition" {
        // Either an event or a schedule.
        let by = ["condition", "schedule"].map(|field| json!({"required": [field]}));
        def.insert("anyOf".to_owned(), by.into_iter().collect());
    }
    let Some(required) = def.get_mut("required").and_then(Value::as_array_mut) else {
        return;
    };
    either.retain(|(field, _)| required.iter().any(|name| name == field));
    required.retain(|name| either.iter().all(|(field, _)| name != field));
    if required.is_empty() {
        def.remove("required");
    }
    if !either.is_empty() {
        let forms = either
            .iter()
            .map(|(field, alias)| json!({"anyOf": [{"required": [field]}, {"required": [alias]}]}));
        def.insert("allOf".to_owned(), forms.collect());
    }
}

/// Returns fields that the canonical types do not have: other forms of canonical fields.
fn other_forms(type_name: &str) -> Vec<(&'static str, Value)> {
    let older = || json!({"type": "string", "deprecated": true, "description": "Deprecated: use `forkPathIds`."});
    match type_name {
        "ForkConfig" => {
            let paths = json!({
                "type": "array",
                "description": "Replaces `forkPathIds` and `childNodeIds`: a list of pairs.",
                "items": {
                    "type": "object",
                    "properties": {"pathId": {"type": "string"}, "childNodeId": {"type": "string"}},
                    "required": ["pathId", "childNodeId"],
                    "additionalProperties": false,
                },
            });
            vec![("forkPaths", paths), ("forkId", older())]
        }
        "JoinConfig" => vec![("joinId", older()), ("forkId", older())],
        "TriggerDefinition" => vec![
            (
                "type",
                json!({"enum": ([cases("EVENT"), cases("SCHEDULE")].concat()), "description": "Fires on an event, or at the times of a schedule."}),
            ),
            (
                "status",
                json!({
                    "enum": ["ENABLED", "enabled", "DISABLED", "disabled"],
                    "description": "Another name of `enabled`, as a word.",
                }),
            ),
        ],
        _ => Vec::new(),
    }
}

/// Accepts action words in either case, parameter aliases, and absent parameters if an action needs none.
fn widen_actions(defs: &mut Map<String, Value>) {
    let inner = defs.get("ExecuteTriggeredSubgraph").is_some_and(needs_something);
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
        let parameters = &mut variant["properties"]["parameters"];
        if let (Some(parameters), "SET_VARIABLE") = (parameters.as_object_mut(), word.as_str()) {
            widen(parameters, "SetVariable");
        }
        let is_reference = parameters.get("$ref").is_some();
        variant["required"] = if needs_something(parameters) || (is_reference && inner) {
            json!(["type", "parameters"])
        } else {
            json!(["type"])
        };
    }
}

/// Accepts `null` for each field that may be absent, as the loader does.
fn allow_null(part: &mut Value) {
    match part {
        Value::Object(part) => {
            let required = part.get("required").cloned().unwrap_or_default();
            let is_required = |name: &str| {
                let mut names = required.as_array().into_iter().flatten();
                names.any(|required| required == name)
            };
            if let Some(Value::Object(properties)) = part.get_mut("properties") {
                for (_, form) in properties.iter_mut().filter(|(name, _)| !is_required(name)) {
                    if let Some(form) = form.as_object_mut().filter(|form| !accepts_null(form)) {
                        let own = std::mem::take(form);
                        form.insert("anyOf".to_owned(), json!([own, {"type": "null"}]));
                    }
                }
            }
            part.values_mut().for_each(allow_null);
        }
        Value::Array(parts) => parts.iter_mut().for_each(allow_null),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Returns true if a schema without constraints, or of a type that includes null, accepts `null`.
fn accepts_null(form: &Map<String, Value>) -> bool {
    let is_null = |kind: &Value| kind == "null";
    match (form.get("type"), form.get("anyOf")) {
        (Some(Value::Array(kinds)), _) => kinds.iter().any(is_null),
        (_, Some(Value::Array(forms))) => forms.iter().any(|form| form.get("type").is_some_and(is_null)),
        (kind, _) => kind.is_none() && form.keys().all(|key| matches!(key.as_str(), "description" | "default")),
    }
}

fn needs_something(def: &Value) -> bool {
    def.get("required").is_some() || def.get("allOf").is_some() || def.get("oneOf").is_some()
}

/// Makes a node one of the types, each with the type's config under `config` or `data`.
fn widen_nodes(defs: &mut Map<String, Value>) {
    if let Some(Value::Array(variants)) = defs.get_mut("ContextOperation").and_then(|def| def.get_mut("oneOf")) {
        for variant in variants {
            if let Some(word) = variant["properties"]["operation"]["const"].as_str().map(str::to_owned) {
                variant["properties"]["operation"] = json!({"type": "string", "enum": cases(&word)});
                // the fields may also be in a nested object with the operation's name
                let fields = variant.clone();
                let nested = nested_operation(&word, fields);
                *variant = json!({"anyOf": [variant.clone(), nested]});
            }
        }
    }
    let Some(node) = defs.get("NodeDefinition").cloned() else {
        return;
    };
    let kinds = node.get("oneOf").and_then(Value::as_array).into_iter().flatten();
    let variants: Vec<Value> = kinds
        .filter_map(|kind| {
            let word = kind["properties"]["type"]["const"].as_str()?;
            Some(node_of(
                word,
                kind["properties"]["config"]["$ref"].as_str(),
                &node,
                defs,
            ))
        })
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

fn node_of(word: &str, config: Option<&str>, node: &Value, defs: &Map<String, Value>) -> Value {
    let mut properties = node
        .get("properties")
        .and_then(Value::as_object)
        .cloned()
        .unwrap_or_default();
    let name = config.and_then(|config| config.rsplit('/').next()).unwrap_or_default();
    let (config, needed) = match defs.get(name) {
        Some(def) => (reference(name), needs_something(def)),
        None => (json!({"type": "object", "additionalProperties": false}), false),
    };
    properties.insert("type".to_owned(), json!({"type": "string", "enum": cases(word)}));
    for name in ["config", "data"] {
        properties.insert(name.to_owned(), config.clone());
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
    use serde_json::Value;

    use super::schema;

    #[test]
    fn every_reference_in_the_schema_resolves() {
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
