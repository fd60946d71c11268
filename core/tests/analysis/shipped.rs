//! No false alarms: what ships gives no warning.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use pirn_core::definition::{FaultCode, SourceFile};

use crate::world::look;

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
fn the_examples_give_no_warning() {
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
        // A conversation, pinned context or an input stands beside its workflow.
        let is_defined = |name: &&str| {
            let text = fs::read_to_string(repository().join(&set).join(name)).expect("readable");
            let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
            ["workflows", "nodes", "action"]
                .iter()
                .any(|field| value.get(field).is_some())
        };
        let names: Vec<&str> = names.iter().map(String::as_str).filter(is_defined).collect();
        let (_, analysis) = look(&files(&set, &names));
        assert_eq!(analysis.warnings, [], "{set}");
    }
}

#[test]
fn the_seeds_give_no_warning() {
    let names = json_in("tests/seeds");
    let whole = |name: &&str| !name.starts_with("000-") && *name != "002-continue-from-trigger-node.json";
    let alone: Vec<&str> = names.iter().map(String::as_str).filter(whole).collect();
    assert!(alone.len() >= 4, "{alone:?}");
    for name in alone {
        let (_, analysis) = look(&files("tests/seeds", &[name]));
        assert_eq!(analysis.warnings, [], "{name}");
    }
    for set in [
        ["002-compression-workflow.json", "002-trigger.json"],
        ["003-compression-workflow.json", "003-trigger.json"],
    ] {
        let (_, analysis) = look(&files("tests/seeds", &set));
        assert_eq!(analysis.warnings, [], "{set:?}");
    }
}

#[test]
fn a_token_limit_without_its_trigger_is_told_of() {
    let (_, analysis) = look(&files("examples/compression-002", &["main.json"]));
    let codes: Vec<FaultCode> = analysis.warnings.iter().map(|fault| fault.code).collect();
    assert_eq!(codes, [FaultCode::TokenLimitWithoutCompression]);
    assert_eq!(analysis.warnings[0].pointer, "/config/tokenLimit");
    assert!(analysis.warnings[0].position.is_some());
}
