//! Workflow files from the disk, or from stdin by the name `-`.

use std::{fs, io};

use pirn::config::read_text;
use pirn_core::definition::SourceFile;

/// Bytes that a file or stdin may have: a long conversation has a few million.
const MAX_BYTES: u64 = 256 << 20;

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
    read_file(path)
}

/// All of a file, as UTF-8.
pub(crate) fn read_file(path: &str) -> io::Result<String> {
    read_text(fs::File::open(path)?, MAX_BYTES)
}

/// All of stdin, as UTF-8.
pub(crate) fn read_stdin() -> io::Result<String> {
    read_text(io::stdin().lock(), MAX_BYTES)
}
