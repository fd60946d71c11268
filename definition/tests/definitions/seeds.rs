//! Every example of the design documents loads unchanged (SPEC section 2).

use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use pirn_definition::definition::{Loaded, SourceFile};
use pirn_definition::graph::{CompileContext, compile_loaded};

use super::fixtures::{shared, shown};

fn seed(name: &str) -> SourceFile {
    let text = fs::read_to_string(shared("seeds").join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    SourceFile::new(name, in_its_place(name, text))
}

/// Wraps parameters in a trigger and a single node in a workflow; complete files are unchanged.
fn in_its_place(name: &str, text: String) -> String {
    if name.starts_with("000-") {
        return format!(
            r#"{{"id": "t", "type": "EVENT", "condition": {{"eventType": "NODE_COMPLETED"}},
                "action": {{"type": "execute_triggered_subgraph", "parameters": {text}}}}}"#
        );
    }
    if name == "002-continue-from-trigger-node.json" {
        return format!(
            r#"{{"id": "w", "nodes": [{{"id": "start", "type": "START_FROM_TRIGGER"}}, {text}],
                "edges": [{{"from": "start", "to": "continue-from-trigger"}}]}}"#
        );
    }
    text
}

fn names() -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(shared("seeds"))
        .expect("the seeds are there")
        .map(|entry| entry.expect("readable").file_name().to_string_lossy().into_owned())
        .filter(|name| Path::new(name).extension() == Some(OsStr::new("json")))
        .collect();
    names.sort();
    names
}

#[test]
fn every_seed_file_loads_and_compiles_alone() {
    assert!(names().len() >= 10);
    for name in names() {
        let loaded = Loaded::of(&[seed(&name)]);
        assert!(loaded.workflows.len() + loaded.triggers.len() == 1, "{name}");
        let compiled = compile_loaded(&loaded, &CompileContext::default());
        assert!(compiled.faults.is_empty(), "{name}:\n{}", shown(&compiled.faults));
    }
}

#[test]
fn a_seed_workflow_and_its_trigger_compile_as_one_set() {
    for set in [
        ["002-compression-workflow.json", "002-trigger.json"],
        ["003-compression-workflow.json", "003-trigger.json"],
    ] {
        let files = set.map(seed);
        let compiled = compile_loaded(&Loaded::of(&files), &CompileContext::default());
        assert!(compiled.faults.is_empty(), "{set:?}:\n{}", shown(&compiled.faults));
        assert!(compiled.warnings.is_empty(), "{set:?}:\n{}", shown(&compiled.warnings));
        assert_eq!(compiled.graphs.len(), 1, "{set:?}");
    }
}
