//! Operations on whole runs, shared by all interfaces: admission, start, resume, fork, inputs, and removal after the retention time.
//!
//! Not here: handlers of requests, which are in `api`; the registry of runs and quotas, which are in `runs`.

pub(crate) mod admission;
pub(crate) mod retention;
pub(crate) mod start;
pub(crate) mod steering;
