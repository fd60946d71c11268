//! Turns of a thread and of a conversation, which change nothing else than these, the state that all threads share, and the queue.
//!
//! Not here: steps that concern several threads (`steps/`).

pub(super) mod budget;
pub(super) mod compression;
pub(super) mod conversation;
pub(super) mod large_results;
pub(super) mod message_intake;
pub(super) mod thread;
pub(super) mod workflow_tools;
