//! Commands on the tables: reads, removal, encryption of values, the index of runs, and shrinking of the file.
//!
//! Not here: the schema and the commit of a step, which are in `tables`, and the transactions of commands, which are in `writer`.

pub(super) mod read;
pub(super) mod rekey;
pub(super) mod remove;
pub(super) mod run_index;
pub(super) mod shrink;
pub(super) mod values;
