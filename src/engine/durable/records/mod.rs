//! The records of a run in the store: written as the run steps, and read to rebuild it.
//!
//! Not here: operations on the rebuilt run ([`super::inspect`], [`super::commands`]).

pub(super) mod compiled;
pub(super) mod definition;
pub(super) mod journal;
pub(super) mod parts;
pub(super) mod results;
pub(super) mod sessions;
pub(super) mod stored;
