//! The log of a run's events: positions, pieces, JSON, and facts that are read from the log.
//!
//! Not here: streams of a log to clients, which are in `crate::events`.

pub(crate) mod event_log;
pub(crate) mod first_tokens;
pub(crate) mod json_text;
pub(crate) mod pieces;
pub(crate) mod position;
pub(crate) mod threads;
