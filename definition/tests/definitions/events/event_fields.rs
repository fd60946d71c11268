//! The fields of events in `EventType::fields` are those that `docs/reference/events.md` lists.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use pirn_definition::event_type::{EVENT_FIELDS, EventType};

#[test]
fn the_fields_of_each_event_are_those_of_the_page() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/events.md");
    let page = fs::read_to_string(path).expect("the page is there");
    for event in EventType::ALL {
        let row = page
            .lines()
            .find(|line| line.starts_with(&format!("| `{}` |", event.as_str())));
        let row = row.unwrap_or_else(|| panic!("{} has no row", event.as_str()));
        // Words in round brackets are values.
        let cell = without_brackets(row.rsplit(" | ").next().unwrap_or_default());
        let words = cell.split('`').skip(1).step_by(2);
        let is_field = |word: &&str| word.starts_with(char::is_lowercase) && word.chars().all(char::is_alphanumeric);
        let listed: BTreeSet<&str> = words
            .filter(is_field)
            .filter(|word| !EVENT_FIELDS.contains(word))
            .collect();
        let known: BTreeSet<&str> = event.fields().iter().copied().collect();
        assert_eq!(listed, known, "{}", event.as_str());
    }
}

fn without_brackets(text: &str) -> String {
    let (mut depth, mut is_code) = (0_usize, false);
    let mut kept = String::new();
    for sign in text.chars() {
        match sign {
            '(' if !is_code => depth += 1,
            ')' if !is_code => depth = depth.saturating_sub(1),
            _ if depth == 0 => {
                is_code ^= sign == '`';
                kept.push(sign);
            }
            _ => {}
        }
    }
    kept
}
