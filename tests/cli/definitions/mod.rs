//! Subcommands on workflow files: `init`, `validate`, `graph`, `schema`, and input that is no workflow.
//!
//! Not here: the mistakes of a newcomer, which are in `mistakes`.

mod graph;
mod init;
mod invalid_input;
mod schema;
mod validate;
