//! Checks the pages under `docs/`: links have a target, examples produce the documented results, and tables are complete.

mod claims;
mod contributing;
mod decisions;
mod examples;
mod links;
mod semantics;
mod tables;
mod validation_codes;

use std::fs;
use std::path::{Path, PathBuf};

/// Returns the repository's root.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Returns the text of a page; the path starts at the root.
fn page(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Returns the paths of all Markdown pages for users, from the root.
fn pages() -> Vec<String> {
    let mut pages = vec!["README.md".to_owned(), "CHANGELOG.md".to_owned()];
    let mut folders = vec!["docs".to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root().join(&folder)).expect("readable") {
            let entry = entry.expect("readable");
            let path = format!("{folder}/{}", entry.file_name().to_string_lossy());
            if entry.path().is_dir() {
                folders.push(path);
            } else if Path::new(&path).extension().is_some_and(|ending| ending == "md") {
                pages.push(path);
            }
        }
    }
    pages.sort();
    pages
}

/// A block of code in a page.
struct Block {
    /// Words after the language: `workflow`, `file=examples/a.json`.
    info: Vec<String>,
    language: String,
    text: String,
    line: usize,
}

impl Block {
    fn is(&self, word: &str) -> bool {
        self.info.iter().any(|one| one == word)
    }
}

fn blocks(page: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for (at, line) in page.lines().enumerate() {
        match (&mut open, line.trim_start().strip_prefix("```")) {
            (None, Some(info)) => {
                let mut words = info.split([',', ' ']).map(str::to_owned);
                open = Some(Block {
                    language: words.next().unwrap_or_default(),
                    info: words.collect(),
                    text: String::new(),
                    line: at + 1,
                });
            }
            (Some(_), Some("")) => blocks.extend(open.take()),
            (Some(block), _) => {
                block.text.push_str(line);
                block.text.push('\n');
            }
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "a block of code does not end");
    blocks
}
