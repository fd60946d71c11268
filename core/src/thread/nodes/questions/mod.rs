//! Questions to persons: the node USER_INTERACTION, and the consent to calls of tools.
//!
//! Not here: the nodes whose calls need consent ([`llm`](super::llm), [`script`](super::script) and [`tool`](super::tool)).

pub(in crate::thread) mod consent;
pub(in crate::thread) mod interaction;
pub(in crate::thread) mod question;
