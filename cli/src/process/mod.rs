//! The process of the command: signals and Ctrl-C, the log, the limit of open files, and worker processes for scripts.
//!
//! Not here: processes that execute runs of a shared store, which are in `service::worker`.

pub(crate) mod interrupt;
pub(crate) mod log;
pub(crate) mod open_files;
pub(crate) mod scripts;
pub(crate) mod signals;
