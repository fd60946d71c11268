//! Parts of requests and answers that do not concern runs: access rules, JSON bodies of answers, problems.
//!
//! Files here know neither the service nor its runs.

pub(crate) mod access;
pub(crate) mod json;
pub(crate) mod problem;
