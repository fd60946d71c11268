//! Copies of an open store. Pages are copied by SQLite's backup functions between commands: a command waits for one step only.
//! SQLite adds to the copy what commands change in pages that were copied already.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use rusqlite::Connection;
use rusqlite::backup::{Backup, StepResult};

use crate::error::StoreError;
use crate::sqlite::fault::Fault;
use crate::sqlite::tables::Tables;

/// Number of pages (256 KiB) that are copied between two commands.
const STEP: std::ffi::c_int = 64;

/// Outcome of the commands that were executed between two steps.
pub(in crate::sqlite) enum Meanwhile {
    Continue,
    /// The store is closing.
    Stop,
}

/// Writes a copy of a store. `meanwhile` is called between the steps and executes the commands that wait.
pub(in crate::sqlite) fn back_up<S>(
    state: &mut S,
    tables: impl Fn(&mut S) -> &mut Tables,
    to: &Path,
    mut meanwhile: impl FnMut(&mut S) -> Meanwhile,
) -> Result<(), Fault> {
    let file = Arc::clone(&tables(state).file);
    let failed = |error: &io::Error| {
        Fault::from(StoreError::Failed {
            file: file.clone(),
            run: None,
            why: format!("cannot write the backup {}: {error}", to.display()),
        })
    };
    if to.symlink_metadata().is_ok() {
        return Err(failed(&io::Error::new(
            io::ErrorKind::AlreadyExists,
            "the file exists; name a new one",
        )));
    }
    let part = Part::new(to);
    let copied = copy(state, &tables, &part.0, &mut meanwhile);
    // An error of the copy does not stop the store: the copy may be on another disk.
    copied.map_err(|fault| failed(&io::Error::other(fault.told(&file).to_string())))?;
    part.keep(to).map_err(|error| failed(&error))
}

fn copy<S>(
    state: &mut S,
    tables: &impl Fn(&mut S) -> &mut Tables,
    part: &Path,
    meanwhile: &mut impl FnMut(&mut S) -> Meanwhile,
) -> Result<(), Fault> {
    let source = Rc::clone(&tables(state).sql);
    let mut target = Connection::open(part)?;
    // The file gets its name after it was synced as a whole, so that its own journal is not needed.
    target.pragma_update(None, "journal_mode", "OFF")?;
    target.pragma_update(None, "synchronous", "OFF")?;
    let backup = Backup::new(&source, &mut target)?;
    let mut copied = 0;
    loop {
        let pages: i64 = source.pragma_query_value(None, "page_count", |row| row.get(0))?;
        // The store may have been shortened since the last step.
        if pages - copied <= i64::from(STEP) {
            // A file without a log has no records in `recent`: see that module.
            tables(state).empty_recent()?;
            return match backup.step(-1)? {
                StepResult::Done => Ok(()),
                other => Err(unfinished(tables(state), other)),
            };
        }
        match backup.step(STEP)? {
            StepResult::More => copied += i64::from(STEP),
            other => return Err(unfinished(tables(state), other)),
        }
        if let Meanwhile::Stop = meanwhile(state) {
            return Err(StoreError::Stopped {
                file: Arc::clone(&tables(state).file),
                why: "the store was closed before the backup was complete".to_owned(),
            }
            .into());
        }
    }
}

fn unfinished(tables: &Tables, step: StepResult) -> Fault {
    StoreError::Failed {
        file: Arc::clone(&tables.file),
        run: None,
        why: format!("the backup ended early: {step:?}"),
    }
    .into()
}

/// The incomplete copy. Dropping it deletes the file.
struct Part(PathBuf);

impl Part {
    fn new(to: &Path) -> Self {
        let mut name = OsString::from(to);
        name.push(".partial");
        let part = Self(name.into());
        // Left by a process that was killed.
        part.delete();
        part
    }

    fn delete(&self) {
        // Missing in most cases; if it cannot be deleted, the copy into it fails.
        let _missing = fs::remove_file(&self.0);
    }

    /// Makes the copy durable and then gives it its name.
    fn keep(&self, to: &Path) -> io::Result<()> {
        File::open(&self.0)?.sync_all()?;
        fs::rename(&self.0, to)?;
        // The name is in the folder.
        let folder = to.parent().filter(|folder| !folder.as_os_str().is_empty());
        if cfg!(unix) {
            File::open(folder.unwrap_or(Path::new(".")))?.sync_all()?;
        }
        Ok(())
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.delete();
    }
}
