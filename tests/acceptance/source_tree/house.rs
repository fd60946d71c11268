//! Rules of the source tree: the imports that each folder may have, and the first words of doc lines.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use serde_json::Value;

use super::file_cycles;

/// The actors of a run and of an arbiter. Each may use only the messages and handles of another one.
const ACTORS: &[&str] = &["supervisor", "thread", "conversation", "event_bus", "trigger_matcher"];

/// The source folder of each crate, and those of our crates that it may import.
pub(in crate::acceptance) const CRATES: &[(&str, &[&str])] = &[
    ("sync/src", &[]),
    ("definition/src", &[]),
    ("conversation/src", &["pirn_definition"]),
    ("events/src", &["pirn_definition"]),
    ("core/src", &["pirn_definition", "pirn_events", "pirn_conversation"]),
    ("drawing/src", &["pirn_definition"]),
    (
        "actors/src",
        &[
            "pirn_definition",
            "pirn_events",
            "pirn_conversation",
            "pirn_core",
            "pirn_sync",
        ],
    ),
    ("store/src", &["pirn_store"]),
    ("engines/postgres/src", &["pirn_postgres", "pirn_store"]),
    ("engines/restate/src", &["pirn_restate", "pirn_store"]),
    (
        "adapters/script/src",
        &[
            "pirn_script",
            "pirn_definition",
            "pirn_conversation",
            "pirn_core",
            "pirn_sync",
            "pirn_actors",
        ],
    ),
    (
        "adapters/models/src",
        &[
            "pirn_models",
            "pirn_definition",
            "pirn_conversation",
            "pirn_core",
            "pirn_actors",
        ],
    ),
    (
        "adapters/tools/src",
        &[
            "pirn_tools",
            "pirn_definition",
            "pirn_conversation",
            "pirn_core",
            "pirn_actors",
            "pirn_models",
        ],
    ),
    (
        "adapters/otel/src",
        &[
            "pirn",
            "pirn_definition",
            "pirn_events",
            "pirn_conversation",
            "pirn_core",
            "pirn_models",
        ],
    ),
    // The crate's name occurs in string literals.
    (
        "src",
        &[
            "pirn",
            "pirn_definition",
            "pirn_events",
            "pirn_conversation",
            "pirn_core",
            "pirn_sync",
            "pirn_actors",
            "pirn_store",
            "pirn_models",
            "pirn_script",
            "pirn_tools",
        ],
    ),
    (
        "service/src",
        &[
            "pirn",
            "pirn_definition",
            "pirn_events",
            "pirn_conversation",
            "pirn_core",
            "pirn_actors",
            "pirn_drawing",
            "pirn_models",
            "pirn_otel",
        ],
    ),
    (
        "cli/src",
        &[
            "pirn",
            "pirn_cli",
            "pirn_definition",
            "pirn_conversation",
            "pirn_drawing",
            "pirn_core",
            "pirn_actors",
            "pirn_postgres",
            "pirn_restate",
            "pirn_service",
            "pirn_otel",
        ],
    ),
];

#[test]
fn folders_of_a_crate_have_no_import_cycle() {
    for (root, _) in CRATES {
        assert_eq!(circles(&imports(root)), Vec::<Vec<String>>::new(), "in {root}");
    }
}

#[test]
fn actors_do_not_import_each_other_and_messages_name_no_actor() {
    let imports = imports("actors/src");
    for module in ACTORS.iter().chain(&["protocol"]) {
        let imported = &imports[*module];
        let named: Vec<_> = ACTORS.iter().filter(|actor| imported.contains(**actor)).collect();
        assert!(named.is_empty(), "{module} imports {named:?}");
    }
}

#[test]
fn no_crate_imports_a_crate_of_a_higher_layer() {
    const OURS: [&str; 18] = [
        "pirn",
        "pirn_cli",
        "pirn_service",
        "pirn_definition",
        "pirn_events",
        "pirn_conversation",
        "pirn_core",
        "pirn_drawing",
        "pirn_sync",
        "pirn_actors",
        "pirn_store",
        "pirn_models",
        "pirn_script",
        "pirn_tools",
        "pirn_otel",
        "pirn_postgres",
        "pirn_restate",
        "pirn_tests",
    ];
    for (root, below) in CRATES {
        for file in sources(root) {
            let text = code(&file);
            for name in OURS.iter().filter(|name| !below.contains(name)) {
                let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
                let mut paths = text
                    .match_indices(&**name)
                    .filter(|(at, _)| !text[..*at].ends_with(is_part));
                let is_imported = paths.any(|(at, _)| text[at + name.len()..].starts_with("::"));
                assert!(!is_imported, "{} imports {name}", file.display());
            }
        }
    }
}

/// The state machines get time, random numbers and results of work as inputs.
#[test]
fn definitions_and_machines_have_no_clock_randomness_async_or_io() {
    const ABSENT: [&str; 12] = [
        "std::time",
        "std::thread",
        "std::fs",
        "std::net",
        "std::env",
        "std::process",
        "RandomState",
        "Mutex",
        "async fn",
        "async move",
        ".await;",
        ".await?",
    ];
    for file in ["definition/src", "conversation/src", "events/src", "core/src"]
        .into_iter()
        .flat_map(sources)
    {
        let text = code(&file);
        let found: Vec<_> = ABSENT.iter().filter(|word| text.contains(**word)).collect();
        assert!(found.is_empty(), "{} has {found:?}", file.display());
    }
}

/// `### The way of a run: 27 files`, and at most ten steps that name them.
#[test]
fn walkthroughs_of_the_architecture_name_existing_files_and_their_number() {
    let text = std::fs::read_to_string(workspace().join("ARCHITECTURE.md")).expect("it is there");
    let ways: Vec<&str> = text.split("\n### The way of ").skip(1).collect();
    assert_eq!(ways.len(), 3);
    for way in ways {
        let way = way.split("\n## ").next().unwrap_or_default();
        let (title, steps) = way.split_once('\n').expect("steps");
        let is_step = |line: &&str| {
            line.split_once(". ")
                .is_some_and(|(number, _)| number.parse::<u8>().is_ok())
        };
        assert!(steps.lines().filter(is_step).count() <= 10, "{title}");
        let named: BTreeSet<&str> = steps
            .split('`')
            .filter(|name| Path::new(name).extension().is_some_and(|end| end == "rs"))
            .collect();
        for name in &named {
            let (module, rest) = name.split_once('/').expect("the path starts with a crate");
            let root = if module == "pirn" {
                PathBuf::from("src")
            } else {
                Path::new(module).join("src")
            };
            assert!(
                workspace().join(root).join(rest).is_file(),
                "{title}: there is no {name}"
            );
        }
        assert!(
            title.ends_with(&format!(": {} files", named.len())),
            "{title} names {}",
            named.len()
        );
    }
}

#[test]
fn no_doc_line_starts_with_a_question_word() {
    const QUESTIONS: [&str; 5] = ["What", "Who", "Whose", "Where", "Whether"];
    for file in CRATES.iter().flat_map(|(root, _)| sources(root)) {
        let text = std::fs::read_to_string(&file).expect("readable");
        for (at, line) in text.lines().enumerate() {
            let line = line.trim_start();
            let said = line.strip_prefix("/// ").or_else(|| line.strip_prefix("//! "));
            let first = said.and_then(|said| said.split_whitespace().next()).unwrap_or_default();
            assert!(!QUESTIONS.contains(&first), "{}:{}: {line}", file.display(), at + 1);
        }
    }
}

#[test]
fn an_import_cycle_is_detected_and_a_chain_is_not_a_cycle() {
    let edges = |edges: &[(&str, &str)]| -> BTreeMap<String, BTreeSet<String>> {
        let mut imports: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (from, to) in edges {
            imports.entry((*from).to_owned()).or_default().insert((*to).to_owned());
        }
        imports
    };
    assert!(circles(&edges(&[("a", "b"), ("b", "c"), ("a", "c")])).is_empty());
    let two = circles(&edges(&[
        ("a", "b"),
        ("b", "a"),
        ("b", "c"),
        ("c", "d"),
        ("d", "e"),
        ("e", "c"),
    ]));
    assert_eq!(two, [vec!["a", "b"], vec!["c", "d", "e"]]);
}

/// Returns each module at the root of a crate (a folder or a file) with the modules that it imports.
pub(in crate::acceptance) fn imports(root: &str) -> BTreeMap<String, BTreeSet<String>> {
    let first = |module: &String| module.split("::").next().unwrap_or(module).to_owned();
    let mut imports: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (file, targets) in file_cycles::imports(root) {
        let own = first(&file);
        let imported = targets.iter().map(first).filter(|target| *target != own);
        imports.entry(own.clone()).or_default().extend(imported);
    }
    imports
}

/// Returns the description of the workspace that `cargo metadata` prints.
pub(in crate::acceptance) fn metadata() -> &'static Value {
    static METADATA: OnceLock<Value> = OnceLock::new();
    METADATA.get_or_init(|| {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let output = Command::new(cargo)
            .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
            .current_dir(workspace())
            .output()
            .expect("cargo runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("JSON")
    })
}

/// Returns the sets of modules that import each other, directly or indirectly. The sets and their contents are sorted.
pub(in crate::acceptance) fn circles(imports: &BTreeMap<String, BTreeSet<String>>) -> Vec<Vec<String>> {
    let reached: BTreeMap<&String, BTreeSet<&String>> =
        imports.keys().map(|from| (from, reach(imports, from))).collect();
    let mut circles = BTreeSet::new();
    for (from, to) in &reached {
        let is_mutual = |other: &&&String| reached.get(**other).is_some_and(|back| back.contains(from));
        let circle: BTreeSet<String> = to.iter().filter(is_mutual).map(|other| (*other).clone()).collect();
        if circle.len() > 1 {
            circles.insert(circle.into_iter().collect());
        }
    }
    circles.into_iter().collect()
}

fn reach<'a>(imports: &'a BTreeMap<String, BTreeSet<String>>, from: &'a String) -> BTreeSet<&'a String> {
    let (mut reached, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(module) = next.pop() {
        for imported in imports.get(module).into_iter().flatten() {
            if reached.insert(imported) {
                next.push(imported);
            }
        }
    }
    reached
}

/// Returns a file without its comments and its unit tests.
pub(in crate::acceptance) fn code(file: &Path) -> String {
    let text = std::fs::read_to_string(file).expect("a source file");
    let shipped = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let lines = shipped.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns the shipped files of a crate, sorted.
pub(in crate::acceptance) fn sources(root: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![workspace().join(root)];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let is_tests = ["tests", "tests.rs"].contains(&name.as_str());
            if is_tests {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

pub(in crate::acceptance) fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}
