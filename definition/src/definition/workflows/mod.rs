//! Types of a workflow: its nodes, triggers, schedules and tools.
//!
//! Not here: options of a node with a type of their own ([`node_options`](super::node_options)), and reading a file
//! ([`load`](super::load())).

pub(super) mod built_in_tools;
pub(super) mod nodes;
pub(super) mod schedule;
pub(super) mod tool_definition;
pub(super) mod tool_entry;
pub(super) mod trigger;
pub(super) mod workflow;
