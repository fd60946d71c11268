//! The checks of a store's path that come before a file is created or written to.
//!
//! A store is a regular file with one name. The same holds for the files beside it (`-wal`, `-journal`, `.lock`): a symbolic link
//! or a second name there would have another file overwritten, and a device or a FIFO would be read without end.

use std::ffi::OsString;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

use crate::error::StoreError;
use crate::sqlite::PAGE_SIZE;
use crate::sqlite::tables::APPLICATION;

/// The first bytes of every SQLite file.
const MAGIC: &[u8] = b"SQLite format 3\0";

/// Bytes of a file's header, and where the number of its application stands in it.
const HEADER: usize = 100;
const APPLICATION_AT: usize = 68;

/// The path of a file beside the store, such as its lock.
pub(super) fn beside(store: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(store);
    name.push(suffix);
    name.into()
}

/// Resolves the path of a store and checks what is there. Creates nothing.
pub(super) fn checked(path: &Path) -> Result<PathBuf, StoreError> {
    let refused = |path: &Path, why: String| StoreError::Unreadable {
        file: path.to_string_lossy().into(),
        why,
    };
    let path = absolute(path).map_err(|why| refused(path, why))?;
    check(&path).map_err(|why| refused(&path, why))?;
    Ok(path)
}

/// Two ways to one file have one name here, and so one lock. A link to a file that does not exist yet is followed: its lock is
/// that of the file which will be created.
fn absolute(path: &Path) -> Result<PathBuf, String> {
    if let Ok(path) = path.canonicalize() {
        return Ok(path);
    }
    let name = path.file_name().ok_or("no file's name")?;
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let folder = folder.canonicalize().map_err(|error| format!("its folder: {error}"))?;
    let path = folder.join(name);
    match fs::metadata(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        // Links in a ring are an error here, so that the links that are followed end.
        Err(error) => return Err(error.to_string()),
        Ok(_) => return Ok(path),
    }
    match fs::read_link(&path) {
        Ok(target) => absolute(&folder.join(target)),
        Err(_) => Ok(path),
    }
}

fn check(path: &Path) -> Result<(), String> {
    let length = plain_length(path)?;
    let mut has_log = false;
    for suffix in ["-wal", "-journal"] {
        let log = beside(path, suffix);
        let log = plain_length(&log).map_err(|why| format!("{} beside it: {why}", log.display()))?;
        has_log |= log > Some(0);
    }
    let Some(length) = length else { return Ok(()) };
    // For writing too: SQLite says of a file that is read-only that its lock failed.
    let file = OpenOptions::new().read(true).write(true).open(path);
    let file = file.map_err(|error| format!("it must be readable and writable: {error}"))?;
    // With a log the header may be that of a change which SQLite has yet to finish or to undo.
    if length == 0 || has_log {
        return Ok(());
    }
    check_header(file, length)
}

fn check_header(file: File, length: u64) -> Result<(), String> {
    let mut header = Vec::with_capacity(HEADER);
    let read = file.take(HEADER as u64).read_to_end(&mut header);
    read.map_err(|error| error.to_string())?;
    if !header.starts_with(MAGIC) || header.len() < HEADER {
        return Err("the file is not a database of SQLite".to_owned());
    }
    // A store that was created and not yet filled has one page, without the number.
    let is_ours = header[APPLICATION_AT..APPLICATION_AT + 4] == APPLICATION.to_be_bytes();
    if !is_ours && length > u64::from(PAGE_SIZE) {
        return Err("an SQLite file, but no store of Pirn's".to_owned());
    }
    Ok(())
}

/// The length of the file at a path; none where there is no file. Refuses whatever is no regular file with one name.
pub(super) fn plain_length(path: &Path) -> Result<Option<u64>, String> {
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    if !found.is_file() {
        return Err(format!("it must be a regular file, and is {}", kind(&found)));
    }
    match names(&found) {
        0 | 1 => Ok(Some(found.len())),
        names => Err(format!(
            "the file has {names} names (hard links), and its log and lock would belong to one of them: use a copy"
        )),
    }
}

fn kind(found: &Metadata) -> &'static str {
    if found.is_dir() {
        "a folder"
    } else if found.is_symlink() {
        "a symbolic link"
    } else {
        "a device, a FIFO or a socket"
    }
}

/// The store and its log as they were opened.
pub(super) struct Files(Vec<(PathBuf, Identity)>);

/// What tells a file from another one at its path.
type Identity = (u64, u64);

impl Files {
    /// The files that are there now. Call this when SQLite has opened them.
    pub(super) fn of(store: &Path) -> Self {
        let paths = [store.to_owned(), beside(store, "-wal")];
        let there = paths.into_iter().filter_map(|path| {
            let found = identity(&path)?;
            Some((path, found))
        });
        Self(there.collect())
    }

    /// Why nothing that is written now would be found at the next start, if so. Costs a call of the system for each file.
    pub(super) fn is_gone(&self) -> Option<String> {
        let gone = self.0.iter().find(|(path, opened)| identity(path) != Some(*opened));
        gone.map(|(path, _)| format!("{} was removed or replaced while it was open", path.display()))
    }
}

#[cfg(unix)]
fn identity(path: &Path) -> Option<Identity> {
    use std::os::unix::fs::MetadataExt;
    let found = fs::symlink_metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}

#[cfg(not(unix))]
fn identity(path: &Path) -> Option<Identity> {
    path.exists().then_some((0, 0))
}

#[cfg(unix)]
fn names(found: &Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::nlink(found)
}

#[cfg(not(unix))]
fn names(_: &Metadata) -> u64 {
    1
}

/// Reads at most `most` bytes of text; more is an error.
pub(super) fn read_short(file: &mut File, most: u64) -> io::Result<String> {
    let mut text = String::new();
    file.take(most + 1).read_to_string(&mut text)?;
    if text.len() as u64 > most {
        return Err(io::Error::new(ErrorKind::InvalidData, "longer than a lock file is"));
    }
    Ok(text)
}
