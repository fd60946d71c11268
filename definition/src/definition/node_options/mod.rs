//! Types of the options in the configs of nodes: history, changes of the context, questions, submitted workflows, code mode.
//!
//! Not here: the configs themselves ([`workflows`](super::workflows)).

pub(super) mod code_mode;
pub(super) mod context_operation;
pub(super) mod dynamic;
pub(super) mod history_options;
pub(super) mod interaction;
