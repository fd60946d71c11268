//! Workflow files from the disk, or from stdin by the name `-`.

use std::io::IsTerminal;
use std::{fs, io};

use pirn::check::SourceFile;
use pirn::config::read_text;

use crate::failure::Failure;
use crate::terminal::say;

/// Bytes that a file or stdin may have: a long conversation has a few million.
const MAX_BYTES: u64 = 256 << 20;

/// Reads every file.
///
/// # Errors
/// One sentence that names each file that cannot be read or is not UTF-8.
pub(crate) fn read(paths: &[String]) -> Result<Vec<SourceFile>, Failure> {
    let mut files = Vec::with_capacity(paths.len());
    let mut unreadable = Vec::new();
    for path in paths {
        match read_one(path) {
            Ok(text) => files.push(SourceFile::new(path, text)),
            Err(error) => unreadable.push(unreadable_text(path, &error)),
        }
    }
    if unreadable.is_empty() {
        Ok(files)
    } else {
        Err(Failure::usage("UNREADABLE_FILE", unreadable.join("\npirn: ")))
    }
}

/// All of one file.
///
/// # Errors
/// One sentence that names it.
pub(crate) fn read_named(path: &str) -> Result<String, Failure> {
    read_one(path).map_err(|error| Failure::usage("UNREADABLE_FILE", unreadable_text(path, &error)))
}

fn unreadable_text(path: &str, error: &io::Error) -> String {
    let name = if path == "-" { "stdin" } else { path };
    let hint = match error.kind() {
        io::ErrorKind::IsADirectory => "; it is a folder: name the file in it",
        _ => "",
    };
    format!("cannot read {name}: {error}{hint}")
}

fn read_one(path: &str) -> io::Result<String> {
    if path == "-" {
        return read_stdin("the file");
    }
    read_text(fs::File::open(path)?, MAX_BYTES)
}

/// All of stdin, as UTF-8. On a terminal it says what it waits for.
pub(crate) fn read_stdin(what: &str) -> io::Result<String> {
    if io::stdin().is_terminal() {
        say(&format!(
            "reading {what} from the terminal; end it with Ctrl-D on a line of its own"
        ));
    }
    read_text(io::stdin().lock(), MAX_BYTES)
}
