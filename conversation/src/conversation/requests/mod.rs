//! The request for a model: order of messages, repaired pairs, position of pinned messages, and the stable prefix.
//!
//! Not here: the messages of the log ([`history`](super::history)), and the format of a provider.

pub(super) mod order;
pub(super) mod pinned;
pub(super) mod position;
pub(super) mod prefix;
pub(super) mod prepared;
pub(super) mod request;
pub(super) mod tool_pairs;
