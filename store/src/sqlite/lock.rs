//! The hold on a store: a lock of the operating system on a file beside it, which ends with its process. The file has the id of
//! the process that holds it, or how the store was closed.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::Path;
use std::sync::Arc;

use crate::error::StoreError;
use crate::sqlite::closed::Closed;

/// Held until it is dropped.
#[derive(Debug)]
pub(super) struct Hold {
    file: File,
    /// As the store was closed.
    pub(super) closed: Option<Closed>,
}

impl Hold {
    /// Takes hold of the store `file`, or says who has it.
    pub(super) fn take(file: &Arc<str>) -> Result<Self, StoreError> {
        let failed = |error: &io::Error| StoreError::Failed {
            file: file.clone(),
            run: None,
            why: format!("its lock file: {error}"),
        };
        let path = format!("{file}.lock");
        let mut lock = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(Path::new(&path));
        let lock = lock.as_mut().map_err(|error| failed(error))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                // Where it can not be read, the store is held all the same.
                let read = lock.read_to_string(&mut holder);
                return Err(StoreError::Held {
                    file: file.clone(),
                    pid: read.ok().and_then(|_| holder.trim().parse().ok()),
                });
            }
            Err(TryLockError::Error(error)) => return Err(failed(&error)),
        }
        let mut found = String::new();
        // Where it can not be read, nothing is known of how the store was closed.
        let closed = lock.read_to_string(&mut found).ok().and_then(|_| Closed::read(&found));
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
