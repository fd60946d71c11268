//! Checks that every test named by docs/semantics.md exists; the page names one for each sentence.

use std::collections::BTreeSet;
use std::path::Path;

const PAGE: &str = include_str!("../../../docs/semantics.md");

fn sources(folder: &Path, names: &mut BTreeSet<String>) {
    let entries = std::fs::read_dir(folder).expect("a readable folder");
    for entry in entries {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            if path.file_name().is_none_or(|name| name != "target") {
                sources(&path, names);
            }
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            let text = std::fs::read_to_string(&path).expect("UTF-8");
            names.extend(tests_of(&text));
        }
    }
}

/// Returns the functions below `#[test]`, below another attribute that ends in `test`, or inside `proptest!`.
fn tests_of(text: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut is_test = false;
    for line in text.lines().map(str::trim) {
        if line.starts_with("#[") {
            is_test |= line.contains("test]") || line.contains("test(");
            continue;
        }
        let function = line.strip_prefix("async ").unwrap_or(line).strip_prefix("fn ");
        if let (true, Some(rest)) = (is_test, function) {
            names.extend(rest.split(['(', '<']).next().map(str::to_owned));
        }
        is_test &= line.is_empty() || line.starts_with("//");
    }
    names
}

/// Returns the names of all tests.
pub(super) fn known_tests() -> BTreeSet<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut known = BTreeSet::new();
    for folder in [
        "actors",
        "adapters",
        "cli",
        "definition",
        "conversation",
        "drawing",
        "engines",
        "events",
        "core",
        "service",
        "src",
        "store",
        "sync",
        "tests",
        "loom-tests",
    ] {
        sources(&root.join(folder), &mut known);
    }
    known
}

#[test]
fn every_sentence_names_a_test_that_exists() {
    let known = known_tests();
    let sentences: Vec<&str> = PAGE.lines().filter(|line| line.starts_with("- ")).collect();
    assert!(sentences.len() > 40, "{} sentences", sentences.len());
    for sentence in sentences {
        let name = sentence.strip_suffix('`').and_then(|rest| rest.rsplit_once('`'));
        let Some((_, name)) = name else {
            panic!("no test is named: {sentence}");
        };
        assert!(known.contains(name), "there is no test {name}: {sentence}");
    }
}

#[test]
fn the_page_has_no_text_outside_its_lists() {
    let outside: Vec<&str> = PAGE
        .lines()
        .skip(4)
        .filter(|line| !line.is_empty() && !line.starts_with("- ") && !line.starts_with("## "))
        .collect();
    assert_eq!(outside, Vec::<&str>::new());
}
