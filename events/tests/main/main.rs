//! Tests of the public API: triggers under arbitrary events, and their index against a comparison of every trigger.

mod levels;
mod trigger;
mod trigger_index;
