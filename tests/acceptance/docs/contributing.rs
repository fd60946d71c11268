//! The worked changes of `CONTRIBUTING.md`: each has at most ten steps, and the files, names and commands in them exist.
//!
//! Names that the change adds contain the name of the example in the heading. Files that it adds follow the word "Create".

use std::path::{Path, PathBuf};

use crate::acceptance::source_tree::house::{metadata, workspace};

/// A worked change.
struct Change<'a> {
    /// The name of the example, in lower case without punctuation.
    example: String,
    steps: Vec<&'a str>,
}

#[test]
fn the_worked_changes_name_files_functions_and_commands_that_exist() {
    let text = std::fs::read_to_string(workspace().join("CONTRIBUTING.md")).expect("it is there");
    let changes = changes(&text);
    assert_eq!(changes.len(), 3);
    let mut problems = Vec::new();
    for change in &changes {
        assert!((2..=10).contains(&change.steps.len()), "{}", change.example);
        for step in &change.steps {
            problems.extend(faults(&change.example, step));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn a_wrong_file_name_or_command_is_reported() {
    for step in [
        "In `core/src/thread/missing.rs`, add a variant.",
        "Create `core/src/thread/mod.rs`.",
        "Create `core/src/nowhere/check.rs`.",
        "In `core/src/thread/mod.rs`, add it to `no_such_function`.",
        "Run `cargo test -p pirn-nothing`.",
        "Run `cargo test -p pirn-tests --test nothing`.",
        "Run `cargo test -p pirn-tests --test scenarios acceptance::nothing`.",
    ] {
        assert_eq!(faults("check", step).len(), 1, "{step}");
    }
    let right = "In `core/src/thread/mod.rs`, add `CheckConfig` to `ThreadMachine`; run `cargo test -p pirn-definition --test main analysis`.";
    assert_eq!(faults("check", right), Vec::<String>::new());
}

#[test]
fn the_table_of_files_and_tables_names_functions_that_exist() {
    let text = std::fs::read_to_string(workspace().join("ARCHITECTURE.md")).expect("it is there");
    let table = text.split("\n## Files and tables\n").nth(1).expect("the section");
    let cells = table.lines().skip(3).flat_map(|row| row.split(" | ").skip(1));
    let problems: Vec<String> = cells.flat_map(|cell| faults("no example", cell)).collect();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn the_design_pages_name_files_and_commands_that_exist() {
    let folder = workspace().join("docs/decisions");
    let decisions = std::fs::read_dir(folder).expect("readable");
    let mut pages: Vec<_> = decisions.map(|entry| entry.expect("readable").path()).collect();
    pages.push(workspace().join("CONTRIBUTING.md"));
    let mut missing = Vec::new();
    for page in pages {
        let text = std::fs::read_to_string(&page).expect("readable");
        let paths = code(&text)
            .filter(|name| is_path(name) && name.contains('/') && !text.contains(&format!("Create `{name}`")));
        let absent = paths.filter(|path| !workspace().join(path).exists());
        missing.extend(absent.map(|path| format!("{}: {path}", page.display())));
        let commands = code(&text).filter(|name| name.starts_with("cargo ") && name.contains(" -p "));
        let commands = commands.filter_map(|command| command.split(" -- ").next());
        missing.extend(commands.filter_map(command_fault));
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

/// Returns the sections below `## Worked first changes`.
fn changes(text: &str) -> Vec<Change<'_>> {
    let section = text.split("\n## Worked first changes\n").nth(1).expect("the section");
    let section = section.split("\n## ").next().unwrap_or_default();
    let parts = section.split("\n### ").skip(1);
    parts
        .map(|part| {
            let (title, text) = part.split_once('\n').expect("steps");
            let example = code(title).next().expect("the heading names an example");
            let mut starts: Vec<usize> = text
                .match_indices('\n')
                .map(|(at, _)| at + 1)
                .filter(|at| text[*at..].starts_with(|letter: char| letter.is_ascii_digit()))
                .collect();
            starts.push(text.len());
            Change {
                example: plain(example),
                steps: starts.windows(2).map(|pair| &text[pair[0]..pair[1]]).collect(),
            }
        })
        .collect()
}

/// Returns the texts between back ticks.
fn code(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

fn plain(name: &str) -> String {
    name.chars()
        .filter(|letter| letter.is_alphanumeric())
        .collect::<String>()
        .to_lowercase()
}

fn is_path(name: &str) -> bool {
    let letters = |letter: char| letter.is_alphanumeric() || "/_-.".contains(letter);
    let ends = Path::new(name)
        .extension()
        .is_some_and(|end| ["rs", "md", "json", "toml", "sql"].iter().any(|one| end == *one));
    let is_folder = [
        "definition/",
        "conversation/",
        "events/",
        "core/",
        "sync/",
        "actors/",
        "store/",
        "engines/",
        "adapters/",
        "service/",
        "cli/",
        "src/",
        "tests/",
        "docs/",
        "benches/",
    ];
    name.chars().all(letters) && (ends || is_folder.iter().any(|folder| name.starts_with(folder)))
}

/// Returns the faults of one step.
fn faults(example: &str, step: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let mut sources = String::new();
    let mut names = Vec::new();
    for word in code(step) {
        let path = workspace().join(word);
        if word.starts_with("cargo ") {
            faults.extend(command_fault(word));
        } else if !is_path(word) {
            names.push(word);
        } else if step.contains(&format!("Create `{word}`")) {
            let has_folder = path.parent().is_some_and(Path::is_dir);
            if path.exists() || !has_folder {
                faults.push(format!("{word} exists already, or its folder does not"));
            }
        } else if let Ok(text) = std::fs::read_to_string(&path) {
            sources.push_str(&text);
        } else if !path.is_dir() {
            faults.push(format!("there is no {word}"));
        }
    }
    let is_added = |name: &str| plain(name).contains(example);
    // A step without a file of its own names functions of the new file.
    if !sources.is_empty() {
        let unknown = names
            .into_iter()
            .filter(|name| !is_added(name) && !has_word(&sources, name));
        faults.extend(unknown.map(|name| format!("no file of the step has `{name}`: {step}")));
    }
    faults
}

fn has_word(text: &str, word: &str) -> bool {
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
    text.match_indices(word)
        .any(|(at, _)| !text[..at].ends_with(is_part) && !text[at + word.len()..].starts_with(is_part))
}

/// Returns the fault of `cargo COMMAND -p CRATE [--test NAME] [FILTER]`.
fn command_fault(command: &str) -> Option<String> {
    let words: Vec<&str> = command.split_whitespace().collect();
    let after = |option: &str| {
        let at = words.iter().position(|word| *word == option)?;
        words.get(at + 1).copied()
    };
    let packages = metadata()["packages"].as_array().expect("a list");
    let package = packages.iter().find(|package| package["name"].as_str() == after("-p"));
    let Some(package) = package else {
        return Some(format!("`{command}`: there is no such crate"));
    };
    let test = after("--test")?;
    let targets = package["targets"].as_array().expect("a list");
    let is_test = |target: &&serde_json::Value| target["kind"][0] == "test" && target["name"] == test;
    let Some(target) = targets.iter().find(is_test) else {
        return Some(format!("`{command}`: there is no such test"));
    };
    // The word behind the name of the test is the path of a module.
    let filter = words.last().filter(|word| **word != test)?;
    let mut file = PathBuf::from(target["src_path"].as_str().expect("a path"));
    let mut folder = file.parent().expect("a folder").to_owned();
    for module in filter.split("::") {
        let source = std::fs::read_to_string(&file).expect("readable");
        if !source.contains(&format!("mod {module};")) {
            return Some(format!("`{command}`: there is no module {module}"));
        }
        let single = folder.join(format!("{module}.rs"));
        folder.push(module);
        file = if single.is_file() {
            single
        } else {
            folder.join("mod.rs")
        };
    }
    None
}
