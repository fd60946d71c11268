//! Runs that are read from a store or an archive: reports, histories and replays, with limits on the memory that they use.
//!
//! Not here: runs in memory, which are in `runs`; the store itself, which belongs to the engine.

pub(crate) mod archive;
pub(crate) mod histories;
pub(crate) mod replays;
pub(crate) mod stored;
