//! Output of a command to a terminal, a pipe or a closed stream.
//!
//! Not here: the texts of single subcommands.

#[cfg(feature = "javascript")]
mod control_sequences;
pub(crate) mod streams;
#[cfg(unix)]
pub(crate) mod terminal;
