//! Definitions that the loader accepts, and its faults for others.

use std::collections::{BTreeMap, BTreeSet};

use pirn_definition::definition::{
    ContextOperation, FaultCode, NodeConfig, SourceFile, VariableScope, WorkflowDefinition, load,
};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::fixtures::{build, codes, flow, loaded, node, shown, the_fault};

fn valid(file: &Value) -> WorkflowDefinition {
    let loaded = loaded(file.to_string());
    assert!(loaded.faults.is_empty(), "{file}:\n{}", shown(&loaded.faults));
    loaded.workflows[0].value.clone()
}

#[test]
fn both_forms_of_nodes_and_edges_are_equivalent() {
    let short = json!({"id": "w", "nodes": [{"id": "s", "type": "start", "data": {}},
        {"id": "v", "type": "Variable", "data": {"variable": "x", "expression": "1", "scope": "GLOBAL"}},
        {"id": "e", "type": "end", "data": null}],
        "edges": [{"from": "s", "to": "v"}, {"from": "v", "to": "e", "name": null}]});
    let long = json!({"id": "w", "nodes": [{"id": "s", "type": "START"},
        {"id": "v", "type": "VARIABLE", "config": {"variableName": "x", "expression": "1", "scope": "global"}},
        {"id": "e", "type": "END", "config": {}}],
        "edges": [{"sourceNodeId": "s", "targetNodeId": "v"}, {"sourceNodeId": "v", "targetNodeId": "e"}]});
    // An edge has no field `name`, whether null or not.
    let mut short_edges = short.clone();
    short_edges["edges"][1] = json!({"from": "v", "to": "e", "label": null});
    assert_eq!(valid(&short_edges), valid(&long));
    let compiled = build(short.to_string());
    assert_eq!(codes(&compiled), ["UNKNOWN_FIELD"]);
}

#[test]
fn a_file_is_a_workflow_a_trigger_a_list_or_a_bundle() {
    let workflow = flow(&json!([node("s", "START"), node("e", "END")]), &["s>e"]);
    let trigger = json!({"id": "t", "condition": {"eventType": "NODE_FAILED"}, "action": {"type": "STOP_THREAD"}});
    let profile = json!({"id": "p", "provider": "scripted", "responses": [{"content": "hi"}]});
    let counts = |file: Value| {
        let loaded = loaded(file.to_string());
        assert!(loaded.faults.is_empty(), "{}", shown(&loaded.faults));
        (loaded.workflows.len(), loaded.triggers.len(), loaded.profiles.len())
    };
    assert_eq!(counts(workflow.clone()), (1, 0, 0));
    assert_eq!(counts(trigger.clone()), (0, 1, 0));
    assert_eq!(counts(json!([workflow, trigger])), (1, 1, 0));
    assert_eq!(
        counts(json!({"workflows": [workflow], "triggers": [trigger], "profiles": [profile]})),
        (1, 1, 1)
    );
    assert_eq!(counts(json!({"triggers": [trigger]})), (0, 1, 0));
    assert_eq!(counts(json!([])), (0, 0, 0));
    let bundle = loaded(json!({"profiles": [profile]}).to_string());
    assert_eq!(bundle.profiles[0].value.rest["responses"], json!([{"content": "hi"}]));
}

#[test]
fn a_profile_with_an_api_key_is_refused_without_showing_it() {
    let loaded = loaded(json!({"profiles": [{"id": "p", "provider": "openai", "apiKey": "secret"}]}).to_string());
    let fault = the_fault(&loaded.faults, FaultCode::UnknownField);
    assert!(!fault.to_string().contains("secret"));
}

#[test]
fn context_operations_load_flat_and_nested() {
    for config in [
        json!({"operation": "TRUNCATE", "keepFirst": 2}),
        json!({"operation": "truncate", "truncate": {"keepFirst": 2}}),
    ] {
        let nodes =
            json!([node("s", "START"), {"id": "c", "type": "context_processor", "config": config}, node("e", "END")]);
        let definition = valid(&flow(&nodes, &["s>c", "c>e"]));
        let NodeConfig::ContextProcessor(ContextOperation::Truncate(truncate)) = &definition.nodes[1].config else {
            panic!("a truncate")
        };
        assert_eq!(truncate.keep_first, Some(2));
    }
    for config in [
        json!({"operation": "insert", "messages": [{"role": "User", "content": "{{x}}"}]}),
        json!({"operation": "replace", "target": "ALL", "replacement": "text"}),
        json!({"operation": "replace", "target": {"lastN": 2}, "replacement": [{"role": "user", "content": "a"}]}),
        json!({"operation": "clear"}),
        json!({"operation": "filter", "roles": ["USER", "assistant"], "contentContains": ["x"]}),
        json!({"operation": "compress", "strategy": "keep_recent", "parameters": {"count": 3}}),
        json!({"operation": "pin", "section": "todo", "value": [{"content": "a", "status": "done"}]}),
    ] {
        let nodes =
            json!([node("s", "START"), {"id": "c", "type": "CONTEXT_PROCESSOR", "data": config}, node("e", "END")]);
        valid(&flow(&nodes, &["s>c", "c>e"]));
    }
}

#[test]
fn invalid_context_operations_are_reported_with_their_location() {
    for (config, code, pointer) in [
        (
            json!({"operation": "insert", "messages": [{"role": "nobody", "content": "x"}]}),
            "INVALID_VALUE",
            "/messages/0/role",
        ),
        (json!({"operation": "insert"}), "MISSING_FIELD", ""),
        (
            json!({"operation": "replace", "target": {"lastN": -2}, "replacement": "x"}),
            "INVALID_HISTORY_OPTIONS",
            "/target/lastN",
        ),
        (
            json!({"operation": "replace", "target": "some", "replacement": "x"}),
            "INVALID_HISTORY_OPTIONS",
            "/target",
        ),
        (
            json!({"operation": "replace", "target": "all", "replacement": [{"rolle": "user", "content": "x"}]}),
            "UNKNOWN_FIELD",
            "/replacement/0/rolle",
        ),
        (
            json!({"operation": "pin", "section": "tada", "value": 1}),
            "INVALID_VALUE",
            "/section",
        ),
        (
            json!({"operation": "truncate", "keepFirst": 1.5}),
            "INVALID_VALUE",
            "/keepFirst",
        ),
    ] {
        let nodes =
            json!([node("s", "START"), {"id": "c", "type": "CONTEXT_PROCESSOR", "data": config}, node("e", "END")]);
        let compiled = build(flow(&nodes, &["s>c", "c>e"]).to_string());
        let first = compiled.faults.first().unwrap_or_else(|| panic!("{config} passed"));
        assert_eq!(
            (first.code.as_str(), first.pointer.as_str()),
            (code, format!("/nodes/1/data{pointer}").as_str()),
            "{config}"
        );
    }
}

#[test]
fn default_value_is_an_alias_of_value() {
    let mut file = flow(&json!([node("s", "START"), node("e", "END")]), &["s>e"]);
    file["variables"] =
        json!([{"name": "a", "type": "ARRAY", "defaultValue": [1]}, {"name": "b", "value": null, "scope": "global"}]);
    let definition = valid(&file);
    assert_eq!(definition.variables[0].value, json!([1]));
    assert_eq!(definition.variables[1].scope, VariableScope::Global);
}

#[test]
fn unknown_fields_suggest_the_nearest_valid_field() {
    let mut file = flow(&json!([node("s", "START"), node("e", "END")]), &["s>e"]);
    file["nodes"][0]["timeoutMS"] = json!(5);
    file["edges"][0]["wieght"] = json!(5);
    file["config"] = json!({"maxStep": 5, "zzzzzz": 1});
    file["descripton"] = json!("x");
    let loaded = loaded(file.to_string());
    let helps: Vec<&str> = loaded.faults.iter().filter_map(|fault| fault.help.as_deref()).collect();
    for near in ["timeoutMs", "weight", "maxSteps", "description"] {
        assert!(
            helps.contains(&format!("did you mean `{near}`?").as_str()),
            "{near}: {helps:?}"
        );
    }
    assert_eq!(loaded.faults.len(), 5, "{}", shown(&loaded.faults));
    assert!(loaded.faults.iter().all(|fault| fault.code == FaultCode::UnknownField));
}

#[test]
fn a_field_of_limits_and_one_beside_them_suggest_the_right_place() {
    let script = |config: Value| flow(&json!([{"id": "n", "type": "SCRIPT", "config": config}]), &[]);
    let mut of_workflow = flow(&json!([]), &[]);
    of_workflow["config"] = json!({"runBytes": 5, "limits": {"maxSteps": 5}});
    for (file, expected) in [
        (
            script(json!({"code": "return 1", "concurrency": 2, "limits": {"profileId": "p"}})),
            ["concurrency", "profileId"],
        ),
        (of_workflow, ["runBytes", "maxSteps"]),
    ] {
        let loaded = loaded(file.to_string());
        let help: BTreeSet<&str> = loaded.faults.iter().filter_map(|fault| fault.help.as_deref()).collect();
        let [inside, beside] = expected;
        let wanted = [
            format!("write it in `limits`: {{\"limits\": {{\"{inside}\": ...}}}}"),
            format!("`{beside}` belongs beside `limits`, in the object that contains it"),
        ];
        assert_eq!(help, wanted.iter().map(String::as_str).collect(), "{file}");
    }
}

#[test]
fn a_misspelt_field_is_not_also_reported_as_missing() {
    let nodes = json!([node("s", "START"), {"id": "v", "type": "VARIABLE", "config": {"variabel": "x", "expresion": "1"}}, node("e", "END")]);
    let compiled = build(flow(&nodes, &["s>v", "v>e"]).to_string());
    assert_eq!(compiled.faults.len(), 2, "{}", shown(&compiled.faults));
    assert_eq!(codes(&compiled), ["UNKNOWN_FIELD"]);
}

#[test]
fn a_field_given_twice_is_a_fault() {
    let text = r#"{"id": "w", "id": "x", "nodes": [{"id": "s", "type": "START", "data": {}, "config": {}}, {"id": "e", "type": "END"}],
        "edges": [{"from": "s", "sourceNodeId": "s", "to": "e"}]}"#;
    let loaded = loaded(text);
    let found: Vec<(&str, &str)> = loaded
        .faults
        .iter()
        .map(|fault| (fault.code.as_str(), fault.pointer.as_str()))
        .collect();
    assert_eq!(
        found,
        [
            ("DUPLICATE_FIELD", "/id"),
            ("DUPLICATE_FIELD", "/nodes/0/config"),
            ("DUPLICATE_FIELD", "/edges/0/sourceNodeId")
        ]
    );
}

/// The value that was meant is unknown, so that what follows from the first one is not reported.
#[test]
fn a_key_that_appears_twice_has_no_other_faults() {
    let whole = r#"{"id": "w", "variables": [{"name": "x", "value": 1}], "nodes": [{"id": "s", "type": "START"},
        {"id": "l", "type": "LLM", "config": {"prompt": "{{variables.x}}"}}, {"id": "e", "type": "END"}],
        "edges": [{"from": "s", "to": "l"}, {"from": "l", "to": "e"}]}"#;
    assert!(build(whole).faults.is_empty());
    for (key, before) in [
        (r#""type": "START""#, r#""type": "END", "#),
        (r#""type": "END""#, r#""type": "WAIT", "#),
        (r#""type": "LLM""#, r#""type": "START", "#),
        (r#""id": "s""#, r#""id": "other", "#),
        (r#""nodes": ["#, r#""nodes": [], "#),
        (r#""edges": ["#, r#""edges": [{"from": "s", "to": "e"}], "#),
        (r#""to": "l""#, r#""to": "s", "#),
        (r#""from": "l""#, r#""from": "e", "#),
        (r#""variables": ["#, r#""variables": [], "#),
    ] {
        let text = whole.replacen(key, &format!("{before}{key}"), 1);
        let compiled = build(&*text);
        assert_eq!(
            codes(&compiled),
            ["DUPLICATE_FIELD"],
            "{text}: {}",
            shown(&compiled.faults)
        );
        assert_eq!(compiled.faults.len(), 1, "{}", shown(&compiled.faults));
    }
}

#[test]
fn faults_have_line_and_column_in_the_source_file() {
    let text = "{\n  \"id\": \"ü\",\n  \"nodes\": [\n    {\"id\": \"日本\", \"type\": \"STRAT\"},\n    {\"id\": \"e\", \"type\": \"END\"}\n  ],\n  \"edges\": [{\"from\": \"日本\", \"to\": 5}]\n}";
    let loaded = loaded(text);
    let places: Vec<(u32, u32, &str)> = loaded
        .faults
        .iter()
        .map(|fault| {
            let position = fault.position.expect("a place");
            (position.line, position.column, fault.pointer.as_str())
        })
        .collect();
    assert_eq!(
        places,
        [(4, 26, "/nodes/0/type"), (7, 34, "/edges/0/to")],
        "{}",
        shown(&loaded.faults)
    );
}

#[test]
fn all_faults_of_a_file_are_reported_at_once() {
    let nodes = json!([node("s", "START"), {"id": "a", "type": "VARIABLE", "config": {"variableName": 5, "expression": true}},
        {"id": "j", "type": "LLM", "timeoutMs": "1s", "retry": {"maxAttempts": "many", "backoff": "much"}}, node("e", "END"),
        {"id": "lost", "type": "LLM"}]);
    let compiled = build(flow(&nodes, &["s>a", "a>j", "j>e"]).to_string());
    let mut pointers: Vec<&str> = compiled.faults.iter().map(|fault| fault.pointer.as_str()).collect();
    pointers.sort_unstable();
    assert_eq!(
        pointers,
        [
            "/nodes/1/config/expression",
            "/nodes/1/config/variableName",
            "/nodes/2/retry/backoff",
            "/nodes/2/retry/maxAttempts",
            "/nodes/2/timeoutMs",
            "/nodes/4"
        ],
        "{}",
        shown(&compiled.faults)
    );
}

#[test]
fn one_mistake_in_an_edge_causes_one_fault() {
    let file = json!({"id": "w", "nodes": [node("s", "START"), node("a", "LLM"), node("e", "END")],
        "edges": [{"from": "s", "to": "a"}, {"from": "a", "target": "e"}]});
    assert_eq!(codes(&build(file.to_string())), ["UNKNOWN_FIELD"]);
    let file = json!({"id": "w", "nodes": [node("s", "START"), node("a", "LMM"), node("e", "END")],
        "edges": [{"from": "s", "to": "a"}, {"from": "a", "to": "e"}]});
    assert_eq!(codes(&build(file.to_string())), ["INVALID_VALUE"]);
}

#[test]
fn invalid_json_is_reported_with_location_and_reason() {
    for (text, line, column, word) in [
        ("", 1, 1, "ends here"),
        ("{\n  \"id\": \"w\",\n", 3, 1, "ends here"),
        ("{\n  \"id\": \"w", 2, 9, "closing quote"),
        ("{\"id\": NaN}", 1, 8, "NaN"),
        ("{\"id\": -Infinity}", 1, 8, "Infinity"),
        ("{\"id\": Infinity}", 1, 8, "Infinity"),
        ("{\"id\": 1e999}", 1, 8, "1e999"),
        ("{\"a\": 1,}", 1, 8, "comma"),
        ("[1,]", 1, 3, "comma"),
        ("{'a': 1}", 1, 2, "double quotes"),
        ("{\"a\" 1}", 1, 6, "`:`"),
        ("{} {}", 1, 4, "end of the text"),
        ("// hi\n{}", 1, 1, "comments"),
        ("{\"a\": \"\\x\"}", 1, 7, "escape"),
        ("{\"a\": \"x\ny\"}", 1, 9, "line break"),
        ("{\"a\": 01}", 1, 7, "01"),
        ("tru", 1, 1, "tru"),
    ] {
        let loaded = loaded(text);
        let fault = the_fault(&loaded.faults, FaultCode::InvalidJson);
        let position = fault.position.expect("a place");
        assert_eq!((position.line, position.column), (line, column), "{text:?}: {fault}");
        assert!(fault.message.contains(word), "{text:?}: {fault}");
        assert_eq!(loaded.faults.len(), 1);
    }
    assert!(loaded("\u{feff}[]").faults.is_empty(), "a byte order mark is skipped");
}

#[test]
fn other_top_level_values_are_refused() {
    for text in [
        "1",
        "null",
        "\"x\"",
        "true",
        "[1]",
        "{}",
        "{\"workflows\": 5}",
        "{\"nodes\": {}}",
        "[[]]",
    ] {
        assert!(!loaded(text).faults.is_empty(), "{text}");
    }
}

const SAMPLE: &str = include_str!("sample.json");

#[test]
fn the_fuzzing_sample_is_valid() {
    let compiled = build(SAMPLE);
    assert!(compiled.faults.is_empty(), "{}", shown(&compiled.faults));
}

proptest! {
    /// Random changes of a valid file: the loader returns, and a file without faults compiles or has compile faults.
    #[test]
    fn a_mutated_file_never_breaks_the_loader(edits in prop::collection::vec((any::<prop::sample::Index>(), 0_u8..6, any::<u8>()), 1..8)) {
        let mut bytes = SAMPLE.as_bytes().to_vec();
        for (place, kind, byte) in edits {
            if bytes.is_empty() {
                break;
            }
            let at = place.index(bytes.len());
            match kind {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                2 => { bytes.remove(at); }
                3 => bytes.truncate(at),
                4 => { let tail = bytes[at..].to_vec(); bytes.extend(tail); }
                _ => bytes[at] = b"{}[]\",:-0tn"[usize::from(byte) % 11],
            }
        }
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let compiled = build(text.clone());
        for fault in compiled.faults.iter().chain(&compiled.warnings) {
            let position = fault.position.expect("every fault of a text has a place");
            prop_assert!(position.offset + position.length <= text.len());
            prop_assert!(position.line >= 1 && position.column >= 1);
        }
    }

    /// Replaces any member of the file by any small value: faults and no panic, and each pointer refers to the file.
    #[test]
    fn a_value_of_the_wrong_kind_anywhere_never_breaks_the_loader(place in any::<prop::sample::Index>(), kind in 0_usize..8) {
        let mut file: Value = serde_json::from_str(SAMPLE).expect("valid");
        let mut pointers = Vec::new();
        collect(&file, String::new(), &mut pointers);
        let pointer = &pointers[place.index(pointers.len())];
        let value = [json!(null), json!(true), json!(-1), json!(1.5), json!("x"), json!([]), json!({}), json!([{"a": 1}])][kind].clone();
        if let Some(slot) = file.pointer_mut(pointer) {
            *slot = value;
        }
        let compiled = build(file.to_string());
        for fault in &compiled.faults {
            prop_assert!(file.pointer(&fault.pointer).is_some(), "{fault} points to nothing: {}", fault.pointer);
        }
    }
}

fn collect(value: &Value, pointer: String, out: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            for (key, value) in members {
                collect(
                    value,
                    format!("{pointer}/{}", key.replace('~', "~0").replace('/', "~1")),
                    out,
                );
            }
        }
        Value::Array(items) => {
            for (place, value) in items.iter().enumerate() {
                collect(value, format!("{pointer}/{place}"), out);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
    out.push(pointer);
}

#[test]
fn loading_is_deterministic() {
    let file = SourceFile::new("x.json", SAMPLE);
    assert_eq!(
        format!("{:?}", load(&file).workflows),
        format!("{:?}", load(&file).workflows)
    );
}

#[test]
fn a_too_large_number_is_reported_with_the_maximum() {
    let told = |config: &str| {
        let text = format!(
            r#"{{"id": "w", "config": {config}, "nodes": [{{"id": "s", "type": "START"}}, {{"id": "e", "type": "END"}}],
                "edges": [{{"from": "s", "to": "e"}}]}}"#
        );
        let faults = loaded(text).faults;
        assert_eq!(faults.len(), 1, "{config}");
        faults[0].message.clone()
    };
    for number in [
        "4294967296",
        "9223372036854775808",
        "18446744073709551615",
        "18446744073709551616",
        "1e30",
    ] {
        let message = told(&format!(r#"{{"maxConcurrentBranches": {number}}}"#));
        assert!(message.contains("at most 4294967295"), "{message}");
    }
    for number in ["18446744073709551616", "1e30"] {
        let message = told(&format!(r#"{{"maxSteps": {number}}}"#));
        assert!(message.contains("at most 18446744073709551615"), "{message}");
    }
    for number in ["-1", "1.5", "-1e30", "\"1\""] {
        let message = told(&format!(r#"{{"maxConcurrentBranches": {number}}}"#));
        assert!(message.contains("a whole number that is not negative"), "{message}");
    }
}

#[test]
fn an_empty_script_file_is_reported_as_empty() {
    let script = load(&SourceFile::new("a.js", ""));
    let node = flow(
        &json!([node("s", "START"), {"id": "n", "type": "SCRIPT", "config": {"file": "a.js"}}, node("e", "END")]),
        &["s>n", "n>e"],
    );
    let scripts = BTreeMap::from([("a.js".to_owned(), Ok(String::new()))]);
    let named = load(&SourceFile::new("flow.json", node.to_string()).with_scripts(scripts.into()));
    for loaded in [script, named] {
        assert_eq!(loaded.faults.len(), 1, "{}", shown(&loaded.faults));
        let message = &loaded.faults[0].message;
        assert!(
            message.contains("is empty") && !message.contains("`code` or `file`"),
            "{message}"
        );
    }
}
