//! Generated workflows and the shipped examples, and runs of them that are rebuilt or repeated from records.
//!
//! Not here: stored runs, which are in `durable`.

pub(crate) mod examples;
pub(crate) mod generated;
mod rebuilt;
mod recorded_cases;
