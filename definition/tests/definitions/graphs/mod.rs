//! Rules of the edges and nodes of a graph, and of references between workflows.
//!
//! Not here: reading the text of a file (`loader.rs` of the folder above).

mod fork_join;
mod graph_rules;
mod loops;
mod oracle;
mod references;
mod short_forks;
