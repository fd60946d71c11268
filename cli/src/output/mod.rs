//! Text of every command on the terminal: lines, widths and colours, failures, faults of files, and masks of secrets.
//!
//! Not here: the progress of a run, which is in `run::progress`, and the log, which is in `process`.

pub(crate) mod failure;
pub(crate) mod faults;
pub(crate) mod redact;
pub(crate) mod sanitize;
pub(crate) mod terminal;
