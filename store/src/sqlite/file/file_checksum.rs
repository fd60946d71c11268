//! Checksum of the file of a closed store, written to its lock file.
//!
//! 1. A store is checked when it is opened, and only SQLite writes it until it is closed. If the file still has that checksum, and
//!    there is no write-ahead log, the check at the next open is skipped.
//! 2. In any other case (a changed byte, a log, a lock file of a killed process or of an earlier version) everything is
//!    checked.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use crc32fast::Hasher;

use crate::sqlite::format::codec::checksum;
use crate::sqlite::tables::LAYOUT;

/// Maximum size of a file for which the checksum is used, in bytes. A full check takes only a few times as long.
const MAX_FILE: u64 = 1 << 30;

/// First word of the lock file of a closed store.
pub(in crate::sqlite) const WORD: &str = "closed";

/// Number of bytes read at a time.
const PIECE: usize = 1 << 20;

/// State of a file at the time when the store was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sqlite) struct FileChecksum {
    bytes: u64,
    sum: u32,
    /// Key of the next run.
    pub(in crate::sqlite) next_key: u64,
}

impl FileChecksum {
    /// Computes the checksum of a file; none if the file is too large.
    pub(in crate::sqlite) fn of(path: &Path, next_key: u64) -> io::Result<Option<Self>> {
        let mut file = File::open(path)?;
        let bytes = file.metadata()?.len();
        if bytes > MAX_FILE {
            return Ok(None);
        }
        let (mut piece, mut hasher) = (vec![0; PIECE], Hasher::new());
        let mut left = bytes;
        while left > 0 {
            let read = file.read(&mut piece)?;
            if read == 0 {
                // The file became shorter while it was read, so the checksum would be meaningless.
                return Ok(None);
            }
            hasher.update(&piece[..read]);
            left = left.saturating_sub(read as u64);
        }
        let sum = hasher.finalize();
        Ok(Some(Self { bytes, sum, next_key }))
    }

    /// Returns true if the file is unchanged and has no log.
    pub(in crate::sqlite) fn is_still(&self, path: &Path, log: &Path) -> bool {
        // A log contains changes that the checksum of the file does not cover.
        let has_log = fs::metadata(log).is_ok_and(|log| log.len() > 0);
        !has_log && Self::of(path, self.next_key).is_ok_and(|found| found == Some(*self))
    }

    /// Formats the line of the lock file.
    pub(in crate::sqlite) fn written(&self) -> String {
        let Self { bytes, sum, next_key } = self;
        let words = format!("{WORD} {LAYOUT} {bytes} {sum} {next_key}");
        format!("{words} {}\n", checksum(&[words.as_bytes()]))
    }

    /// Parses the line of the lock file; none if it is malformed or from another version.
    pub(in crate::sqlite) fn read(text: &str) -> Option<Self> {
        let (words, _) = text.trim_end().rsplit_once(' ')?;
        let mut numbers = words.split(' ').skip(2);
        let closed = Self {
            bytes: numbers.next()?.parse().ok()?,
            sum: numbers.next()?.parse().ok()?,
            next_key: numbers.next()?.parse().ok()?,
        };
        // Compared as a whole: this covers the first word, the layout and the checksum of the line itself.
        (closed.written() == text).then_some(closed)
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use futures::executor::block_on;
    use tempfile::TempDir;

    use super::*;
    use crate::commit::{Commit, NewRun};
    use crate::content::Content;
    use crate::error::StoreError;
    use crate::run::Record;
    use crate::sqlite::SqliteStore;
    use crate::store::Store;

    fn closed_store() -> (TempDir, PathBuf) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("runs.db");
        begin(&SqliteStore::open(&path).expect("opens"), "run-1");
        (folder, path)
    }

    fn begin(store: &SqliteStore, run: &str) {
        let definition = Content::new("{}");
        let start = Commit::start(run, NewRun::new("flow", definition.hash(), 1)).content(definition);
        block_on(store.commit(start.record(Record::new(1, "on the disk")))).expect("begins");
    }

    fn lock_of(path: &Path) -> PathBuf {
        format!("{}.lock", path.display()).into()
    }

    /// Changes a byte of the journal's only record.
    fn damage(path: &Path) {
        let mut bytes = fs::read(path).expect("reads");
        let text = b"on the disk";
        let at = bytes.windows(text.len()).position(|found| found == text);
        bytes[at.expect("is there")] ^= 1;
        // Also changes the free list of the page with the first run's row: `quick_check` detects that.
        let row = b"run-1";
        let at = bytes
            .windows(row.len())
            .position(|found| found == row)
            .expect("is there");
        bytes[at / 4096 * 4096 + 5] ^= 1;
        fs::write(path, bytes).expect("writes");
    }

    #[test]
    fn a_file_unchanged_since_close_is_not_checked_again() {
        let (_folder, path) = closed_store();
        damage(&path);
        let closed = FileChecksum::of(&path, 2).expect("reads").expect("is short");
        fs::write(lock_of(&path), closed.written()).expect("writes");
        SqliteStore::open(&path).expect("nobody looks");
    }

    #[test]
    fn a_file_changed_since_close_is_checked() {
        let (_folder, path) = closed_store();
        let closed = fs::read_to_string(lock_of(&path)).expect("reads");
        assert!(FileChecksum::read(&closed).is_some(), "{closed}");
        damage(&path);
        let error = SqliteStore::open(&path).map(drop).expect_err("is damaged");
        assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
    }

    #[test]
    fn a_reopened_store_continues_from_its_closed_state() {
        let (_folder, path) = closed_store();
        for run in ["run-2", "run-3"] {
            let store = SqliteStore::open(&path).expect("opens");
            begin(&store, run);
            store.close().expect("closes");
        }
        let store = SqliteStore::open(&path).expect("opens");
        for run in ["run-1", "run-2", "run-3"] {
            assert_eq!(block_on(store.journal(run, 0, 10)).expect("reads").len(), 1, "{run}");
        }
    }

    #[test]
    fn a_changed_close_record_is_ignored() {
        let closed = FileChecksum {
            bytes: 4096,
            sum: 7,
            next_key: 12,
        };
        let text = closed.written();
        assert_eq!(FileChecksum::read(&text), Some(closed));
        for at in 0..text.len() {
            let mut changed = text.clone().into_bytes();
            changed[at] ^= 1;
            assert_eq!(
                FileChecksum::read(&String::from_utf8_lossy(&changed)),
                None,
                "byte {at}"
            );
            assert_eq!(FileChecksum::read(&text[..at]), None, "cut at {at}");
        }
        assert_eq!(FileChecksum::read("4711\n"), None);
    }
}
