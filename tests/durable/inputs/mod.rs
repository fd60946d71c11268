//! Inputs to stored runs: answers, messages, events, and the turns of sessions, each used once across crashes.
//!
//! Not here: events that fire triggers.

pub(in crate::durable) mod answers;
mod concurrent_inputs;
mod messages;
mod questions;
mod sessions;
mod steered_runs;
mod turns;
mod waits;
