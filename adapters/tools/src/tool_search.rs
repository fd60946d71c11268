//! The built-in tool `tool_search`: finds deferred tools by the words of their names and descriptions.
//!
//! The result is journaled like that of any tool, so that a replay needs neither the search nor the registry.

use std::cmp::Reverse;

use pirn_actors::ports::ToolSpec;
use pirn_core::thread::ToolResult;
use serde_json::Value;

/// Maximum number of tools that a search reveals.
pub(crate) const MAX_FOUND: usize = 5;

/// Maximum number of bytes of a query that are read.
const MAX_QUERY: usize = 1 << 10;

/// Maximum number of characters of a description in the result. The model receives the whole description with its next request.
const MAX_SHOWN: usize = 200;

/// Points of a word of the query: equal to the name, to a word of the name, part of the name, equal to a word of the description.
const POINTS: [u32; 4] = [100, 10, 4, 2];

/// Answers a call with the tools that match the query best.
pub(crate) fn search(arguments: &Value, deferred: &[&ToolSpec]) -> ToolResult {
    let Some(query) = arguments["query"].as_str().filter(|query| !query.trim().is_empty()) else {
        return ToolResult::failed("`query` must be a text with words of the tools that you need");
    };
    let found = ranked(query, deferred);
    if found.is_empty() {
        return ToolResult {
            content: "No tool matches. Search for a name of the list in the description of `tool_search`.".to_owned(),
            ..ToolResult::default()
        };
    }
    let line = |spec: &&ToolSpec| {
        let description: String = spec.description.chars().take(MAX_SHOWN).collect();
        format!("\n- {}: {description}", spec.name)
    };
    let lines: String = found.iter().map(line).collect();
    ToolResult {
        content: format!("These tools can be called from now on:{lines}"),
        revealed: found.into_iter().map(|spec| spec.name.clone()).collect(),
        ..ToolResult::default()
    }
}

/// Returns the matching tools, best first; tools with equal points in their order.
fn ranked<'a>(query: &str, deferred: &[&'a ToolSpec]) -> Vec<&'a ToolSpec> {
    let end = query.len().min(MAX_QUERY);
    let end = (0..=end).rev().find(|end| query.is_char_boundary(*end)).unwrap_or(0);
    // Names contain `_` and `-`: a query may be the name of a tool.
    let named: Vec<String> = query[..end].split_whitespace().map(str::to_lowercase).collect();
    let mut asked = words(&query[..end]);
    asked.sort_unstable();
    // A repeated word does not count twice.
    asked.dedup();
    let mut scored: Vec<(u32, &ToolSpec)> = deferred
        .iter()
        .map(|spec| (points(&named, &asked, spec), *spec))
        .filter(|(points, _)| *points > 0)
        .collect();
    // Stable, so that equal points keep the order of the tools.
    scored.sort_by_key(|(points, _)| Reverse(*points));
    scored.into_iter().take(MAX_FOUND).map(|(_, spec)| spec).collect()
}

fn points(named: &[String], asked: &[String], spec: &ToolSpec) -> u32 {
    let [whole, word_of_name, part_of_name, word_of_description] = POINTS;
    let name = spec.name.to_lowercase();
    let (in_name, in_description) = (words(&spec.name), words(&spec.description));
    let of_word = |word: &String| {
        let of_name = if in_name.contains(word) {
            word_of_name
        } else if name.contains(&**word) {
            part_of_name
        } else {
            0
        };
        of_name
            + if in_description.contains(word) {
                word_of_description
            } else {
                0
            }
    };
    let exact = if named.contains(&name) { whole } else { 0 };
    exact + asked.iter().map(of_word).sum::<u32>()
}

/// Returns the words of a text in lower case: runs of letters and digits.
fn words(text: &str) -> Vec<String> {
    let words = text.split(|character: char| !character.is_alphanumeric());
    words.filter(|word| !word.is_empty()).map(str::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn spec(name: &str, description: &str) -> ToolSpec {
        ToolSpec {
            name: name.to_owned(),
            description: description.to_owned(),
            parameters: json!({"type": "object"}),
        }
    }

    fn found(query: &str, specs: &[ToolSpec]) -> Vec<String> {
        search(&json!({"query": query}), &specs.iter().collect::<Vec<_>>()).revealed
    }

    #[test]
    fn words_of_the_name_precede_words_of_the_description() {
        let specs = [
            spec("note_read", "Reads a note about an issue"),
            spec("issue_create", "Creates an entry"),
            spec("tissue", "Paper"),
            spec("weather", "The weather"),
        ];
        assert_eq!(found("issue", &specs), ["issue_create", "tissue", "note_read"]);
        assert_eq!(found("note_read", &specs)[0], "note_read");
        assert_eq!(found("WEATHER!", &specs), ["weather"]);
        assert_eq!(found("nothing", &specs), [""; 0]);
        assert!(search(&json!({"query": " "}), &[]).failed && search(&json!({}), &[]).failed);
    }

    proptest! {
        /// The oracle compares every pair of tools: a revealed tool has points, and no tool that is not revealed precedes it.
        #[test]
        fn the_revealed_tools_are_the_first_of_the_order_by_points(
            names in prop::collection::btree_set("[ab]{1,2}(_[abc]{1,2})?", 1..12),
            descriptions in prop::collection::vec("[abc]{1,2}( [abc]{1,2})?", 12),
            query in "[abc]{1,2}([ _][abc]{1,2}){0,3}",
        ) {
            let specs: Vec<ToolSpec> = names.iter().zip(&descriptions).map(|(name, text)| spec(name, text)).collect();
            let revealed = found(&query, &specs);
            let score = |spec: &ToolSpec| -> u32 {
                let parts: std::collections::BTreeSet<&str> = query.split([' ', '_']).collect();
                let mut total = if query.split(' ').any(|word| word == spec.name) { 100 } else { 0 };
                for part in parts {
                    if spec.name.split('_').any(|word| word == part) {
                        total += 10;
                    } else if spec.name.contains(part) {
                        total += 4;
                    }
                    if spec.description.split(' ').any(|word| word == part) {
                        total += 2;
                    }
                }
                total
            };
            let before = |one: &ToolSpec, other: &ToolSpec| {
                score(one) > score(other) || (score(one) == score(other) && one.name < other.name)
            };
            for spec in specs.iter().filter(|spec| score(spec) > 0) {
                let place = specs.iter().filter(|other| before(other, spec)).count();
                let expected = (place < MAX_FOUND).then_some(place);
                prop_assert_eq!(revealed.iter().position(|name| *name == spec.name), expected);
            }
            prop_assert!(specs.iter().filter(|spec| score(spec) == 0).all(|spec| !revealed.contains(&spec.name)));
        }
    }
}
