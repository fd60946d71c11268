//! Checks docs/claims.md: each row names tests or programs that exist, and every page of the table of contents has a row.

use std::path::Path;

use super::semantics::known_tests;

const PAGE: &str = include_str!("../../../docs/claims.md");
const CONTENTS: &str = include_str!("../../../docs/SUMMARY.md");

/// Pages that other tests check, or that are parts of a listed page.
const ELSEWHERE: [&str; 3] = ["semantics.md", "claims.md", "decisions/"];

fn rows() -> Vec<[&'static str; 3]> {
    let rows = PAGE.lines().filter(|line| line.starts_with('|')).skip(2);
    rows.map(|line| {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        cells.try_into().unwrap_or_else(|_| panic!("not three cells: {line}"))
    })
    .collect()
}

#[test]
fn every_claim_names_a_test_or_a_program_that_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let known = known_tests();
    let rows = rows();
    assert!(rows.len() > 80, "{} claims", rows.len());
    for [_, claim, proof] in rows {
        let names: Vec<&str> = proof.split('`').skip(1).step_by(2).collect();
        assert!(!claim.is_empty() && !names.is_empty(), "no proof is named: {claim}");
        for name in names {
            let is_program = name.contains('/') && root.join(name).is_file();
            assert!(
                is_program || known.contains(name),
                "there is no test or program {name}: {claim}"
            );
        }
    }
}

#[test]
fn every_page_of_the_table_of_contents_has_a_claim() {
    let listed: Vec<&str> = rows().iter().map(|[page, ..]| *page).collect();
    let pages = CONTENTS
        .lines()
        .filter_map(|line| line.split_once("](")?.1.strip_suffix(')'));
    for page in pages.filter(|page| !ELSEWHERE.iter().any(|other| page.starts_with(other))) {
        let link = format!("]({page})");
        assert!(
            listed.iter().any(|cell| cell.ends_with(&link)),
            "docs/claims.md has no row of {page}"
        );
    }
}
