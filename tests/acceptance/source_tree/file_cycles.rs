//! Imports between the files of a crate have no cycles.
//!
//! An import is a path that starts with `crate::` or `super::`. Imports between a folder's `mod.rs` and the files below it are not
//! counted, because a `mod.rs` exports what its files define.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::house::{CRATES, circles, code, sources, workspace};

#[test]
fn files_import_each_other_in_no_cycles() {
    let mut cycles = Vec::new();
    for (root, _) in CRATES {
        cycles.extend(
            circles(&imports(root))
                .iter()
                .map(|cycle| format!("{root}: {}", cycle.join(", "))),
        );
    }
    assert!(cycles.is_empty(), "{}", cycles.join("\n"));
}

#[test]
fn paths_lead_to_the_modules_that_they_name() {
    let text =
        "use crate::a::{self, b::{C, d}, e::f as g};\nuse super::{H, i::*};\nlet x = super::super::j::k(crate::L);";
    let here = ["m", "n"].map(str::to_owned);
    let named: Vec<String> = references(text, &here).iter().map(|path| path.join("::")).collect();
    assert_eq!(named, ["a", "a::b", "a::b::d", "a::e::f", "m", "m::i", "j::k", ""]);
}

/// Returns each file of a crate, as a module path, with the files that it imports.
pub(super) fn imports(root: &str) -> BTreeMap<String, BTreeSet<String>> {
    let files = sources(root);
    let folder = workspace().join(root);
    let module = |file: &Path| -> Vec<String> {
        let path = file.strip_prefix(&folder).expect("below it").with_extension("");
        let parts = path
            .components()
            .map(|part| part.as_os_str().to_string_lossy().into_owned());
        parts
            .filter(|part| !["mod", "lib", "main"].contains(&part.as_str()))
            .collect()
    };
    let modules: BTreeSet<Vec<String>> = files.iter().map(|file| module(file)).collect();
    let mut imports: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for file in &files {
        let here = module(file);
        if here.is_empty() {
            continue;
        }
        let imported = imports.entry(here.join("::")).or_default();
        for mut target in references(&code(file), &here) {
            // The last parts of a path may be items of a module.
            while !target.is_empty() && !modules.contains(&target) {
                target.pop();
            }
            if !target.is_empty() && !target.starts_with(&here) && !here.starts_with(&target) {
                imported.insert(target.join("::"));
            }
        }
    }
    imports
}

/// Returns the paths that start with `crate::` or `super::`, from the root of the crate, with groups in braces expanded.
fn references(text: &str, here: &[String]) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(at) = ["crate::", "super::"].iter().filter_map(|start| rest.find(start)).min() {
        let is_start = !rest[..at].ends_with(|letter: char| letter.is_alphanumeric() || "_:".contains(letter));
        rest = &rest[at..];
        if is_start {
            let base = if rest.starts_with("crate") { &[] } else { here };
            rest = path(rest, base.to_vec(), &mut found);
        } else {
            rest = &rest["crate::".len()..];
        }
    }
    found
}

/// Reads one path after `base`, adds it to `found`, and returns the text behind it.
fn path<'t>(mut text: &'t str, mut base: Vec<String>, found: &mut Vec<Vec<String>>) -> &'t str {
    loop {
        text = text.trim_start();
        if let Some(group) = text.strip_prefix('{') {
            text = group;
            text = text.trim_start();
            while !text.is_empty() && !text.starts_with('}') {
                text = path(text, base.clone(), found);
                // Skips `as name` and `*`.
                text = text.trim_start_matches(|letter: char| !",}".contains(letter));
                text = text.strip_prefix(',').unwrap_or(text).trim_start();
            }
            return text.strip_prefix('}').unwrap_or(text);
        }
        let end = text.find(|letter: char| !letter.is_alphanumeric() && letter != '_');
        let (name, rest) = text.split_at(end.unwrap_or(text.len()));
        match name {
            "crate" | "self" => {}
            "super" => {
                base.pop();
            }
            name if name.starts_with(|letter: char| letter.is_lowercase() || letter == '_') => {
                base.push(name.to_owned());
            }
            _item => {}
        }
        text = rest;
        match rest.strip_prefix("::") {
            Some(next) if next.starts_with(|letter: char| letter.is_alphanumeric() || "_{ \n".contains(letter)) => {
                text = next;
            }
            _end => {
                found.push(base);
                return text;
            }
        }
    }
}
