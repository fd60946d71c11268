//! The `pirn` command as a user drives it: the built binary, its output, its exit codes.

mod command;
mod context;
mod explore;
mod graph;
mod run;
mod schema;
mod tools;
mod validate;
