//! The published schema accepts what the loader accepts, and rejects simple mistakes.

use std::fs;
use std::sync::LazyLock;

use pirn_definition::definition::schema;
use serde_json::{Value, json};

use super::fixtures::{flow, loaded, node, shared};

/// The part of JSON Schema that the published schema uses. An unknown keyword fails the test: it would check nothing.
fn fits(root: &Value, schema: &Value, value: &Value) -> bool {
    let Some(keywords) = schema.as_object() else {
        return schema.as_bool() == Some(true);
    };
    keywords.iter().all(|(keyword, rule)| match keyword.as_str() {
        "$schema" | "$defs" | "title" | "description" | "default" | "format" | "deprecated" => true,
        "$ref" => {
            let target = rule.as_str().unwrap_or_default().trim_start_matches('#');
            fits(root, root.pointer(target).expect("references lead somewhere"), value)
        }
        "type" => match rule {
            Value::Array(kinds) => kinds.iter().any(|kind| is_a(kind, value)),
            kind => is_a(kind, value),
        },
        "enum" => rule.as_array().is_some_and(|words| words.contains(value)),
        "const" => rule == value,
        "anyOf" => rule
            .as_array()
            .is_some_and(|ways| ways.iter().any(|way| fits(root, way, value))),
        "oneOf" => rule
            .as_array()
            .is_some_and(|ways| ways.iter().filter(|way| fits(root, way, value)).count() == 1),
        "allOf" => rule
            .as_array()
            .is_some_and(|ways| ways.iter().all(|way| fits(root, way, value))),
        "required" => {
            let names = rule.as_array().into_iter().flatten().filter_map(Value::as_str);
            value
                .as_object()
                .is_none_or(|members| names.into_iter().all(|name| members.contains_key(name)))
        }
        "properties" => value.as_object().is_none_or(|members| {
            members
                .iter()
                .all(|(key, inner)| rule.get(key).is_none_or(|rule| fits(root, rule, inner)))
        }),
        "additionalProperties" => value.as_object().is_none_or(|members| {
            let known = keywords.get("properties");
            members
                .iter()
                .filter(|(key, _)| known.is_none_or(|known| known.get(key).is_none()))
                .all(|(_, inner)| fits(root, rule, inner))
        }),
        "items" => value
            .as_array()
            .is_none_or(|items| items.iter().all(|item| fits(root, rule, item))),
        "minimum" => value
            .as_f64()
            .is_none_or(|number| rule.as_f64().is_some_and(|least| number >= least)),
        "maximum" => value
            .as_f64()
            .is_none_or(|number| rule.as_f64().is_some_and(|most| number <= most)),
        other => panic!("the schema uses `{other}`, which this test does not know"),
    })
}

fn is_a(kind: &Value, value: &Value) -> bool {
    match kind.as_str().unwrap_or_default() {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "number" => value.is_number(),
        "integer" => value.is_i64() || value.is_u64(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        other => panic!("unknown type {other}"),
    }
}

pub(super) fn accepts(file: &Value) -> bool {
    static SCHEMA: LazyLock<Value> = LazyLock::new(schema);
    fits(&SCHEMA, &SCHEMA, file)
}

#[test]
fn the_seeds_and_the_sample_match_the_schema() {
    for name in [
        "002-compression-workflow",
        "002-trigger",
        "003-compression-workflow",
        "003-trigger",
        "003-trigger-registered",
    ] {
        let text = fs::read_to_string(shared("seeds").join(format!("{name}.json"))).expect(name);
        assert!(accepts(&serde_json::from_str(&text).expect(name)), "{name}");
    }
    assert!(accepts(
        &serde_json::from_str(include_str!("sample.json")).expect("JSON")
    ));
}

#[test]
fn alternative_forms_that_load_match_the_schema() {
    let with = |fork: Value, join: Value| {
        let nodes = json!([node("s", "start"), {"id": "f", "type": "fork", "data": fork}, {"id": "j", "type": "JOIN", "data": join}, node("e", "END")]);
        flow(&nodes, &["s>f", "f>j", "j>e"])
    };
    let strategy = |extra: Value| {
        let mut join = extra;
        join["joinStrategy"] = json!("any_completed");
        join
    };
    for file in [
        with(
            json!({"forkPaths": [{"pathId": "p", "childNodeId": "j"}]}),
            strategy(json!({"forkPathIds": ["p"]})),
        ),
        with(
            json!({"forkId": "f", "forkStrategy": "SERIAL"}),
            strategy(json!({"joinId": "f"})),
        ),
        json!({"id": "t", "type": "event", "status": "enabled", "condition": {"eventType": "NODE_CUSTOM_EVENT", "eventName": "x"},
            "action": {"type": "set_variable", "parameters": {"variable": "x", "value": 1}}}),
        json!({"triggers": [{"id": "t", "condition": {"eventType": "node_failed"}, "action": {"type": "stop_thread"}}]}),
        json!([flow(
            &json!([node("s", "START"), {"id": "c", "type": "CONTEXT_PROCESSOR", "config": {"operation": "truncate", "truncate": {"keepFirst": 1}}},
            node("e", "END")]),
            &["s>c", "c>e"]
        )]),
    ] {
        assert!(loaded(file.to_string()).faults.is_empty(), "{file}");
        assert!(accepts(&file), "{file}");
    }
}

#[test]
fn common_mistakes_do_not_match_the_schema() {
    let good = || flow(&json!([node("s", "START"), node("e", "END")]), &["s>e"]);
    assert!(accepts(&good()));
    for (pointer, value) in [
        ("/nodes/0/type", json!("STRAT")),
        ("/nodes/0/config", json!({"x": 1})),
        ("/nodes/0/extra", json!(1)),
        ("/nodes/1/config", json!({"outputs": "x"})),
        ("/edges/0", json!({"from": "s"})),
        ("/edges/0/to", json!(5)),
        ("/config", json!({"maxSteps": -1})),
        ("/more", json!(1)),
        ("/id", json!(7)),
        (
            "/triggers",
            json!([{"id": "t", "condition": {"eventType": "NODE_FAILED"}, "action": {"type": "CUSTOM"}}]),
        ),
    ] {
        let mut file = good();
        let (parent, key) = pointer.rsplit_once('/').expect("a pointer");
        let parent = file.pointer_mut(parent).expect("there");
        match key.parse::<usize>() {
            Ok(index) => parent[index] = value,
            Err(_) => parent[key] = value,
        }
        assert!(
            !loaded(file.to_string()).faults.is_empty(),
            "the loader takes {pointer}"
        );
        assert!(!accepts(&file), "the schema takes {pointer}");
    }
}
