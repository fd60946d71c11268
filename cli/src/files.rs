//! Workflow files from the disk, or from stdin for the name `-`.

use std::io::IsTerminal;
use std::path::Path;
use std::{fs, io};

use pirn::check::SourceFile;
use pirn::config::read_text;
use pirn::with_skills;
use pirn_definition::definition::nearest;

use crate::output::failure::Failure;
use crate::output::redact;
use crate::output::terminal::{say, shell_quoted};

/// Workflow file of a command that names none.
pub(crate) const DEFAULT: &str = "workflow.json";

/// Maximum size of a file or of stdin: a long conversation has a few million bytes.
const MAX_BYTES: u64 = 256 << 20;

/// Maximum number of names in a folder that are searched for a misspelt one.
const MAX_NAMES: usize = 1_000;

/// Reads all files.
///
/// # Errors
/// Fails with a message that names each file that is unreadable or not UTF-8.
pub(crate) fn read(paths: &[String]) -> Result<Vec<SourceFile>, Failure> {
    let mut files = Vec::with_capacity(paths.len());
    let mut unreadable = Vec::new();
    for path in paths {
        match read_one(path) {
            Ok(text) if is_of_another_language(path, &text) => unreadable.push(format!(
                "{path} is not a workflow file: a workflow is JSON, or a script in JavaScript (.js, .mjs)"
            )),
            Ok(text) => {
                redact::hide_misplaced_in(&text);
                files.push(with_skills(SourceFile::new(path, text), Path::new(path)));
            }
            Err(error) => unreadable.push(unreadable_text(path, &error)),
        }
    }
    if unreadable.is_empty() {
        Ok(files)
    } else {
        Err(Failure::usage("UNREADABLE_FILE", unreadable.join("\npirn: ")))
    }
}

/// Returns true if the name ends as that of a program or a config file, and the text is not JSON.
fn is_of_another_language(path: &str, text: &str) -> bool {
    const ENDINGS: [&str; 8] = ["cts", "mts", "py", "toml", "ts", "tsx", "yaml", "yml"];
    let ending = Path::new(path).extension().and_then(|ending| ending.to_str());
    ending.is_some_and(|ending| ENDINGS.contains(&ending)) && !text.trim_start().starts_with(['{', '['])
}

/// Reads one file.
///
/// # Errors
/// Fails with a message that names the file.
pub(crate) fn read_named(path: &str) -> Result<String, Failure> {
    read_one(path).map_err(|error| Failure::usage("UNREADABLE_FILE", unreadable_text(path, &error)))
}

fn unreadable_text(path: &str, error: &io::Error) -> String {
    let name = if path == "-" { "stdin" } else { path };
    format!("cannot read {name}: {error}{}", hint(path, error))
}

/// Returns a hint for an unreadable file, to append after a semicolon.
pub(crate) fn hint(path: &str, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::IsADirectory => "; it is a folder: name the file in it".to_owned(),
        io::ErrorKind::NotFound if path == DEFAULT => {
            "; name the FILE of a workflow, or let `pirn init FOLDER` write one".to_owned()
        }
        io::ErrorKind::NotFound if path.trim_start().starts_with(['{', '[', '"']) => {
            "; this is JSON and not the name of a file: the input of a run is given as --input JSON".to_owned()
        }
        io::ErrorKind::NotFound => beside(Path::new(path)).unwrap_or_default(),
        _ => String::new(),
    }
}

/// Returns the name in the missing file's folder that is nearest to the given one, or the names that it has.
fn beside(path: &Path) -> Option<String> {
    let folder = match path.parent()? {
        folder if folder.as_os_str().is_empty() => Path::new("."),
        folder => folder,
    };
    let Ok(entries) = fs::read_dir(folder) else {
        return Some(format!("; there is no folder {}", folder.display()));
    };
    let files = entries.flatten().filter(|entry| entry.path().is_file());
    let names: Vec<String> = files
        .filter_map(|entry| entry.file_name().into_string().ok())
        .take(MAX_NAMES)
        .collect();
    match nearest(path.file_name()?.to_str()?, names.iter().map(String::as_str)) {
        Some(near) => Some(format!("; did you mean {}?", path.with_file_name(near).display())),
        None => Some(format!("; the folder has {}", listed(names))),
    }
}

/// Formats the first names of a folder.
fn listed(mut names: Vec<String>) -> String {
    const SHOWN: usize = 5;
    names.retain(|name| !name.starts_with('.'));
    names.sort();
    let more = if names.len() > SHOWN { ", ..." } else { "" };
    if names.is_empty() {
        return "no files".to_owned();
    }
    format!("{}{more}", names[..names.len().min(SHOWN)].join(", "))
}

/// Returns the failure for a file that cannot be written.
pub(crate) fn unwritable(path: &str, error: &io::Error) -> Failure {
    let failure = Failure::usage("WRITE_FAILED", format!("cannot write {path}: {error}"));
    let folder = Path::new(path).parent().filter(|folder| !folder.as_os_str().is_empty());
    match folder {
        Some(folder) if error.kind() == io::ErrorKind::NotFound && !folder.exists() => {
            let folder = shell_quoted(&folder.display().to_string()).into_owned();
            failure.with_help(format!("create its folder first: mkdir -p {folder}"))
        }
        _ => failure,
    }
}

fn read_one(path: &str) -> io::Result<String> {
    if path == "-" {
        return read_stdin("the file");
    }
    read_text(fs::File::open(path)?, MAX_BYTES)
}

/// Reads all of stdin as UTF-8. On a terminal, prints which input is expected.
pub(crate) fn read_stdin(what: &str) -> io::Result<String> {
    if io::stdin().is_terminal() {
        say(&format!(
            "reading {what} from the terminal; end it with Ctrl-D on an empty line"
        ));
    }
    read_text(io::stdin().lock(), MAX_BYTES)
}
