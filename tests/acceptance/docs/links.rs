//! Links and the table of contents.

use std::collections::BTreeSet;

use super::{page, pages, root};

/// Returns the targets of a page's links, without those in code.
fn links(page: &str) -> Vec<String> {
    let mut text = String::new();
    let mut is_code = false;
    for line in page.lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if !is_code {
            // Text between back ticks contains no links.
            text.extend(line.split('`').step_by(2));
            text.push('\n');
        }
    }
    let rests = text.split("](").skip(1);
    rests
        .filter_map(|rest| rest.split(')').next())
        .map(str::to_owned)
        .collect()
}

/// Returns the anchor of a heading, as mdBook and GitHub form it.
fn anchor(heading: &str) -> String {
    let plain = heading.trim_start_matches('#').trim().to_lowercase();
    plain
        .chars()
        .filter_map(|c| match c {
            ' ' => Some('-'),
            c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c),
            _ => None,
        })
        .collect()
}

#[test]
fn every_link_leads_to_a_file_and_every_anchor_to_a_heading() {
    let mut dead = Vec::new();
    let of_contributors = ["ARCHITECTURE.md", "CONTRIBUTING.md"].map(str::to_owned);
    for name in pages().into_iter().chain(of_contributors) {
        let folder = root().join(&name).parent().expect("a folder").to_owned();
        for link in links(&page(&name)) {
            if link.starts_with("http://") || link.starts_with("https://") {
                continue;
            }
            let (path, heading) = link.split_once('#').unwrap_or((&link, ""));
            let target = if path.is_empty() {
                root().join(&name)
            } else {
                folder.join(path)
            };
            if !target.exists() {
                dead.push(format!("{name}: {link}: there is no such file"));
            } else if !heading.is_empty() {
                let text = std::fs::read_to_string(&target).expect("readable");
                let headings = text.lines().filter(|line| line.starts_with('#'));
                if !headings.map(anchor).any(|anchor| anchor == heading) {
                    dead.push(format!("{name}: {link}: there is no such heading"));
                }
            }
        }
    }
    assert!(dead.is_empty(), "{}", dead.join("\n"));
}

#[test]
fn the_table_of_contents_names_every_page_once() {
    let listed: Vec<String> = links(&page("docs/SUMMARY.md"))
        .iter()
        .map(|link| format!("docs/{link}"))
        .collect();
    let once: BTreeSet<&String> = listed.iter().collect();
    assert_eq!(once.len(), listed.len(), "a page stands twice");
    let there: Vec<String> = pages()
        .into_iter()
        .filter(|name| name.starts_with("docs/") && name != "docs/SUMMARY.md")
        .collect();
    assert_eq!(once.into_iter().cloned().collect::<Vec<_>>(), there);
}

/// Checks the format: mdBook reads only a prefix, titles of parts and lists.
#[test]
fn the_table_of_contents_has_the_form_that_mdbook_reads() {
    for line in page("docs/SUMMARY.md").lines() {
        let is_item = line.trim_start().starts_with("- [") && line.ends_with(".md)");
        let is_prefix = line.starts_with('[') && line.ends_with(".md)");
        assert!(
            line.is_empty() || line.starts_with("# ") || is_item || is_prefix,
            "{line}"
        );
    }
}

/// Rustdoc comments must not refer to documents that their readers do not have.
#[test]
fn no_rustdoc_refers_to_documents_that_readers_do_not_have() {
    let mut found = Vec::new();
    let mut folders: Vec<_> = [
        "definition/src",
        "conversation/src",
        "events/src",
        "core/src",
        "sync/src",
        "actors/src",
        "store/src",
        "adapters",
        "src",
    ]
    .map(|name| root().join(name))
    .into();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("readable") {
            let path = entry.expect("readable").path();
            if path.is_dir() && path.file_name().is_some_and(|name| name != "tests") {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                let text = std::fs::read_to_string(&path).expect("readable");
                let docs = text
                    .lines()
                    .filter(|line| line.trim_start().starts_with("///") || line.starts_with("//!"));
                let named = docs.filter(|line| {
                    let mut words = line.split(|c: char| !c.is_alphanumeric());
                    words.any(|word| word == "SPEC" || word == "DESIGN")
                });
                found.extend(named.map(|line| format!("{}: {line}", path.display())));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// Readers of the pages have neither the specification nor the design documents.
#[test]
fn no_page_refers_to_documents_that_readers_do_not_have() {
    let mut found = Vec::new();
    for name in pages() {
        for (at, line) in page(&name).lines().enumerate() {
            let words: Vec<&str> = line.split(|c: char| !c.is_alphanumeric()).collect();
            let is_seed = words
                .windows(2)
                .any(|pair| pair[0].eq_ignore_ascii_case("seed") && pair[1].len() == 3 && pair[1].starts_with("00"));
            if words.contains(&"SPEC") || words.contains(&"DESIGN") || is_seed {
                found.push(format!("{name}:{}: {line}", at + 1));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}
