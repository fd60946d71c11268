//! Checks of a store's path before a file is created or written.
//!
//! A store and its other files (`-wal`, `-journal`, `.lock`) must be regular files with one name. With a symbolic link
//! or a hard link another file would be overwritten, and a device or a FIFO would be read without end.

use std::ffi::OsString;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

use crate::error::StoreError;
use crate::sqlite::PAGE_SIZE;
use crate::sqlite::tables::APPLICATION;

/// First bytes of an SQLite file.
const MAGIC: &[u8] = b"SQLite format 3\0";

/// Size of the file header in bytes, and offset of the application id in it.
const HEADER: usize = 100;
const APPLICATION_AT: usize = 68;

/// Returns the path of a file that belongs to the store, such as its lock.
pub(in crate::sqlite) fn beside(store: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(store);
    // Appended and not set as the extension: `a.db` and `a.sql` must have different locks.
    name.push(suffix);
    name.into()
}

/// Resolves and checks the path of a store. Creates no files.
pub(in crate::sqlite) fn checked(path: &Path) -> Result<PathBuf, StoreError> {
    let refused = |path: &Path, why: String| StoreError::Unreadable {
        file: path.to_string_lossy().into(),
        why,
    };
    let path = absolute(path).map_err(|why| refused(path, why))?;
    check(&path).map_err(|why| refused(&path, why))?;
    Ok(path)
}

/// Canonicalizes a path: two paths of one file must use one lock. A link to a missing file is followed: its lock is
/// that of the file that will be created.
fn absolute(path: &Path) -> Result<PathBuf, String> {
    if let Ok(path) = path.canonicalize() {
        return Ok(path);
    }
    // The file does not exist yet, so only its folder can be resolved.
    let name = path.file_name().ok_or("not the name of a file")?;
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let folder = folder.canonicalize().map_err(|error| format!("its folder: {error}"))?;
    let path = folder.join(name);
    match fs::metadata(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        // A loop of links is an error here, so the recursion ends.
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
    // SQLite opens these two without asking, also if they are links to another file.
    for suffix in ["-wal", "-journal"] {
        let log = beside(path, suffix);
        let log = plain_length(&log).map_err(|why| format!("{} beside it: {why}", log.display()))?;
        has_log |= log > Some(0);
    }
    // A new store. The other two files were checked above.
    let Some(length) = length else { return Ok(()) };
    // Open the file for writing too: for a read-only file SQLite would report a failed lock.
    let file = OpenOptions::new().read(true).write(true).open(path);
    let file = file.map_err(|error| format!("it must be readable and writable: {error}"))?;
    // With a log, SQLite may still have to complete or undo a change of the header.
    if length == 0 || has_log {
        return Ok(());
    }
    // Before SQLite opens the file, because that may already write to it.
    check_header(file, length)
}

fn check_header(file: File, length: u64) -> Result<(), String> {
    let mut header = Vec::with_capacity(HEADER);
    let read = file.take(HEADER as u64).read_to_end(&mut header);
    read.map_err(|error| error.to_string())?;
    if !header.starts_with(MAGIC) || header.len() < HEADER {
        return Err("the file is not an SQLite database".to_owned());
    }
    // A store that was created and not yet filled has one page without the application id.
    let is_ours = header[APPLICATION_AT..APPLICATION_AT + 4] == APPLICATION.to_be_bytes();
    if !is_ours && length > u64::from(PAGE_SIZE) {
        return Err("an SQLite file, but not a Pirn store".to_owned());
    }
    Ok(())
}

/// Returns the length of the file at a path; none if there is no file. Refuses anything but a regular file with one name.
pub(in crate::sqlite) fn plain_length(path: &Path) -> Result<Option<u64>, String> {
    // The link itself and not its target: a link is refused.
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

/// Store and log as they were opened.
pub(in crate::sqlite) struct Files(Vec<(PathBuf, Identity)>);

/// Identity of a file: device and inode.
type Identity = (u64, u64);

impl Files {
    /// Records the current files. Must be called after SQLite has opened them.
    pub(in crate::sqlite) fn of(store: &Path) -> Self {
        let paths = [store.to_owned(), beside(store, "-wal")];
        let there = paths.into_iter().filter_map(|path| {
            // A missing file is left out: it cannot be removed or replaced.
            let found = identity(&path)?;
            Some((path, found))
        });
        Self(there.collect())
    }

    /// Returns the reason why writes would be lost: a file was removed or replaced. Costs one system call for each file.
    pub(in crate::sqlite) fn is_gone(&self) -> Option<String> {
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
    // Without inodes only a removed file is noticed, and not a replaced one.
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

/// Reads a text of at most `most` bytes. A longer file is an error.
pub(in crate::sqlite) fn read_short(file: &mut File, most: u64) -> io::Result<String> {
    let mut text = String::new();
    // Reading one byte more than allowed detects a file that is too long.
    file.take(most + 1).read_to_string(&mut text)?;
    if text.len() as u64 > most {
        return Err(io::Error::new(ErrorKind::InvalidData, "longer than a lock file is"));
    }
    Ok(text)
}
