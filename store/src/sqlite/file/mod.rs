//! The file of a store on the disk: path, lock, checksum, write-ahead log, opening and copies.
//!
//! Not here: contents of the file, which are in `tables` and `commands`.

pub(super) mod backup;
pub(super) mod file_checksum;
pub(super) mod lock;
pub(super) mod open;
pub(super) mod path;
pub(super) mod wal;
