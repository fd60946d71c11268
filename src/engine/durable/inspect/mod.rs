//! Read access to stored runs: their state, steps, threads and requests, and recordings of them.
//!
//! Nothing here changes a run.

pub(super) mod explain;
pub(super) mod failures;
pub(super) mod follow;
pub(super) mod mask;
pub(super) mod outside_inputs;
pub(super) mod prefix;
pub(super) mod recording;
pub(super) mod requests;
pub(super) mod sent_call;
pub(super) mod threads;
pub(super) mod view;
