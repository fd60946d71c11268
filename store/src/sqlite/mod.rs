//! Store in one SQLite file.
//!
//! One thread has the only connection, in exclusive mode: no shared memory, no second writer. WAL with `synchronous=FULL`: a
//! commit is answered after its sync. The same connection checkpoints the log, so that a failed sync there is detected.
//!
//! Not here: rules that every store must obey (`conformance`) and types of other stores.

mod commands;
mod fault;
mod file;
mod format;
mod recent;
mod tables;
mod writer;

use std::path::Path;
use std::sync::Arc;

use self::commands::rekey::Rekeying;
use crate::commit::Commit;
use crate::content::ContentHash;
use crate::error::{Pending, StoreError};
use crate::figures::StoreFigures;
use crate::keys::StoreKeys;
use crate::run::{Record, Run, RunFilter, RunPlace, Session, Snapshot, Timer};
use crate::sqlite::tables::Tables;
use crate::sqlite::writer::Writer;
use crate::store::{Removed, Store};

// `wal::check` reads frames of this size.
const PAGE_SIZE: u32 = 4096;

/// Store in one file, locked by this process until it is closed or dropped.
///
/// ```no_run
/// let store = pirn_store::SqliteStore::open("runs.db")?;
/// # Ok::<(), pirn_store::StoreError>(())
/// ```
#[derive(Debug)]
pub struct SqliteStore {
    writer: Writer,
}

impl SqliteStore {
    /// Opens or creates a store. The folder must exist. Two more files belong to it: `-wal`, the write-ahead log, which is part of
    /// the store, and `.lock`, the lock. Blocks while the file is checked.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] if the file differs from the written data. [`StoreError::Held`] if another process has locked the
    /// store.
    /// [`StoreError::Unreadable`], before anything is created, if the path is not a regular file with one name, the file is not a
    /// store, or one of the other two files is malformed.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        Writer::start(path.as_ref().to_owned(), None, None).map(|writer| Self { writer })
    }

    /// Opens a store on a registered SQLite VFS, which must prevent other processes from opening it.
    pub fn open_on(vfs: &str, path: impl AsRef<Path>) -> Result<Self, StoreError> {
        Writer::start(path.as_ref().to_owned(), Some(vfs.to_owned()), None).map(|writer| Self { writer })
    }

    /// Opens or creates a store with values that are encrypted with the first key.
    ///
    /// A store without encryption becomes an encrypted one: its existing values stay readable in the file until [`rekey`](Self::rekey).
    ///
    /// # Errors
    /// [`StoreError::KeyRefused`], before anything is written, if the store has values of a key that is not given. Otherwise as
    /// [`open`](Self::open).
    pub fn open_encrypted(path: impl AsRef<Path>, keys: StoreKeys) -> Result<Self, StoreError> {
        Writer::start(path.as_ref().to_owned(), None, Some(keys)).map(|writer| Self { writer })
    }

    /// Opens an encrypted store on a registered SQLite VFS, as [`open_on`](Self::open_on) does.
    pub fn open_encrypted_on(vfs: &str, path: impl AsRef<Path>, keys: StoreKeys) -> Result<Self, StoreError> {
        Writer::start(path.as_ref().to_owned(), Some(vfs.to_owned()), Some(keys)).map(|writer| Self { writer })
    }

    /// Encrypts all values with the first key, in batches between other commands, and rewrites the file so that no copy of former
    /// values is left in it. Afterwards the store needs no other key. Returns the number of values that were encrypted. An interrupted
    /// call is completed by repeating it.
    ///
    /// # Errors
    /// [`StoreError::KeyRefused`] if the store was opened without a key.
    pub async fn rekey(&self) -> Result<u64, StoreError> {
        let mut at = Rekeying::default();
        while !at.is_complete() {
            let from = at.clone();
            at = self.writer.write(move |tables| tables.rekey(from.clone())).await?;
        }
        self.shrink(true).await?;
        self.writer.write(Tables::end_rekey).await?;
        Ok(at.rows)
    }

    /// Waits for all pending commands, moves the log into the file, and releases the lock. Dropping the store does this too, but
    /// ignores errors. Both block.
    pub fn close(self) -> Result<(), StoreError> {
        self.writer.close()
    }
}

impl Store for SqliteStore {
    fn location(&self) -> &Arc<str> {
        self.writer.file()
    }

    fn figures(&self) -> Option<StoreFigures> {
        Some(self.writer.figures())
    }

    fn commit(&self, commit: Commit) -> Pending<u64> {
        // The job takes the commit, and the error needs the id.
        let run = commit.run.clone();
        let answer = self.writer.write(move |tables| tables.commit(&commit));
        Box::pin(async move { answer.await.map_err(|error| error.of_run(&run)) })
    }

    fn run(&self, id: &str) -> Pending<Option<Run>> {
        let id = id.to_owned();
        self.writer
            .read(move |tables| Ok(tables.row(&id)?.filter(|row| !row.is_hidden).map(|row| row.run)))
    }

    fn runs(&self, filter: RunFilter, after: Option<RunPlace>, limit: usize) -> Pending<Vec<Run>> {
        self.writer
            .read(move |tables| tables.runs(&filter, after.clone(), limit))
    }

    fn journal(&self, id: &str, after: u64, limit: usize) -> Pending<Vec<Record>> {
        let id = id.to_owned();
        self.writer.read(move |tables| tables.journal(&id, after, limit))
    }

    fn contents(&self, hashes: Vec<ContentHash>) -> Pending<Vec<Arc<str>>> {
        self.writer.read(move |tables| tables.contents(&hashes))
    }

    fn chain(&self, last: ContentHash, limit: usize) -> Pending<Vec<ContentHash>> {
        self.writer.read(move |tables| tables.chain(last, limit))
    }

    fn shrink(&self, rewrites: bool) -> Pending<u64> {
        self.writer
            // As a read, because `VACUUM` cannot run inside of the transaction of a batch of writes.
            .read(move |tables| tables.shrink(writer::SHRUNK_AT_ONCE, rewrites))
    }

    fn back_up(&self, to: &Path) -> Pending<()> {
        self.writer.back_up(to.to_owned())
    }

    fn snapshot(&self, id: &str, at_most: u64) -> Pending<Option<Snapshot>> {
        let id = id.to_owned();
        self.writer.read(move |tables| tables.snapshot(&id, at_most))
    }

    fn timers(&self, until: u64, limit: usize) -> Pending<Vec<Timer>> {
        self.writer.read(move |tables| tables.timers(until, limit))
    }

    fn sessions(&self, after: Option<String>, limit: usize) -> Pending<Vec<Session>> {
        self.writer.read(move |tables| tables.sessions(after.as_deref(), limit))
    }

    fn session(&self, id: &str) -> Pending<Option<Session>> {
        let id = id.to_owned();
        self.writer.read(move |tables| tables.session(&id))
    }

    fn set_meta(&self, name: &str, value: Option<String>) -> Pending<()> {
        let name = name.to_owned();
        self.writer
            .write(move |tables| tables.set_meta(&name, value.as_deref()))
    }

    fn meta(&self, name: &str) -> Pending<Option<String>> {
        let name = name.to_owned();
        self.writer.read(move |tables| tables.meta(&name))
    }

    fn remove(&self, ids: Vec<String>, dry_run: bool) -> Pending<Removed> {
        self.writer.write(move |tables| {
            if !dry_run {
                return tables.remove(&ids);
            }
            let before = tables.recent.mark();
            // The removal itself computes the answer, and the savepoint undoes it inside of the transaction of the batch.
            tables.sql.execute_batch("SAVEPOINT dry_run")?;
            // A dry run frees no pages, so it must not start the shrinking.
            let was_shrinking = tables.is_shrinking;
            let removed = tables.remove(&ids);
            tables.is_shrinking = was_shrinking;
            tables.sql.execute_batch("ROLLBACK TO dry_run; RELEASE dry_run")?;
            // The index in memory is not part of the transaction, so it is rolled back separately.
            tables.recent.take_back(before);
            removed
        })
    }

    fn replace(&self, commit: Commit) -> Pending<u64> {
        self.writer.write(move |tables| tables.replace(&commit))
    }

    fn remove_session(&self, id: &str) -> Pending<bool> {
        let id = id.to_owned();
        self.writer.write(move |tables| tables.remove_session(&id))
    }
}
