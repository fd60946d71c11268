//! Expressions, templates and code of a workflow: their list, the names that they use, and their faults.
//!
//! Not here: the port to their parsers ([`Syntax`](super::Syntax)).

pub(super) mod known_names;
pub(super) mod list;
mod text_fault;
