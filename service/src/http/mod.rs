//! Parts of requests and answers that do not concern runs: access rules, callers and tenants, JSON bodies of
//! answers, problems.
//!
//! Files here know neither the service nor its runs.

pub(crate) mod access;
pub(crate) mod caller;
pub(crate) mod invalid_option;
pub(crate) mod json;
#[cfg(feature = "jwt")]
pub(crate) mod jwt;
pub(crate) mod problem;
pub(crate) mod tenant;
