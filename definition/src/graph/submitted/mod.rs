//! Workflows and scripts that a model submits during a run: the rules of the node, and the faults that the model receives.
//!
//! Not here: their compilation ([`compile_inline`](super::compile_inline)).

pub(super) mod code_mode;
pub(super) mod dynamic;
pub(super) mod workflow;
