//! Checks and compilation of the config of each node type; `compiler` dispatches on the type.
//!
//! Not here: the edges between nodes ([`structure`](super::structure)), and the texts in a config ([`snippets`](super::snippets)).

pub(super) mod compiler;
mod forks;
mod interaction;
mod llm;
pub(super) mod loops;
pub(super) mod map;
pub(super) mod reducers;
