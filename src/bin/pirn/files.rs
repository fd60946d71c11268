//! Workflow files from the disk, or from stdin by the name `-`.

use std::io::Read;
use std::path::Path;
use std::{fs, io};

use pirn_core::definition::SourceFile;

/// Reads every file.
///
/// # Errors
/// One sentence that names each file that cannot be read or is not UTF-8.
pub(crate) fn read(paths: &[String]) -> Result<Vec<SourceFile>, String> {
    let mut files = Vec::with_capacity(paths.len());
    let mut unreadable = Vec::new();
    for path in paths {
        match read_one(path) {
            Ok(text) => files.push(SourceFile::new(path, text)),
            Err(error) => unreadable.push(format!("cannot read {path}: {error}")),
        }
    }
    if unreadable.is_empty() {
        Ok(files)
    } else {
        Err(unreadable.join("\n"))
    }
}

fn read_one(path: &str) -> io::Result<String> {
    if path == "-" {
        return read_stdin();
    }
    fs::read_to_string(Path::new(path))
}

/// All of stdin, as UTF-8.
pub(crate) fn read_stdin() -> io::Result<String> {
    let mut text = String::new();
    io::stdin().lock().read_to_string(&mut text)?;
    Ok(text)
}
