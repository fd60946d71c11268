//! Each value of two samples, which have every node type, is replaced by `null` and by values of other types.

use serde_json::{Value, json};

use super::fixtures::{build, shown};
use super::schema::accepts;

const SAMPLES: [&str; 2] = [include_str!("sample.json"), include_str!("sample-more.json")];

/// Returns the pointers of all values, inner ones first.
fn pointers(value: &Value, pointer: String, found: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            for (key, inner) in members {
                pointers(inner, format!("{pointer}/{key}"), found);
            }
        }
        Value::Array(items) => {
            for (place, inner) in items.iter().enumerate() {
                pointers(inner, format!("{pointer}/{place}"), found);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
    found.push(pointer);
}

/// Calls `check` with each changed sample, the pointer of the change, and the new value.
fn each_change(values: &dyn Fn(usize) -> Vec<Value>, check: impl Fn(&Value, &str, &Value)) {
    for sample in SAMPLES {
        let file: Value = serde_json::from_str(sample).expect("valid");
        let unchanged = build(sample);
        assert!(unchanged.faults.is_empty(), "{}", shown(&unchanged.faults));
        let mut all = Vec::new();
        pointers(&file, String::new(), &mut all);
        for (number, pointer) in all.iter().enumerate() {
            for value in values(number) {
                let mut changed = file.clone();
                *changed.pointer_mut(pointer).expect("it is in the file") = value.clone();
                check(&changed, pointer, &value);
            }
        }
    }
}

/// One value for each position in a file. All values are of types that most fields refuse.
fn one_of_each_type(number: usize) -> Vec<Value> {
    let values = [json!(true), json!(-1.5), json!("ü{{"), json!([7]), json!(1e300)];
    vec![json!(null), values[number % values.len()].clone()]
}

#[test]
fn a_file_that_loads_matches_the_schema() {
    each_change(&one_of_each_type, |file, pointer, value| {
        let compiled = build(file.to_string());
        assert!(
            !compiled.faults.is_empty() || accepts(file),
            "the schema refuses {value} at {pointer}"
        );
    });
}

#[test]
fn a_value_of_a_wrong_type_is_one_fault_on_its_line() {
    let wrong = |number: usize| vec![one_of_each_type(number).remove(1)];
    each_change(&wrong, |file, pointer, value| {
        // References to a workflow, a node or an edge without a readable id or type are separate faults.
        let is_field = [
            "/config/",
            "/retry/",
            "/action/",
            "/condition/",
            "/schedule/",
            "/variables/",
        ];
        if accepts(file) || !is_field.iter().any(|part| pointer.contains(part)) {
            return;
        }
        let text = serde_json::to_string_pretty(file).expect("JSON");
        let compiled = build(text.as_str());
        assert!(
            compiled.faults.len() == 1,
            "{value} at {pointer}:\n{}",
            shown(&compiled.faults)
        );
        let fault = &compiled.faults[0];
        // A value with several forms is reported as a whole.
        let is_there = fault.pointer.starts_with(pointer) || pointer.starts_with(&fault.pointer);
        assert!(is_there, "{fault} at {}, not at {pointer}", fault.pointer);
        assert!(file.pointer(&fault.pointer).is_some(), "{fault} at {}", fault.pointer);
        let position = fault.position.expect("the text is known");
        let line = text
            .lines()
            .nth(position.line as usize - 1)
            .expect("a line of the text");
        let key = fault.pointer.rsplit('/').next().unwrap_or_default();
        let is_item = key.parse::<usize>().is_ok();
        assert!(is_item || line.contains(&format!("\"{key}\"")), "{fault}: {line}");
    });
}
