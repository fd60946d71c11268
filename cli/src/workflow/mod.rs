//! Subcommands for authors of workflow files, which run no workflow: `init`, `validate`, `graph`, `context`, `schema`, `skill`.
//!
//! Not here: subcommands that run a workflow to test it, which are in `testing`, and the reader of the files, which is `files`.

pub(crate) mod context;
pub(crate) mod graph;
pub(crate) mod init;
pub(crate) mod schema;
pub(crate) mod skill;
pub(crate) mod validate;
