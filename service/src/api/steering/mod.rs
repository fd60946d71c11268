//! Handlers that send inputs to runs: commands, messages, and answers to open interactions, with the lists of these.
//!
//! Not here: the start of runs, which is in `api::runs`; delivery to the run's owner, which is in `lifecycle::steering`.

pub(super) mod control;
pub(super) mod interactions;
pub(super) mod messages;
pub(super) mod open_questions;
