//! The hold on a store: a lock of the operating system on a file beside it, which ends with its process. The file has the id of
//! the process that holds it, or how the store was closed.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Seek, Write};
use std::path::Path;
use std::sync::Arc;

use crate::error::StoreError;
use crate::sqlite::closed::{self, Closed};
use crate::sqlite::path::{beside, plain_length, read_short};

/// The most bytes of a lock file.
const LONGEST: u64 = 256;

/// Held until it is dropped.
#[derive(Debug)]
pub(super) struct Hold {
    file: File,
    /// As the store was closed.
    pub(super) closed: Option<Closed>,
}

impl Hold {
    /// Takes hold of the store at `store`, which errors call `file`, or says who has it.
    pub(super) fn take(store: &Path, file: &Arc<str>) -> Result<Self, StoreError> {
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
        plain_length(&path).map_err(refused)?;
        let mut lock = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path);
        let lock = lock.as_mut().map_err(|error| failed(error))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                // Where it can not be read, the store is held all the same.
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
        let found = found.ok_or_else(|| refused("it is not a store's, and would be overwritten".to_owned()))?;
        let closed = Closed::read(&found);
        let file = lock.try_clone().map_err(|error| failed(&error))?;
        let mut hold = Self { file, closed };
        hold.write(&format!("{}\n", std::process::id()))
            .map_err(|error| failed(&error))?;
        Ok(hold)
    }

    /// The store was closed like this.
    pub(super) fn was_closed(&mut self, closed: &Closed) -> io::Result<()> {
        self.write(&closed.written())
    }

    fn write(&mut self, text: &str) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.rewind()?;
        self.file.write_all(text.as_bytes())
    }
}

/// True for all that a store's process, a version before this one or a power cut may have left: the id of a process, a line of
/// [`Closed`], a part of either, zeros.
fn is_lock(text: &str) -> bool {
    let text = text.trim_end_matches('\n');
    text.bytes().all(|byte| byte.is_ascii_digit() || byte == 0)
        || text.starts_with(closed::WORD)
        || closed::WORD.starts_with(text)
}
