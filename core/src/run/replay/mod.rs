//! Records of a run: its rebuilding from them, and what they say of effects, waits and triggers.
//!
//! Not here: the storage of records, and the clock and the randomness that they contain.

pub(super) mod named_events;
pub(super) mod open_effects;
pub(super) mod outbox;
pub(super) mod record;
pub(super) mod scheduled;
pub(super) mod trigger_decisions;
pub(super) mod trigger_progress;
pub(super) mod waiting;
