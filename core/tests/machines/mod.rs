//! The smaller machines under arbitrary input.

mod trigger;
mod trigger_index;
