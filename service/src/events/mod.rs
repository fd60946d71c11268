//! Events and history of runs: recording of events, reading of events from the store, and streams of both as server-sent events.
//!
//! Not here: the log of one run, which is in `runs::events`; the encodings of protocols, which are in `wire`.

pub(crate) mod feed;
pub(crate) mod following;
pub(crate) mod history;
pub(crate) mod recorder;
pub(crate) mod sse;
