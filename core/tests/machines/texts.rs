//! Any bytes, and any workflow with its parts shuffled: read, checked and looked through without a panic, and whatever
//! is wrong has its place.

use pirn_core::analysis::analyse;
use pirn_core::definition::{Loaded, SourceFile};
use pirn_core::graph::{CompileContext, compile_loaded};
use pirn_core::script::{Path, Plain};
use proptest::prelude::*;
use serde_json::{Value, json};

fn look(text: &str) -> Result<(), TestCaseError> {
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

/// Every place in a value, as a pointer.
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
    fn any_bytes_are_answered(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        look(&String::from_utf8_lossy(&bytes))?;
    }

    /// Structure stays valid JSON, so that what comes after the parser is reached.
    #[test]
    fn any_part_in_the_place_of_any_other_is_answered(
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
        look(&file.to_string())?;
    }

    #[test]
    fn any_text_is_read_as_an_expression_or_left_to_javascript(text in "\\PC{0,60}") {
        let _ = Plain::read(&text);
        let _ = Path::of_template(&text);
    }
}
