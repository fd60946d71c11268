//! Lock of a store: an operating system lock on a separate file, released when the process ends. The file contains the id of
//! the process that holds the lock, or the checksum of the closed store.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Seek, Write};
use std::path::Path;
use std::sync::Arc;

use super::file_checksum::{self, FileChecksum};
use super::path::{beside, plain_length, read_short};
use crate::error::StoreError;

/// Maximum length of a lock file in bytes.
const LONGEST: u64 = 256;

/// Lock that is released on drop.
#[derive(Debug)]
pub(in crate::sqlite) struct FileLock {
    file: File,
    /// Checksum from the lock file, if the store was closed.
    pub(in crate::sqlite) closed: Option<FileChecksum>,
}

impl FileLock {
    /// Locks the store at `store`, which errors name as `file`.
    pub(in crate::sqlite) fn take(store: &Path, file: &Arc<str>) -> Result<Self, StoreError> {
        let failed = |error: &io::Error| StoreError::Failed {
            file: file.clone(),
            run: None,
            why: format!("its lock file: {error}"),
        };
        let path = beside(store, ".lock");
        let refused = |why: String| StoreError::Unreadable {
            file: file.clone(),
            why: format!("its lock file {}: {why}", path.display()),
        };
        // Before the file is opened: a link would lock another file, and a FIFO would be read without end.
        plain_length(&path).map_err(refused)?;
        let mut lock = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            // The content is needed: the id of the owner, or the checksum of the closed store.
            .truncate(false)
            .open(&path);
        let lock = lock.as_mut().map_err(|error| failed(error))?;
        // Not waiting: the other process may hold the store for days, and the caller gets its id instead.
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                // The process id is optional in the error.
                let holder = read_short(lock, LONGEST).ok();
                return Err(StoreError::Held {
                    file: file.clone(),
                    pid: holder.and_then(|holder| holder.trim().parse().ok()),
                });
            }
            Err(TryLockError::Error(error)) => return Err(failed(&error)),
        }
        let found = read_short(lock, LONGEST).ok().filter(|found| is_lock(found));
        // `--store Cargo` must not overwrite a `Cargo.lock`.
        let found =
            found.ok_or_else(|| refused("it is not the lock file of a store and would be overwritten".to_owned()))?;
        let closed = FileChecksum::read(&found);
        let file = lock.try_clone().map_err(|error| failed(&error))?;
        let mut hold = Self { file, closed };
        // Also removes the checksum: after a crash of this process the next open checks everything.
        hold.write(&format!("{}\n", std::process::id()))
            .map_err(|error| failed(&error))?;
        Ok(hold)
    }

    /// Writes the checksum of the closed store.
    pub(in crate::sqlite) fn was_closed(&mut self, closed: &FileChecksum) -> io::Result<()> {
        self.write(&closed.written())
    }

    fn write(&mut self, text: &str) -> io::Result<()> {
        // Truncated first, so that no part of a longer text remains.
        self.file.set_len(0)?;
        self.file.rewind()?;
        self.file.write_all(text.as_bytes())
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // Closing the file is not enough: a program that another thread starts holds a copy of the descriptor between its fork and
        // its exec, and the lock with it. An error leaves the lock to the end of the copies.
        let _released = self.file.unlock();
    }
}

/// Returns true for everything that a store may have left in a lock file, also after a power cut: a process id, a line of
/// [`FileChecksum`], a part of either, zeros.
fn is_lock(text: &str) -> bool {
    let text = text.trim_end_matches('\n');
    text.bytes().all(|byte| byte.is_ascii_digit() || byte == 0)
        || text.starts_with(file_checksum::WORD)
        || file_checksum::WORD.starts_with(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_lock_is_released_while_a_copy_of_its_descriptor_is_open() {
        let folder = std::env::temp_dir().join(format!("pirn-lock-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let store = folder.join("runs.db");
        let name: Arc<str> = "runs.db".into();
        let lock = FileLock::take(&store, &name).expect("nobody holds it");
        // As in a program that was forked and has not executed yet.
        let copy = lock.file.try_clone().expect("a copy");
        drop(lock);
        let again = FileLock::take(&store, &name);
        assert!(again.is_ok(), "{:?}", again.err());
        drop(copy);
        std::fs::remove_dir_all(folder).expect("is removed");
    }
}
