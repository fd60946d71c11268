//! Checks that the code that `tests/mutants/run` mutates still exists.

use std::path::Path;

use serde_json::Value;

#[test]
fn every_mutant_matches_exactly_one_place_in_the_code() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let read = |file: &str| std::fs::read_to_string(root.join(file)).expect("it is there");
    let mutants: Vec<Value> = serde_json::from_str(&read("tests/mutants/mutants.json")).expect("a list");
    let text = |mutant: &Value, field: &str| mutant[field].as_str().expect("a text").to_owned();
    let astray: Vec<String> = mutants
        .iter()
        .filter(|mutant| read(&text(mutant, "file")).matches(&text(mutant, "find")).count() != 1)
        .map(|mutant| text(mutant, "name"))
        .collect();
    assert!(astray.is_empty(), "not there, or not once: {astray:?}");
    assert!(mutants.len() > 10);
}
