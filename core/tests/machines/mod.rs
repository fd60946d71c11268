//! The smaller machines under arbitrary input.

mod conversation;
mod trigger;
mod trigger_index;
