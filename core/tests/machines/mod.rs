//! The smaller machines and all parsers of user text, under arbitrary input.

mod conversation;
mod sources;
mod trigger;
mod trigger_index;
