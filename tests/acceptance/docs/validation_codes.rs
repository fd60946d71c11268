//! Checks `docs/validation-codes.md`: its table lists every code, every bad example yields its code, and no corrected example
//! does.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use pirn::check::{World, budget_faults, check, profile_faults, schema_faults, unknown_names, unknown_tokenizers};
use pirn::config::ConfigText;
use pirn::script::TextSyntax;
use pirn_definition::analysis::analyse;
use pirn_definition::definition::{FaultCode, SourceFile, load};
use pirn_definition::graph::{CompileContext, compile_loaded};
use serde_json::Value;

struct Row {
    code: String,
    place: String,
    bad: String,
    mended: String,
}

fn page() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/validation-codes.md");
    fs::read_to_string(path).expect("the page is there")
}

fn base(page: &str) -> Value {
    let text = page
        .split("```json")
        .nth(1)
        .and_then(|rest| rest.split("```").next())
        .expect("the page has its file");
    serde_json::from_str(text).expect("the file is JSON")
}

fn rows(page: &str) -> Vec<Row> {
    let plain = |cell: &str| cell.trim().trim_matches('`').to_owned();
    page.lines()
        .filter(|line| line.starts_with("| `"))
        .map(|line| {
            let cells: Vec<&str> = line.trim_matches('|').split('|').collect();
            assert_eq!(cells.len(), 5, "{line}");
            Row {
                code: plain(cells[0]),
                place: plain(cells[2]),
                bad: plain(cells[3]),
                mended: plain(cells[4]),
            }
        })
        .collect()
}

/// Returns the codes of a config file without workflows.
fn codes_of_config(config: &str) -> BTreeSet<String> {
    let path = std::env::temp_dir().join(format!("pirn-codes-{}.json", std::process::id()));
    fs::write(&path, config).expect("writable");
    let config = ConfigText::read(&path).expect("JSON");
    fs::remove_file(&path).expect("it was written");
    let world = World {
        config: Some(&config),
        ..World::default()
    };
    let checked = check(&[SourceFile::new("none.json", "[]")], &world);
    let found = checked.faults().iter().chain(checked.warnings());
    found.map(|fault| fault.code.to_string()).collect()
}

/// Returns the codes of the file with `value` at `place`.
fn codes(base: &Value, place: &str, value: &str) -> BTreeSet<String> {
    if place == "the config" {
        return codes_of_config(value);
    }
    let text = if place.starts_with('/') {
        with(base, place, value).to_string()
    } else {
        value.to_owned()
    };
    let loaded = load(&SourceFile::new("example.json", text));
    let functions = BTreeSet::from(["right".to_owned()]);
    let profiles = BTreeSet::from(["small".to_owned()]);
    let tools = ["weather", "files_*"].map(str::to_owned).into();
    let syntax = TextSyntax::default();
    let context = CompileContext {
        syntax: &syntax,
        functions: Some(&functions),
        profiles: Some(&profiles),
        tools: Some(&tools),
        ..CompileContext::default()
    };
    let compiled = compile_loaded(&loaded, &context);
    let analysis = analyse(&loaded, &compiled);
    compiled
        .faults
        .iter()
        .chain(&compiled.warnings)
        .chain(&analysis.warnings)
        .chain(&profile_faults(&loaded, None))
        .chain(&budget_faults(&loaded, None))
        .chain(&unknown_names(&loaded))
        .chain(&unknown_tokenizers(&loaded, None))
        .chain(&schema_faults(&loaded))
        .map(|fault| fault.code.to_string())
        .collect()
}

fn with(base: &Value, place: &str, value: &str) -> Value {
    let value: Value = serde_json::from_str(value).unwrap_or_else(|error| panic!("{value}: {error}"));
    let mut file = base.clone();
    let (parent, key) = place.rsplit_once('/').expect("a pointer");
    let parent = file
        .pointer_mut(parent)
        .unwrap_or_else(|| panic!("{place} leads nowhere"));
    match key.parse::<usize>() {
        Ok(index) => parent[index] = value,
        Err(_) => parent[key] = value,
    }
    file
}

#[test]
fn every_code_is_in_the_table_once() {
    let listed: Vec<String> = rows(&page()).into_iter().map(|row| row.code).collect();
    let known: Vec<&str> = FaultCode::ALL.iter().map(|code| code.as_str()).collect();
    assert_eq!(listed, known);
}

#[test]
fn the_base_file_of_the_page_is_valid() {
    let file = base(&page());
    assert_eq!(codes(&file, "the whole file", &file.to_string()), BTreeSet::new());
}

#[test]
fn every_bad_example_yields_its_code_and_no_corrected_one_does() {
    let page = page();
    let base = base(&page);
    for row in rows(&page) {
        let bad = codes(&base, &row.place, &row.bad);
        assert!(bad.contains(&row.code), "{}: the bad example gives {bad:?}", row.code);
        let mended = codes(&base, &row.place, &row.mended);
        assert!(
            !mended.contains(&row.code),
            "{}: the mended example gives {mended:?}",
            row.code
        );
        assert!(mended.is_empty(), "{}: the mended example gives {mended:?}", row.code);
    }
}
