//! The documentation of crates and folders: a diagram of the modules in `lib.rs`, and the limits of each folder in `mod.rs`.

use std::collections::{BTreeMap, BTreeSet};

use super::house::{imports, sources, workspace};

/// The source folders of the crates whose documentation has this form.
const ROOTS: &[&str] = &[
    "sync/src",
    "definition/src",
    "conversation/src",
    "events/src",
    "core/src",
    "drawing/src",
    "actors/src",
    "store/src",
    "engines/postgres/src",
    "engines/restate/src",
    "adapters/models/src",
    "adapters/script/src",
    "adapters/tools/src",
    "adapters/otel/src",
];

#[test]
fn the_diagram_of_a_crate_has_every_module_above_those_that_it_imports() {
    for root in ROOTS {
        let path = workspace().join(root).join("lib.rs");
        let text = std::fs::read_to_string(path).expect("a crate has a lib.rs");
        let docs: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("//! ")).collect();
        assert!(
            docs.iter().any(|line| line.starts_with("1. ")),
            "{root} has no reading order"
        );
        let diagram = docs.iter().skip_while(|line| **line != "# Modules");
        let diagram = diagram.skip_while(|line| **line != "```text").skip(1);
        let diagram: Vec<&str> = diagram.take_while(|line| **line != "```").copied().collect();
        // Lines without an arrow between them are on one level.
        let mut level = 0;
        let mut levels: BTreeMap<&str, usize> = BTreeMap::new();
        for line in diagram {
            if line.trim() == "↓" {
                level += 1;
                continue;
            }
            for module in line.split_whitespace() {
                assert_eq!(levels.insert(module, level), None, "{root}: {module} occurs twice");
            }
        }
        let declared = text.lines().filter_map(|line| {
            let line = line.strip_prefix("pub ").unwrap_or(line);
            line.strip_prefix("mod ")?.strip_suffix(';')
        });
        let declared = declared.filter(|module| *module != "tests");
        let declared: BTreeSet<&str> = declared.collect();
        assert_eq!(levels.keys().copied().collect::<BTreeSet<_>>(), declared, "in {root}");
        for (module, imported) in imports(root) {
            for other in imported {
                assert!(
                    levels[module.as_str()] < levels[other.as_str()],
                    "{root}: {module} imports {other} and is not above it"
                );
            }
        }
    }
}

#[test]
fn each_folder_states_what_does_not_belong_there() {
    for file in ROOTS.iter().flat_map(|root| sources(root)) {
        if file.file_name().is_some_and(|name| name == "mod.rs") {
            let text = std::fs::read_to_string(&file).expect("readable");
            assert!(text.starts_with("//! "), "{} has no documentation", file.display());
            assert!(text.contains("\n//! Not here: "), "{} states no limit", file.display());
        }
    }
}
