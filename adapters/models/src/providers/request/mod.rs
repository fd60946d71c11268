//! Parts of a request that the protocols share: messages and cache hints, parameters of a node, and schemas of replies.
//!
//! Not here: the JSON of a request, which each protocol writes, and its transfer, which is in `exchange`.

pub(super) mod parameters;
pub(super) mod provider_request;
pub(super) mod schema;
