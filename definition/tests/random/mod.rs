//! Random bytes, and workflows with shuffled parts: they are loaded, validated and analysed without a panic, and every fault has a
//! location.

use std::sync::Arc;

use pirn_definition::analysis::analyse;
use pirn_definition::definition::{Loaded, SourceFile};
use pirn_definition::error::RunErrorCode;
use pirn_definition::graph::{CompileContext, compile_loaded};
use pirn_definition::script::{Plain, ScopeValues, Step, is_reserved};
use proptest::prelude::*;
use serde_json::{Value, json};

fn load_and_analyse(text: &str) -> Result<(), TestCaseError> {
    let loaded = Loaded::of(&[SourceFile::new("any.json", text.to_owned())]);
    let compiled = compile_loaded(&loaded, &CompileContext::default());
    let analysis = analyse(&loaded, &compiled);
    for fault in compiled
        .faults
        .iter()
        .chain(&compiled.warnings)
        .chain(&analysis.warnings)
    {
        let position = fault.position.expect("every fault of a text has a place");
        prop_assert!(position.line >= 1 && position.offset + position.length <= text.len());
        prop_assert!(text.is_char_boundary(position.offset));
    }
    Ok(())
}

const SAMPLE: &str = include_str!("../../../examples/support-fork.json");

/// Collects the JSON pointers of all values.
fn places(value: &Value, here: &str, found: &mut Vec<String>) {
    found.push(here.to_owned());
    match value {
        Value::Array(items) => {
            for (place, item) in items.iter().enumerate() {
                places(item, &format!("{here}/{place}"), found);
            }
        }
        Value::Object(fields) => {
            for (key, item) in fields {
                places(item, &format!("{here}/{key}"), found);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

proptest! {
    #[test]
    fn any_bytes_load_or_fail_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        load_and_analyse(&String::from_utf8_lossy(&bytes))?;
    }

    /// The file remains valid JSON, so that the code after the parser is reached.
    #[test]
    fn any_swapped_part_of_a_file_loads_or_fails_without_a_panic(
        swaps in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), 0..6_u8), 1..6),
    ) {
        let mut file: Value = serde_json::from_str(SAMPLE)?;
        for (to, from, kind) in swaps {
            let mut found = Vec::new();
            places(&file, "", &mut found);
            let part = match kind {
                0..=3 => file.pointer(&found[from.index(found.len())]).cloned().unwrap_or_default(),
                4 => json!(-1),
                _ => json!("true"),
            };
            if let Some(place) = file.pointer_mut(&found[to.index(found.len())]) {
                *place = part;
            }
        }
        load_and_analyse(&file.to_string())?;
    }

    #[test]
    fn any_string_is_a_plain_expression_or_left_to_javascript(text in texts()) {
        let trimmed = text.trim();
        let value = value_of(&text)?;
        match literal(trimmed) {
            Some(literal) => prop_assert_eq!(value, Some(literal), "a literal is itself"),
            None if is_name(trimmed) => prop_assert_eq!(value, Some(json!("leaf")), "a name is its variable"),
            // A path has the value at its end. Results of operators are compared with JavaScript in another test.
            None if Plain::read(&text).is_some_and(|plain| plain.path().is_some()) => {
                prop_assert!(value.is_none_or(|value| value == json!("leaf")), "{text:?}");
            }
            None => {}
        }
    }

    #[test]
    fn calls_template_literals_and_assignments_are_left_to_javascript(
        left in "[a-z]{1,5}", operator in prop::sample::select(&["(", "`", " = ", " => ", " ** ", " += ", "++"][..]), right in "[a-z0-9)]{1,5}",
    ) {
        prop_assert_eq!(Plain::read(&format!("{left}{operator}{right}")), None);
    }
}

/// Generates realistic expressions, and arbitrary ones.
fn texts() -> impl Strategy<Value = String> {
    prop_oneof![
        "\\PC{0,60}",
        "[a-z_$]{1,6}(\\.[a-z]{1,4}|\\[[0-9]{1,3}\\]|\\['[a-z -]{0,4}'\\]){0,3}",
        "\\{\\{ ?[a-z-]{1,6}(\\.[a-z0-9-]{1,3}){0,2} ?\\}\\}",
        "-?[0-9]{1,17}(\\.[0-9]{1,4})?(e[0-9])?",
        "['\"][a-z '\"\\\\{}]{0,8}['\"]",
        prop::sample::select(
            &[
                "true",
                "false",
                "null",
                "undefined",
                "this",
                "NaN",
                "Math.PI",
                "__proto__",
                ""
            ][..]
        )
        .prop_map(str::to_owned),
    ]
}

/// Evaluates an expression without JavaScript; every path ends at "leaf". Returns `None` if it needs JavaScript.
fn value_of(text: &str) -> Result<Option<Value>, TestCaseError> {
    let Some(plain) = Plain::read(text) else {
        return Ok(None);
    };
    let mut scope = ScopeValues::default();
    if let Some(path) = plain.path() {
        let inside = text.trim().trim_start_matches("{{").trim_end_matches("}}").trim();
        prop_assert_eq!(&**path.source(), inside, "a path is the whole text");
        let steps = path.steps();
        let (root, steps) = match (&**path.root(), steps.split_first()) {
            ("variables" | "nodes", None) => return Ok(None),
            ("variables" | "nodes", Some((Step::Key(name), rest))) => (name.to_string(), rest),
            ("variables" | "nodes", Some((Step::Index(index), rest))) => (index.to_string(), rest),
            (root, _) => (root.to_owned(), steps),
        };
        let mut value = json!("leaf");
        for step in steps.iter().rev() {
            value = match step {
                Step::Key(key) => json!({ key.to_string(): value }),
                Step::Index(index) => {
                    let mut items = vec![Value::Null; *index];
                    items.push(value);
                    Value::Array(items)
                }
            };
        }
        let root: Arc<str> = root.into();
        scope.nodes.insert(Arc::clone(&root), Arc::new(value.clone()));
        scope.variables.insert(root, Arc::new(value));
    }
    match plain.value(&scope).transpose() {
        Ok(value) => Ok(value.map(|value| value.as_ref().clone())),
        // An operand is an unknown name.
        Err(fault) if fault.code == RunErrorCode::UnknownName => Ok(None),
        Err(fault) => Err(TestCaseError::fail(fault.to_string())),
    }
}

/// Parses a literal: JSON, `undefined` and single-quoted strings. `None` where JavaScript and JSON differ.
fn literal(text: &str) -> Option<Value> {
    let is_number = |text: &str| !text.contains(['e', 'E']) && text.trim_start_matches('-').len() <= 15;
    let quoted = |quote: char| {
        text.strip_prefix(quote)?
            .strip_suffix(quote)
            .filter(|inside| !inside.contains([quote, '\\']))
    };
    match (text, quoted('\'').or_else(|| quoted('"'))) {
        ("undefined", _) => Some(Value::Null),
        (_, Some(inside)) if inside.contains("{{") || inside.chars().any(char::is_control) => None,
        (_, Some(inside)) => Some(json!(inside)),
        (_, None) => match serde_json::from_str(text).ok()? {
            Value::Number(number) if is_number(text) => {
                let whole = number.as_f64().filter(|number| number.fract() == 0.0);
                Some(whole.map_or(json!(number), |whole| json!(whole as i64)))
            }
            Value::Bool(flag) => Some(json!(flag)),
            Value::Null => Some(Value::Null),
            Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => None,
        },
    }
}

/// Returns true for a name of letters that is not reserved in JavaScript.
fn is_name(text: &str) -> bool {
    let letters = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_lowercase());
    letters && !is_reserved(text) && !matches!(text, "variables" | "nodes")
}
