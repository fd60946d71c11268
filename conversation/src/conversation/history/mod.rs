//! The log of messages: entries, marks of batches, and visible messages.
//!
//! Not here: the selection of messages for one call ([`select`](super::select())), and the request that is built from them
//! ([`requests`](super::requests)).

mod entries;
pub(super) mod log;
pub(super) mod marks;
pub(super) mod view;
