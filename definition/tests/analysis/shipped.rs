//! No false alarms for the shipped files; and the warning about an unhandled token limit has a usable help text.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use pirn_definition::definition::{FaultCode, SourceFile};
use serde_json::{Value, json};

use super::fixtures::{analyse_files, analyse_json};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn files(folder: &str, names: &[&str]) -> Vec<SourceFile> {
    let read = |name: &&str| {
        let path = repository().join(folder).join(name);
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        SourceFile::new(*name, text)
    };
    names.iter().map(read).collect()
}

fn json_in(folder: &str) -> Vec<String> {
    let entries = fs::read_dir(repository().join(folder)).expect("the folder is there");
    let paths = entries.map(|entry| entry.expect("readable").path());
    let json = paths.filter(|path| path.extension() == Some(OsStr::new("json")));
    let mut names: Vec<String> = json
        .filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned()))
        .collect();
    names.sort();
    names
}

#[test]
fn the_examples_have_no_warnings() {
    let folders = fs::read_dir(repository().join("examples")).expect("the examples are there");
    let mut sets = vec!["examples".to_owned()];
    for entry in folders {
        let entry = entry.expect("readable");
        if entry.path().is_dir() {
            sets.push(format!("examples/{}", entry.file_name().to_string_lossy()));
        }
    }
    assert!(sets.len() >= 3, "{sets:?}");
    for set in sets {
        let names = json_in(&set);
        // Skip conversations, pinned contexts and inputs, which are stored next to their workflows.
        let is_defined = |name: &&str| {
            let text = fs::read_to_string(repository().join(&set).join(name)).expect("readable");
            let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
            ["workflows", "nodes", "action"]
                .iter()
                .any(|field| value.get(field).is_some())
        };
        let names: Vec<&str> = names.iter().map(String::as_str).filter(is_defined).collect();
        let (_, analysis) = analyse_files(&files(&set, &names));
        assert_eq!(analysis.warnings, [], "{set}");
    }
}

#[test]
fn the_seed_workflows_have_no_warnings() {
    let names = json_in("tests/seeds");
    let whole = |name: &&str| !name.starts_with("000-") && *name != "002-continue-from-trigger-node.json";
    let alone: Vec<&str> = names.iter().map(String::as_str).filter(whole).collect();
    assert!(alone.len() >= 4, "{alone:?}");
    for name in alone {
        let (_, analysis) = analyse_files(&files("tests/seeds", &[name]));
        assert_eq!(analysis.warnings, [], "{name}");
    }
    for set in [
        ["002-compression-workflow.json", "002-trigger.json"],
        ["003-compression-workflow.json", "003-trigger.json"],
    ] {
        let (_, analysis) = analyse_files(&files("tests/seeds", &set));
        assert_eq!(analysis.warnings, [], "{set:?}");
    }
}

#[test]
fn a_token_limit_without_a_compression_trigger_is_reported() {
    let (_, analysis) = analyse_files(&files("examples/compression-002", &["main.json"]));
    let codes: Vec<FaultCode> = analysis.warnings.iter().map(|fault| fault.code).collect();
    assert_eq!(codes, [FaultCode::TokenLimitWithoutCompression]);
    assert_eq!(analysis.warnings[0].pointer, "/config/tokenLimit");
    assert!(analysis.warnings[0].position.is_some());
}

/// A workflow with a model node and this config.
fn configured(config: &Value, shortens: bool) -> Value {
    let other = if shortens {
        json!({"id": "y", "type": "CONTEXT_PROCESSOR", "config": {"operation": "truncate", "keepLast": 3}})
    } else {
        json!({"id": "y", "type": "WAIT", "config": {"seconds": 1}})
    };
    json!({"id": "w", "config": config,
        "nodes": [{"id": "s", "type": "START"}, {"id": "x", "type": "LLM", "config": {"prompt": "go"}}, other,
            {"id": "e", "type": "END"}],
        "edges": [{"from": "s", "to": "x"}, {"from": "x", "to": "y"}, {"from": "y", "to": "e"}]})
}

#[test]
fn a_speculative_share_without_an_early_compression_is_reported() {
    let start = json!({"type": "START_WORKFLOW", "parameters": {"workflowId": "other"}});
    let notify = json!({"type": "SEND_NOTIFICATION", "parameters": {"message": "full"}});
    let place = "/config/compression/speculativeAt";
    for (event, action, pointer) in [
        ("TOKEN_LIMIT_EXCEEDED", &start, None),
        ("TOKEN_LIMIT_APPROACHED", &notify, None),
        ("TOKEN_LIMIT_EXCEEDED", &notify, Some(place)),
        ("TOKEN_USAGE_WARNING", &start, Some(place)),
    ] {
        let mut workflow = configured(
            &json!({"tokenLimit": 100, "compression": {"speculativeAt": 0.5}}),
            false,
        );
        workflow["triggers"] = json!([{"id": "t", "condition": {"eventType": event}, "action": action}]);
        let other = json!({"id": "other", "nodes": [{"id": "s", "type": "START"}, {"id": "e", "type": "END"}],
            "edges": [{"from": "s", "to": "e"}]});
        let (_, analysis) = analyse_json(&json!({"workflows": [workflow, other]}));
        let told: Vec<&str> = analysis.warnings.iter().map(|fault| &*fault.pointer).collect();
        let expected: Vec<String> = pointer.iter().map(|pointer| format!("/workflows/0{pointer}")).collect();
        assert_eq!(told, expected, "{event} {action}");
    }
}

#[test]
fn a_compression_that_is_never_started_is_reported_with_a_suggestion() {
    let how = json!({"strategy": "keep_recent", "parameters": {"count": 4}});
    let cases = [
        (json!({"tokenLimit": 100}), false, Some("/config/tokenLimit")),
        (json!({"tokenLimit": 100}), true, None),
        (
            json!({"tokenLimit": 100, "compression": how}),
            false,
            Some("/config/compression"),
        ),
        (
            json!({"tokenLimit": 100, "compression": how}),
            true,
            Some("/config/compression"),
        ),
        (json!({"compression": how}), false, Some("/config/compression")),
        (
            json!({"compression": {"strategy": null}}),
            false,
            Some("/config/compression"),
        ),
        (json!({}), false, None),
    ];
    for (config, shortens, pointer) in cases {
        let workflow = configured(&config, shortens);
        let (_, analysis) = analyse_json(&workflow);
        let told: Vec<&str> = analysis.warnings.iter().map(|fault| &*fault.pointer).collect();
        assert_eq!(told, pointer.into_iter().collect::<Vec<_>>(), "{config}");
        let Some(fault) = analysis.warnings.first() else {
            continue;
        };
        assert_eq!(fault.code, FaultCode::TokenLimitWithoutCompression);
        assert!(fault.position.is_some());
        assert_eq!(
            fault.message.contains("config.compression"),
            config.get("compression").is_some(),
            "it says what is there: {}",
            fault.message
        );
        // Applying the help text must remove the warning, and compress as the config requests.
        let help = fault.help.as_deref().unwrap_or_default();
        let written: Vec<Value> = help
            .match_indices("{\"")
            .filter_map(|(at, _)| serde_json::Deserializer::from_str(&help[at..]).into_iter().next()?.ok())
            .filter(|value: &Value| value.get("id").is_some_and(|id| id == "compress"))
            .collect();
        let is_workflow = |value: &&Value| value.get("edges").is_some();
        let trigger = written.iter().find(|value| value.get("condition").is_some());
        let beside = written.iter().find(is_workflow).expect("a workflow is shown");
        let mut mended = workflow.clone();
        mended["triggers"] = json!([trigger.expect("a trigger is shown")]);
        let (_, analysis) = analyse_json(&json!([mended, beside]));
        assert_eq!(analysis.warnings, [], "{help}");
        if config["compression"]["strategy"] == "keep_recent" {
            assert_eq!(beside["nodes"][1]["config"]["strategy"], "keep_recent");
            assert_eq!(beside["nodes"][1]["config"]["parameters"], json!({"count": 4}));
        }
    }
}
