//! Form of the design decisions.

use std::fs;

use super::{page, root};

const HEADINGS: [&str; 4] = ["## Context", "## Decision", "## Alternatives", "## Consequences"];

#[test]
fn each_design_decision_answers_a_question_and_is_in_the_index() {
    let folder = root().join("docs/decisions");
    let names = fs::read_dir(folder).expect("readable");
    let names = names.map(|entry| entry.expect("readable").file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.filter(|name| name != "README.md").collect();
    names.sort();
    let index = page("docs/decisions/README.md");
    let mut expected = Vec::new();
    for (at, name) in names.iter().enumerate() {
        let number = format!("{:04}", at + 1);
        assert!(name.starts_with(&format!("{number}-")), "{name} is not number {number}");
        let text = page(&format!("docs/decisions/{name}"));
        let title = text.lines().next().and_then(|line| line.strip_prefix("# "));
        let title = title.filter(|title| title.starts_with("Why ") && title.ends_with('?'));
        let title = title.unwrap_or_else(|| panic!("{name} has no question as title"));
        let headings: Vec<&str> = text.lines().filter(|line| line.starts_with("##")).collect();
        assert_eq!(headings, HEADINGS, "{name}");
        expected.push(format!("- {number} [{title}]({name})"));
    }
    let listed: Vec<&str> = index.lines().filter(|line| line.starts_with("- ")).collect();
    assert_eq!(listed, expected);
}
