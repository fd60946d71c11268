//! Help beyond `--help`: `completions`, `man`, and the examples that the help of some subcommands shows.
//!
//! Not here: texts of the options, which are in the declaration of each subcommand.

pub(crate) mod completions;
pub(crate) mod examples;
pub(crate) mod man;
